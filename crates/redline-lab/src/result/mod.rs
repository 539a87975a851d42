//! The result of a lane: the measurements, the machine, and the share of the limit that was reached.
//!
//! The names and the order of the JSON fields are stable; readers ignore unknown fields.

mod csv;
mod held;
mod remarks;

use serde::{Deserialize, Serialize};

pub(crate) use csv::Column;
pub(crate) use csv::line as csv_line;
pub use held::{held, placed};

use crate::conditions::Condition;
use crate::document;
use crate::roofline::{Ceilings, METHOD, Work};
use crate::stats::Samples;
use crate::warmup::Warmup;
use redline_system::table::{Table, or_blank, or_dash};
use redline_system::{Machine, number};

/// A map from names to values in insertion order, so that files keep the author's order.
pub type Ordered<V> = indexmap::IndexMap<String, V>;

/// A share of a limit above this means that the accounting is wrong, not that the limit was exceeded.
pub const MAX_SHARE: f64 = 1.15;

/// A JSON value without the quotes of a string.
pub(crate) fn text(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

/// What a lane measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneResult {
    /// The lane's name.
    pub lane: String,
    /// The machine it ran on.
    pub machine: Machine,
    /// One row per case.
    pub rows: Vec<Row>,
}

/// One case of a lane. When read, only `case` and `metrics` are required.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The case's name, unique in its lane.
    pub case: String,
    /// The parameters of the case.
    #[serde(default)]
    pub params: Ordered<serde_json::Value>,
    /// The measurements, by name.
    pub metrics: Ordered<Samples>,
    /// The limit that bounds this case, such as `read_bandwidth`.
    pub limit: Option<String>,
    /// The share of that limit that was reached; 1 is all of it.
    pub share_of_limit: Option<f64>,
    /// The minimum work of the case, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    /// The limits that apply: medians of their readings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceilings: Option<Ceilings>,
    /// The kernels that ran.
    pub kernel_path: Option<String>,
    /// Whether the outputs were verified before timing; missing means not verified.
    #[serde(default)]
    pub checked: bool,
    /// The digest of the outputs ([`redline_system::digest`]); equal outputs have equal digests.
    pub digest: Option<String>,
    /// The gates of its metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
    /// The arm, in a run with two arms: `a` is the base, `b` is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// The method by which the limit in metric `limit` was read. Readings of builds with the same method are
    /// comparable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_method: Option<String>,
    /// The warm-up before the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Warmup>,
    /// The conditions of the samples, by process, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Vec<Condition>>,
}

/// A bound that the headline of a metric must meet, or the run fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// The metric.
    pub metric: String,
    /// The minimum headline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<f64>,
    /// The maximum headline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
}

impl Row {
    /// An empty row for a case.
    pub fn new(case: impl Into<String>) -> Self {
        Self { case: case.into(), ..Self::default() }
    }

    /// Adds a parameter of the case.
    pub fn param(mut self, name: impl Into<String>, value: impl Into<serde_json::Value>) -> Self {
        self.params.insert(name.into(), value.into());
        self
    }

    /// A parameter as text; strings without quotes.
    pub(crate) fn param_text(&self, name: &str) -> Option<String> {
        self.params.get(name).map(text)
    }

    /// The samples of each metric, in order.
    pub fn samples(&self) -> impl Iterator<Item = (&str, &Samples)> {
        self.metrics.iter().map(|(name, samples)| (name.as_str(), samples))
    }

    /// The samples of a metric.
    pub fn samples_of(&self, metric: &str) -> Option<&Samples> {
        self.metrics.get(metric)
    }

    /// Adds a metric.
    pub fn metric(mut self, name: impl Into<String>, samples: Samples) -> Self {
        self.metrics.insert(name.into(), samples);
        self
    }

    /// Sets the limit and the share of it that was reached, if the limit is known.
    pub fn limit(self, name: impl Into<String>, share: Option<f64>) -> Self {
        let (limit, limit_method) = (Some(name.into()), Some(METHOD.to_owned()));
        Self { limit, limit_method, share_of_limit: share, ..self }
    }

    /// Sets the warm-up.
    pub fn warmed(self, warmup: Warmup) -> Self {
        Self { warmup: Some(warmup), ..self }
    }

    /// Sets the conditions of the samples of this process.
    pub fn conditions(self, conditions: Vec<Condition>) -> Self {
        Self { conditions: vec![conditions], ..self }
    }

    /// Sets the digest of the outputs.
    pub fn digest(self, digest: impl Into<String>) -> Self {
        Self { digest: Some(digest.into()), ..self }
    }

    /// Adds a minimum for a metric.
    pub fn gate(mut self, metric: impl Into<String>, least: f64) -> Self {
        self.gates.push(Gate { metric: metric.into(), least: Some(least), most: None });
        self
    }

    /// Adds a maximum for a metric.
    pub fn at_most(mut self, metric: impl Into<String>, most: f64) -> Self {
        self.gates.push(Gate { metric: metric.into(), least: None, most: Some(most) });
        self
    }

    /// Descriptions of the missed gates: the headline is below or above its bound, or missing.
    pub fn missed(&self) -> Vec<String> {
        let missed = |gate: &Gate| {
            let reached = self.samples_of(&gate.metric).and_then(Samples::headline);
            let within = |reached: f64| {
                gate.least.is_none_or(|least| reached >= least)
                    && gate.most.is_none_or(|most| reached <= most)
            };
            if reached.is_some_and(within) {
                return None;
            }
            let least = gate.least.map(|least| format!("at least {}", number::short(least)));
            let most = gate.most.map(|most| format!("at most {}", number::short(most)));
            let bounds: Vec<String> = least.into_iter().chain(most).collect();
            let reached = reached.map_or_else(|| "unknown".to_owned(), number::short);
            Some(format!("{} is {reached}, but {} is required", gate.metric, bounds.join(" and ")))
        };
        self.gates.iter().filter_map(missed).collect()
    }

    pub(crate) fn missed_text(&self) -> Option<String> {
        Some(self.missed().join("; ")).filter(|text| !text.is_empty())
    }

    /// The problem of the row, for a table.
    fn complaint(&self) -> Option<String> {
        let invalid = self.invalid().map(|why| format!("INVALID: {why}"));
        invalid.or_else(|| self.missed_text().map(|why| format!("MISSED: {why}")))
    }

    /// Why the row is invalid; `None` if it is valid.
    pub fn invalid(&self) -> Option<String> {
        if !self.checked {
            return Some("not checked".to_owned());
        }
        let share = self.share_of_limit.filter(|s| !(0.0..=MAX_SHARE).contains(s))?;
        Some(format!("{} of the limit", number::percent(share)))
    }
}

impl LaneResult {
    /// The document of `--json`, indented, with a line break at the end.
    pub fn json(&self) -> serde_json::Result<String> {
        document::json("redline.bench.result/1", self)
    }

    /// A printable table with one line per row and metric. Values of the whole row are in its first line. The median is
    /// that of the processes.
    pub fn table(&self) -> String {
        let mut table =
            Table::new("case|metric|>median|unit|>mean|>std|>var|>min|>max|>n|>of limit|limit|kernels|");
        for row in &self.rows {
            for (index, line) in row.lines().into_iter().enumerate() {
                let first = index == 0;
                let case = if first { row.case.clone() } else { String::new() };
                table.push([vec![case], line, if first { row.about() } else { Vec::new() }].concat());
            }
        }
        table.render()
    }

    /// A printable table with one line per row, and the row's problem. Columns are separated by `|`.
    pub fn table_of(&self, columns: &'static str) -> String {
        let columns = Column::all(&[columns]);
        let title =
            |column: &Column| format!("{}{}|", if column.cell.is_number() { ">" } else { "" }, column.name);
        let mut table = Table::new(&(columns.iter().map(title).collect::<String>() + ">var|"));
        for row in &self.rows {
            let mut line: Vec<String> = columns.iter().map(|column| column.cell.shown(row)).collect();
            line.push(row.headline().map(|(_, samples)| remarks::variation(samples)).unwrap_or_default());
            line.extend(row.complaint());
            table.push(line);
        }
        table.render()
    }
}

impl Row {
    /// The cells of each metric; one blank line if there is none.
    fn lines(&self) -> Vec<Vec<String>> {
        if self.metrics.is_empty() {
            return vec![vec![String::new(); 9]];
        }
        let line = |(name, s): (&str, &Samples)| {
            let texts = [name.to_owned(), or_dash(s.headline()), s.unit().to_owned()];
            let [mean, std, min, max] = [s.mean(), s.std(), s.min(), s.max()].map(or_dash);
            texts.into_iter().chain([mean, std, remarks::variation(s), min, max, s.n().to_string()]).collect()
        };
        self.samples().map(line).collect()
    }

    fn about(&self) -> Vec<String> {
        let share = self.share_of_limit.map(number::percent);
        [share, self.limit.clone(), self.kernel_path.clone(), self.complaint()].map(or_blank).to_vec()
    }
}
