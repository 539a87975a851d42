//! Bencher Metric Format: an object of benchmarks, each an object of measures with a value and its bounds.

use serde_json::{Value, json};

use super::{Exported, Result, error, names};
use crate::result::{Ordered, Row};
use crate::run::Run;
use crate::stats::{Direction, Samples};

pub(super) fn write(run: &Run) -> Result<Exported> {
    let named = names(&run.rows).into_iter().map(|name| format!("{}/{name}", run.lane));
    let benchmarks = named.zip(run.rows.iter().map(measures)).filter(|(_, measures)| !measures.is_empty());
    let document: Ordered<Ordered<Value>> = benchmarks.collect();
    if document.is_empty() {
        let fact = format!("no metric of lane `{}` has a better and a worse", run.lane);
        return Err(error(fact, "the format holds what can be tracked"));
    }
    Exported::json(&document, Vec::new())
}

/// The values of a row that can be tracked: the headline of each metric with a direction, and its interval.
fn measures(row: &Row) -> Ordered<Value> {
    let measure = |(name, samples): (&str, &Samples)| {
        let headline = samples.headline().filter(|_| samples.direction() != Direction::Info)?;
        let measure = match samples.interval() {
            Some(i) => json!({"value": headline, "lower_value": i.low, "upper_value": i.high}),
            None => json!({"value": headline}),
        };
        Some((name.to_owned(), measure))
    };
    row.samples().filter_map(measure).collect()
}
