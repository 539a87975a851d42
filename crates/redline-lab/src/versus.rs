//! Two arms in one run: the order of their processes, and merging the processes of an arm.
//!
//! Each process is fresh, and so is its memory layout. The order A B B A cancels linear drift.

use serde::Deserialize;

use crate::result::Row;
use crate::stats::{NotFinite, Samples};
use crate::warmup::Warmup;

/// One of two arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The base.
    A,
    /// The arm that is judged.
    B,
}

impl Arm {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

/// The order of processes, an even number per arm: A B B A, A B B A, ...
pub fn schedule(processes: usize) -> impl Iterator<Item = Arm> {
    [Arm::A, Arm::B, Arm::B, Arm::A].into_iter().cycle().take(2 * processes)
}

/// Why the processes of an arm could not be merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// They measured different cases or metrics.
    #[error("{0}")]
    Cases(String),
    /// Equal flags gave different outputs, so the outputs are wrong.
    #[error("{0}")]
    Outputs(String),
    /// A measurement is not finite.
    #[error(transparent)]
    Samples(#[from] NotFinite),
}

/// The part of a process's document that is read.
#[derive(Deserialize)]
struct Printed {
    rows: Vec<Row>,
}

/// The rows in the document of `bench LANE --json`.
pub fn printed_rows(text: &str) -> serde_json::Result<Vec<Row>> {
    serde_json::from_str::<Printed>(text).map(|printed| printed.rows)
}

/// Merges the rows of an arm: each metric contains the samples of every process. A row is checked if it was checked in every
/// process. Its share of a limit is the median over the processes, its warm-up the longest.
pub fn merge(processes: &[Vec<Row>]) -> Result<Vec<Row>, MergeError> {
    let Some(first) = processes.first() else { return Ok(Vec::new()) };
    let cases = |rows: &[Row]| rows.iter().map(|row| row.case.clone()).collect::<Vec<_>>();
    if let Some(other) = processes.iter().find(|rows| cases(rows) != cases(first)) {
        let (first, other) = (cases(first).join(", "), cases(other).join(", "));
        return Err(MergeError::Cases(format!("one process measured {first}, another {other}")));
    }
    (0..first.len()).map(|at| merged(&processes.iter().map(|rows| &rows[at]).collect::<Vec<_>>())).collect()
}

fn merged(rows: &[&Row]) -> Result<Row, MergeError> {
    let first = rows[0];
    if let Some(other) = rows.iter().find(|row| row.digest != first.digest) {
        let digest = |row: &Row| row.digest.clone().unwrap_or_else(|| "none".to_owned());
        let (case, digests) = (&first.case, format!("{} and {}", digest(first), digest(other)));
        let fact =
            format!("outputs of `{case}` differ between processes with equal flags: digests {digests}");
        return Err(MergeError::Outputs(fact));
    }
    let shares: Vec<f64> = rows.iter().filter_map(|row| row.share_of_limit).collect();
    let shares = Samples::new("share", crate::Direction::Info, shares)?;
    let metrics = first.samples().map(|(name, _)| Ok((name.to_owned(), metric(name, rows)?)));
    Ok(Row {
        metrics: metrics.collect::<Result<_, MergeError>>()?,
        share_of_limit: shares.median(),
        checked: rows.iter().all(|row| row.checked),
        conditions: rows.iter().flat_map(|row| row.conditions.iter().cloned()).collect(),
        warmup: rows.iter().filter_map(|row| row.warmup).reduce(|a, b| Warmup {
            runs: a.runs.max(b.runs),
            seconds: a.seconds.max(b.seconds),
            converged: a.converged && b.converged,
        }),
        ..first.clone()
    })
}

fn metric(name: &str, rows: &[&Row]) -> Result<Samples, MergeError> {
    let metrics: Option<Vec<&Samples>> = rows.iter().map(|row| row.samples_of(name)).collect();
    let missing = || MergeError::Cases(format!("`{}`: a process did not measure {name}", rows[0].case));
    let metrics = metrics.ok_or_else(missing)?;
    let processes: Vec<Vec<f64>> = metrics.iter().map(|s| s.values().to_vec()).collect();
    Ok(Samples::by_process(metrics[0].unit(), metrics[0].direction(), &processes)?)
}
