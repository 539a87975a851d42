//! Tables: requests that are made of rows.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use redline_batch::{BatchError, BatchPlaces, BatchProgress, BatchSummary, Json, Shard, TableRequest};
use redline_engine::EngineError;
use redline_weights::Disk;
use serde::{Deserialize, Serialize};

use crate::engine::Loaded;
use crate::error::{Class, Fault};
use crate::request::{parse, to_python};
use crate::ticket::Ticket;

/// How many rows are done between two reports.
const STEP: u64 = 64;

/// What is asked of rows, and for tables in files, where these are.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    kind: String,
    columns: BTreeMap<String, String>,
    values: BTreeMap<String, Json>,
    keep: Option<Vec<String>>,
    prefix: String,
    #[serde(default)]
    inputs: Vec<PathBuf>,
    #[serde(default)]
    output: PathBuf,
    shard: Option<String>,
    rows_per_file: Option<usize>,
}

impl Line {
    fn request(&self) -> TableRequest {
        let request = TableRequest::new(&self.kind);
        TableRequest {
            columns: self.columns.clone(),
            values: self.values.clone(),
            keep: self.keep.clone(),
            prefix: self.prefix.clone(),
            rows_per_file: self.rows_per_file.unwrap_or(request.rows_per_file),
            ..request
        }
    }
}

/// How far the work is.
#[derive(Serialize)]
struct Progress {
    rows: u64,
    before: u64,
    all: u64,
    failed: u64,
}

/// What was done.
#[derive(Serialize)]
struct Summary {
    rows: u64,
    answered: u64,
    failed: u64,
    files_done: usize,
    files: usize,
    manifest: Option<String>,
    all_failed: Option<u64>,
}

/// Answers the rows of tables in files.
pub(crate) fn files(loaded: Arc<Loaded>, json: &str) -> Result<Ticket, Fault> {
    let line: Line = parse(json, Class::Request)?;
    let shard = line.shard.as_deref().map_or(Ok(Shard::ALL), str::parse);
    let shard =
        shard.map_err(|error| Fault::new(Class::Request, format!("`shard`: {error}"), "such as \"1/4\""))?;
    let places = BatchPlaces {
        inputs: line.inputs.clone(),
        output: line.output.clone(),
        shard,
        disk: Disk::default(),
    };
    Ticket::compute(loaded, move |loaded, cancel, report| {
        let mut watch = |at| {
            if let BatchProgress::Answering { rows, before, all, failed } = at
                && (rows == before || rows == all || rows % STEP == 0)
            {
                report.show(move |py| to_python(py, &Progress { rows, before, all, failed }));
            }
        };
        let done = redline_batch::run(&line.request(), &places, loaded.chat_model(), &mut watch, cancel)?;
        let BatchSummary { rows, answered, failed, done, files, manifest } = done;
        let all_failed = manifest.as_ref().map(|(_, failed)| *failed);
        let manifest = manifest.map(|(path, _)| path.display().to_string());
        let summary = Summary { rows, answered, failed, files_done: done, files, manifest, all_failed };
        Ok(Box::new(move |py: Python<'_>, _: &Loaded| to_python(py, &summary)))
    })
}

/// Answers the rows of a table in memory, an Arrow stream. The answer is an Arrow file.
pub(crate) fn rows(loaded: Arc<Loaded>, json: &str, table: Vec<u8>) -> Result<Ticket, Fault> {
    let line: Line = parse(json, Class::Request)?;
    Ticket::compute(loaded, move |loaded, cancel, _| {
        let answered = redline_batch::answer_rows(&line.request(), table, loaded.chat_model(), cancel)?;
        Ok(Box::new(move |py: Python<'_>, _: &Loaded| Ok(PyBytes::new(py, &answered).into_any().unbind())))
    })
}

impl From<BatchError> for Fault {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Request(error) => (*error).into(),
            BatchError::Cancelled => EngineError::Cancelled.into(),
            error => {
                let class = if error.is_usage() { Class::Request } else { Class::Other };
                Self::advised(class, &error, error.hint())
            }
        }
    }
}
