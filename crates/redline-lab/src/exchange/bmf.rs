//! Bencher Metric Format: an object of benchmarks, each an object of measures with a value and its bounds.

use serde_json::{Value, json};

use super::{Exported, Format, NotExported, names};
use crate::result::{Ordered, Row};
use crate::run::Run;
use crate::stats::Direction;

/// The format.
pub(super) const FORMAT: Format =
    Format { name: "bmf", about: "Bencher Metric Format: headlines with their intervals", write, read: None };

fn write(run: &Run) -> Result<Exported, NotExported> {
    let mut seen: Ordered<Ordered<Value>> = Ordered::default();
    for (name, row) in names(&run.rows).into_iter().zip(&run.rows) {
        let measures = measures(row);
        if !measures.is_empty() {
            seen.insert(format!("{}/{name}", run.lane), measures);
        }
    }
    if seen.is_empty() {
        return Err(NotExported {
            fact: format!("no metric of lane `{}` has a better and a worse", run.lane),
            hint: "the format holds what can be tracked".to_owned(),
        });
    }
    let text = serde_json::to_string_pretty(&seen);
    let text = text.map_err(|e| NotExported { fact: e.to_string(), hint: "is the run whole?".to_owned() })?;
    Ok(Exported { text: text + "\n", notes: Vec::new() })
}

/// The values of a row that can be tracked: the headline of each metric with a direction, and its interval.
fn measures(row: &Row) -> Ordered<Value> {
    let mut measures = Ordered::default();
    for (name, metric) in row.metrics.iter() {
        let s = metric.samples();
        let Some(headline) = s.headline().filter(|_| s.direction() != Direction::Info) else { continue };
        let mut measure = json!({"value": headline});
        if let Some(interval) = s.interval() {
            measure["lower_value"] = interval.low.into();
            measure["upper_value"] = interval.high.into();
        }
        measures.insert(name, measure);
    }
    measures
}
