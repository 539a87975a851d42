//! Adds to a row the limits of the machine that held while it was measured.

use redline_kernels::Arithmetic;

use super::Row;
use crate::roofline::{Ceilings, Held, Limits, Work};
use crate::stats::{Direction, NotFinite, Samples};

/// Adds the work and its limits to a row.
pub fn placed(row: Row, arithmetic: Arithmetic, work: Work, timed: &[Held<f64>]) -> Result<Row, NotFinite> {
    Ok(Row { work: Some(work), ceilings: Ceilings::of(arithmetic, timed)?, ..row })
}

/// Adds to a row the limit that bounds its work in most samples, its readings, the share that was reached, and the values of
/// [`placed`]. `timed` holds the seconds of each sample.
pub fn held(row: Row, arithmetic: Arithmetic, work: Work, timed: &[Held<f64>]) -> Result<Row, NotFinite> {
    let reading = timed.iter().filter(|t| t.limits.reading_bounds(work)).count() * 2 >= timed.len();
    let attention = timed.iter().filter(|t| t.limits.attention_bounds(work)).count() * 2 > timed.len();
    let (name, unit, limit): (String, &str, fn(&Limits) -> f64) = if reading {
        ("read_bandwidth".to_owned(), "GB/s", |limits| limits.bandwidth)
    } else if attention {
        ("attention_peak".to_owned(), "GOP/s", |limits| limits.attention_peak)
    } else {
        (format!("{}_peak", arithmetic.name()), "GOP/s", |limits| limits.peak)
    };
    let share = timed.iter().map(|t| t.limits.seconds(work) / t.value).collect();
    let share = Samples::new("share", Direction::Info, share)?;
    let limits =
        Samples::new(unit, Direction::Info, timed.iter().map(|t| limit(&t.limits) * 1e-9).collect())?;
    let conditions = timed.iter().map(|t| t.condition).collect();
    let row = row.limit(name, share.median()).conditions(conditions);
    placed(row.metric("share", share).metric("limit", limits), arithmetic, work, timed)
}
