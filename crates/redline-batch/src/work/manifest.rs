//! The manifest: what the results are, and of what.

use std::path::Path;

use redline_engine::Cancel;
use redline_weights::Sha256Digest;
use serde::Serialize;

use super::plan::{Fixed, Plan, json};
use crate::error::BatchError;
use crate::kind::ERROR;
use crate::table::format_of;

/// The manifest. It is the same however the work was divided and whenever it was done.
#[derive(Serialize)]
struct Manifest<'a> {
    #[serde(flatten)]
    of: &'a Fixed,
    rows: u64,
    /// Rows with an error instead of an answer.
    failed: u64,
    results: Vec<ResultFile<'a>>,
    /// A digest over the names and digests of all results.
    sha256: Sha256Digest,
}

/// A file of results.
#[derive(Serialize)]
struct ResultFile<'a> {
    file: &'a str,
    rows: u64,
    failed: u64,
    sha256: Sha256Digest,
}

/// The manifest of results that are all there, and the number of rows without an answer.
pub(super) fn of(plan: &Plan, output: &Path, cancel: &Cancel) -> Result<(Vec<u8>, u64), BatchError> {
    let error = plan.fixed.column(ERROR);
    let mut results = Vec::new();
    for part in &plan.parts {
        if cancel.is_cancelled() {
            return Err(BatchError::Cancelled);
        }
        let path = output.join(&part.file);
        let sha256 = Sha256Digest::of_file(&path).map_err(|error| BatchError::table(&path, &error))?;
        let failed = format_of(&path).map_or(Ok(0), |format| format.count(&path, &error))?;
        results.push(ResultFile { file: &part.file, rows: part.rows(), failed, sha256 });
    }
    let digests = results.iter().map(|result| format!("{} {}", result.file, result.sha256));
    let failed = results.iter().map(|result| result.failed).sum();
    let manifest = Manifest {
        of: &plan.fixed,
        rows: results.iter().map(|result| result.rows).sum(),
        failed,
        sha256: Sha256Digest::of_texts(digests),
        results,
    };
    Ok((json(&manifest), failed))
}
