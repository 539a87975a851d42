//! The metrics of a lane, and rows with their samples.

use redline_engine::ModelInfo;
use redline_kernels::Arithmetic;

use super::Result;
use crate::result::held;
use crate::roofline::{Held, Work};
use crate::{Direction, Row, Samples};

/// The specification of a metric.
#[derive(Clone, Copy, Debug)]
pub struct MetricSpec {
    /// Its name; one that ends in `*` stands for all metrics with that prefix.
    pub name: &'static str,
    /// Its unit; empty if there are several.
    pub unit: &'static str,
    /// The direction in which it improves.
    pub direction: Direction,
    /// Whether the value is the same on every machine: a count that can be a gate anywhere.
    pub portable: bool,
}

impl MetricSpec {
    /// Reads metrics, which `|` separates, each a name and a unit. `+` before a name says that more is better, `-` that less is, and `#`
    /// that it is a count that follows from the workload, not from the machine's speed; all others are reported but not judged.
    pub(crate) fn all(text: &'static str) -> impl Iterator<Item = Self> {
        text.split('|').map(|metric| {
            let (direction, portable) = match metric.as_bytes().first() {
                Some(b'+') => (Direction::Higher, false),
                Some(b'-') => (Direction::Lower, false),
                sign => (Direction::Info, sign == Some(&b'#')),
            };
            let (name, unit) = metric.split_once(' ').unwrap_or((metric, ""));
            Self { name: name.trim_start_matches(['+', '-', '#']), unit, direction, portable }
        })
    }

    /// Whether this specification covers the metric of this name.
    pub fn names(&self, metric: &str) -> bool {
        self.name.strip_suffix('*').map_or(self.name == metric, |begin| metric.starts_with(begin))
    }
}

impl Row {
    pub(crate) fn of_model(case: impl Into<String>, info: &ModelInfo) -> Self {
        let row = Self::new(case)
            .param("model", info.name.clone())
            .param("threads", info.threads)
            .param("format", info.format.to_string())
            .param("kv_format", info.kv_format.name());
        row.checked_on(info.kernel_path.clone())
    }

    /// Marks the outputs as checked, and names the kernels that ran.
    pub(crate) fn checked_on(self, kernels: impl Into<String>) -> Self {
        Self { checked: true, kernel_path: Some(kernels.into()), ..self }
    }

    /// Adds the text of the prompts, if the user gave one.
    pub(crate) fn prompted(self, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.param("prompt", text),
            None => self,
        }
    }

    /// Adds a minimum for a metric, unless it is 0.
    pub(crate) fn at_least(self, metric: &str, least: f64) -> Self {
        if least > 0.0 { self.gate(metric, least) } else { self }
    }

    /// Adds a maximum for the absolute value of a metric.
    pub(crate) fn within(self, metric: &str, most: f64) -> Self {
        self.gate(metric, -most).at_most(metric, most)
    }

    /// Adds metrics of `trials`, which get their units and directions from `specs`.
    pub(crate) fn measured<'a, T>(self, specs: &'static str, trials: &'a [T]) -> MeasuredRow<'a, T> {
        MeasuredRow { row: self, specs, trials }
    }
}

/// A row to which metrics of trials are added.
pub(crate) struct MeasuredRow<'a, T> {
    pub(crate) row: Row,
    specs: &'static str,
    trials: &'a [T],
}

impl<T> MeasuredRow<'_, T> {
    /// Adds a metric with the value of each trial that has one.
    pub(crate) fn each<V: Into<Option<f64>>>(self, name: &str, value: impl Fn(&T) -> V) -> Result<Self> {
        let values = self.trials.iter().filter_map(|trial| value(trial).into()).collect();
        self.all(name, values)
    }

    /// Adds a metric with a single value, if there is one.
    pub(crate) fn one(self, name: &str, value: impl Into<Option<f64>>) -> Result<Self> {
        match value.into() {
            Some(value) => self.all(name, vec![value]),
            None => Ok(self),
        }
    }

    pub(crate) fn all(self, name: &str, values: Vec<f64>) -> Result<Self> {
        let spec = MetricSpec::all(self.specs).find(|spec| spec.names(name));
        let (unit, direction) = spec.map_or(("", Direction::Info), |spec| (spec.unit, spec.direction));
        let row = self.row.metric(name, Samples::new(unit, direction, values)?);
        Ok(Self { row, ..self })
    }
}

impl<T> MeasuredRow<'_, Held<T>> {
    /// Finishes the row with the limit that bounds the work, the share of it that was reached, and the conditions. `seconds`
    /// is the duration of a trial.
    pub(crate) fn held(
        self,
        arithmetic: Arithmetic,
        work: Work,
        seconds: impl Fn(&Held<T>) -> f64,
    ) -> Result<Row> {
        Ok(held(self.row, arithmetic, work, &timed(self.trials, seconds))?)
    }
}

/// The seconds of each trial, with its limits and conditions.
pub(crate) fn timed<T>(trials: &[Held<T>], seconds: impl Fn(&Held<T>) -> f64) -> Vec<Held<f64>> {
    trials.iter().map(|trial| trial.with(seconds(trial))).collect()
}

#[cfg(test)]
mod tests {
    use redline_kernels::Format;
    use redline_kernels::op::kv::KvFormat;

    use super::*;
    use crate::lanes::tests::info;

    #[test]
    fn a_metric_is_a_text() {
        let metrics: Vec<MetricSpec> =
            MetricSpec::all("+rate tokens/s|-wait ms|#items items|error_*").collect();
        let told = metrics.iter().map(|it| (it.name, it.unit, it.direction, it.portable)).collect::<Vec<_>>();
        let higher = ("rate", "tokens/s", Direction::Higher, false);
        let counted = ("items", "items", Direction::Info, true);
        assert_eq!(
            told,
            [
                higher,
                ("wait", "ms", Direction::Lower, false),
                counted,
                ("error_*", "", Direction::Info, false)
            ]
        );
        assert!(metrics[3].names("error_429") && !metrics[3].names("errors") && metrics[0].names("rate"));
    }

    #[test]
    fn a_row_of_a_model_names_both_of_its_formats() {
        let info = ModelInfo {
            format: Format::parse("w8").unwrap(),
            kv_format: KvFormat::Bf16,
            threads: 3,
            kernel_path: "kernels".to_owned(),
            ..info()
        };
        let row = Row::of_model("case", &info);
        let params = ["model", "threads", "format", "kv_format"].map(|name| row.param_text(name).unwrap());
        assert_eq!(params, ["a", "3", "w8", "bf16"]);
        assert_eq!((row.case.as_str(), row.checked), ("case", true));
        assert_eq!(row.kernel_path.as_deref(), Some("kernels"));
    }
}
