//! Tables in files: one file for each format, and a line in [`FORMATS`].

mod arrow;
mod columns;
mod csv;
mod jsonl;
mod lengths;
mod parquet;
mod value;

use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;

use self::jsonl::Line;
use crate::cell::{Cell, Column};
use crate::error::BatchError;
use crate::json::Json;

/// All formats.
const FORMATS: &[&dyn TableFormat] = &[&parquet::Parquet, &arrow::Arrow, &jsonl::JsonLines, &csv::Csv];

/// The formats, each with the endings of the names of its files.
pub fn formats() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    FORMATS.iter().map(|format| (format.name(), format.endings()))
}

/// The format of a file of that name.
pub(crate) fn format_of(path: &Path) -> Option<&'static dyn TableFormat> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    FORMATS.iter().copied().find(|format| format.endings().contains(&ending.as_str()))
}

/// A format of tables.
pub(crate) trait TableFormat: Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// The endings of the names of its files; the first is that of results.
    fn endings(&self) -> &'static [&'static str];

    /// Opens a table, and finds out how many rows it has.
    fn open(&self, path: &Path) -> Result<Box<dyn Table>, BatchError>;

    /// A file of results: rows of an input with the values of new columns, one list for each row.
    fn results(&self, rows: &Rows, columns: &[Column], cells: &[Vec<Cell>]) -> Result<Vec<u8>, String>;

    /// Number of rows of a file of results whose column of that name has a value.
    fn count(&self, path: &Path, column: &str) -> Result<u64, BatchError>;
}

/// An open table.
pub(crate) trait Table {
    /// Number of rows of each of its groups, which are read independently.
    fn groups(&self) -> &[u64];

    /// Its columns; for a format whose rows are of any shape, those that some row has.
    fn columns(&self) -> &[TableColumn];

    /// Reads these ranges of the rows of a group, ascending and apart; of all columns, or of those named.
    fn read(
        &self,
        group: usize,
        ranges: Vec<Range<u64>>,
        columns: Option<&[String]>,
    ) -> Result<Parts, BatchError>;
}

/// Rows of several ranges, one after the other.
pub(crate) type Parts = Box<dyn Iterator<Item = Result<Rows, BatchError>>>;

/// Does what reads a file. Readers of damaged files may panic, which is an error like others.
pub(crate) fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, BatchError>) -> Result<T, BatchError> {
    panic::catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(BatchError::table(path, &"the file is damaged: its reader gave up")))
}

/// A table with its format and its place.
pub(crate) struct OpenTable {
    /// The file, or a name for messages.
    pub(crate) path: PathBuf,
    pub(crate) format: &'static dyn TableFormat,
    pub(crate) table: Box<dyn Table>,
}

impl OpenTable {
    /// An Arrow file or stream in memory.
    pub(crate) fn in_memory(bytes: Vec<u8>) -> Result<Self, BatchError> {
        let path = PathBuf::from("the table");
        let table = guarded(&path, || arrow::in_memory(&path, bytes))?;
        Ok(Self { table, format: &arrow::Arrow, path })
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableColumn {
    pub(crate) name: String,
    /// What it holds, for messages.
    pub(crate) holds: String,
    pub(crate) shape: Shape,
}

/// What values of requests can be made of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Text,
    List,
    /// Numbers, truth values and structures.
    Other,
    /// Nothing is made of it, such as dates and decimal numbers.
    Unreadable,
    /// It differs from row to row.
    Any,
}

/// Rows that were read.
pub(crate) enum Rows {
    Columns(RecordBatch),
    Lines(Vec<Line>),
}

impl Rows {
    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Columns(batch) => batch.num_rows(),
            Self::Lines(lines) => lines.len(),
        }
    }

    /// A value as JSON; null if it is missing.
    pub(crate) fn value(&self, row: usize, column: &str) -> Result<Json, String> {
        match self {
            Self::Columns(batch) => match batch.column_by_name(column) {
                Some(array) => value::json(array.as_ref(), row),
                None => Err("is not there".to_owned()),
            },
            Self::Lines(lines) => lines[row].value(column),
        }
    }

    /// Whether some row has a column of this name.
    pub(crate) fn has(&self, column: &str) -> bool {
        match self {
            Self::Columns(batch) => batch.column_by_name(column).is_some(),
            Self::Lines(lines) => lines.iter().any(|line| line.has(column)),
        }
    }

    /// The rows with these columns only.
    pub(crate) fn keeping(self, columns: &[String]) -> Result<Self, String> {
        match self {
            Self::Columns(batch) => {
                let indices = columns.iter().map(|name| batch.schema().index_of(name));
                let indices = indices.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
                batch.project(&indices).map(Self::Columns).map_err(|error| error.to_string())
            }
            Self::Lines(lines) => {
                Ok(Self::Lines(lines.into_iter().map(|line| line.keeping(columns)).collect()))
            }
        }
    }
}

#[cfg(test)]
mod tests;
