//! The input format of `github-action-benchmark`: a list of named values that all improve in the same direction.

use serde_json::json;

use super::{Exported, Result, error, names};
use crate::number;
use crate::run::Run;
use crate::stats::Direction;

pub(super) const BIGGER: &str = "github-action";
pub(super) const SMALLER: &str = "github-action-smaller";

pub(super) fn bigger(run: &Run) -> Result<Exported> {
    write(run, Direction::Higher, "customBiggerIsBetter", SMALLER)
}

pub(super) fn smaller(run: &Run) -> Result<Exported> {
    write(run, Direction::Lower, "customSmallerIsBetter", BIGGER)
}

/// Writes the metrics of one direction for a `tool`; the format `other` writes those of the opposite direction.
fn write(run: &Run, direction: Direction, tool: &str, other: &str) -> Result<Exported> {
    let mut values = Vec::new();
    let mut others = 0;
    for (case, row) in names(&run.rows).into_iter().zip(&run.rows) {
        for (name, metric) in row.metrics.iter() {
            let samples = metric.samples();
            let Some(headline) = samples.headline() else { continue };
            if samples.direction() != direction {
                others += usize::from(samples.direction() != Direction::Info);
                continue;
            }
            let mut value = json!({
                "name": format!("{}/{case}: {name}", run.lane), "unit": samples.unit(), "value": headline,
                "extra": format!("{}, {}", run.engine.one_line(), number::count(samples.n(), "sample")),
            });
            if let Some(interval) = samples.interval() {
                let reach = (interval.high - headline).max(headline - interval.low);
                value["range"] = format!("± {}", number::short(reach)).into();
            }
            values.push(value);
        }
    }
    if values.is_empty() {
        let fact = format!("no metric of lane `{}` fits the tool `{tool}`", run.lane);
        return Err(error(fact, format!("`--to {other}` writes the others")));
    }
    let omitted = || format!("{} left out: `--to {other}` writes them", number::count(others, "metric"));
    Exported::json(&values, (others > 0).then(omitted).into_iter().collect())
}
