//! Figures that are reported as too large, but fail nothing.

use crate::Row;
use redline_system::number;

/// A bound for a metric of a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warning {
    /// The metric.
    pub metric: &'static str,
    /// The largest value, or the largest increase.
    pub most: f64,
    /// What it is counted from.
    pub over: Over,
    /// The unit of the metric.
    pub unit: &'static str,
}

/// What a bound is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Nothing: the value itself has a bound.
    Zero,
    /// The value of the same case in the baseline; without one there is no bound.
    Baseline,
}

impl Warning {
    /// The fact about a row, if its headline exceeds the bound. `baseline` gives the value of this case and metric in the baseline.
    pub fn of(&self, row: &Row, baseline: impl Fn(&str, &str) -> Option<f64>) -> Option<String> {
        let Self { metric, most, over, unit } = *self;
        let value = row.samples_of(metric)?.headline()?;
        let base = match over {
            Over::Zero => 0.0,
            Over::Baseline => baseline(&row.case, metric)?,
        };
        if value - base <= most {
            return None;
        }
        let [value, most, base] = [value, most, base].map(number::short);
        let above = match over {
            Over::Zero => format!("above {most} {unit}"),
            Over::Baseline => format!("more than {most} {unit} above the {base} {unit} of the baseline"),
        };
        Some(format!("{}: {metric} is {value} {unit}, {above}", row.case))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, Samples};

    fn row(value: f64) -> Row {
        Row::new("a").metric("wait", Samples::new("ms", Direction::Info, vec![value]).unwrap())
    }

    #[test]
    fn a_value_above_its_bound_is_reported() {
        let warning = Warning { metric: "wait", most: 10.0, over: Over::Zero, unit: "ms" };
        assert_eq!(warning.of(&row(10.0), |_, _| None), None);
        let fact = warning.of(&row(10.5), |_, _| None).unwrap();
        assert_eq!(fact, "a: wait is 10.50 ms, above 10.00 ms");
        assert_eq!(Warning { metric: "other", ..warning }.of(&row(99.0), |_, _| None), None);
    }

    #[test]
    fn an_increase_over_the_baseline_is_reported() {
        let warning = Warning { metric: "wait", most: 10.0, over: Over::Baseline, unit: "ms" };
        let base = |case: &str, metric: &str| ((case, metric) == ("a", "wait")).then_some(5.0);
        assert_eq!(warning.of(&row(15.0), base), None);
        let fact = warning.of(&row(16.0), base).unwrap();
        assert_eq!(fact, "a: wait is 16.00 ms, more than 10.00 ms above the 5.000 ms of the baseline");
        assert_eq!(warning.of(&row(99.0), |_, _| None), None, "there is no baseline");
    }
}
