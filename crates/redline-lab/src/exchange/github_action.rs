//! The input format of `github-action-benchmark`: a list of named values that all improve in the same direction.

use serde_json::json;

use super::{Exported, Format, NotExported, names};
use crate::number;
use crate::run::Run;
use crate::stats::Direction;

/// The tool `customBiggerIsBetter`.
pub(super) const BIGGER: Format = Format {
    name: "github-action",
    about: "github-action-benchmark, tool customBiggerIsBetter: rates",
    write: |run| write(run, Direction::Higher),
    read: None,
};

/// The tool `customSmallerIsBetter`.
pub(super) const SMALLER: Format = Format {
    name: "github-action-smaller",
    about: "github-action-benchmark, tool customSmallerIsBetter: times and sizes",
    write: |run| write(run, Direction::Lower),
    read: None,
};

fn write(run: &Run, direction: Direction) -> Result<Exported, NotExported> {
    let mut values = Vec::new();
    let mut others = 0;
    for (case, row) in names(&run.rows).into_iter().zip(&run.rows) {
        for (metric_name, metric) in row.metrics.iter() {
            let s = metric.samples();
            let Some(headline) = s.headline() else { continue };
            if s.direction() != direction {
                others += usize::from(s.direction() != Direction::Info);
                continue;
            }
            let mut value = json!({
                "name": format!("{}/{case}: {metric_name}", run.lane),
                "unit": s.unit(),
                "value": headline,
                "extra": format!("{}, {}", run.engine.one_line(), number::count(s.n(), "sample")),
            });
            if let Some(interval) = s.interval() {
                let reach = (interval.high - headline).max(headline - interval.low);
                value["range"] = format!("± {}", number::short(reach)).into();
            }
            values.push(value);
        }
    }
    let (tool, other) = match direction {
        Direction::Higher => ("customBiggerIsBetter", SMALLER.name),
        _ => ("customSmallerIsBetter", BIGGER.name),
    };
    if values.is_empty() {
        let fact = format!("no metric of lane `{}` fits the tool `{tool}`", run.lane);
        return Err(NotExported { fact, hint: format!("`--to {other}` writes the others") });
    }
    let mut notes = Vec::new();
    if others > 0 {
        notes.push(format!("{} left out: `--to {other}` writes them", number::count(others, "metric")));
    }
    Ok(Exported { text: format!("{:#}\n", serde_json::Value::from(values)), notes })
}
