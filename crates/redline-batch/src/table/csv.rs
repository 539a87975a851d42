//! CSV with a header. All values are texts; those of answers that are none are JSON.

use std::cell::Cell as Counter;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use csv::StringRecord;

use super::jsonl::{LONGEST, Line, LinesTable, NextLine};
use super::{Rows, Shape, Table, TableColumn, TableFormat};
use crate::cell::{Cell, Column};
use crate::error::BatchError;

pub(super) struct Csv;

impl TableFormat for Csv {
    fn name(&self) -> &'static str {
        "CSV"
    }

    fn endings(&self) -> &'static [&'static str] {
        &["csv"]
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Table>, BatchError> {
        let mut records = Records::open(path)?;
        let columns = std::mem::take(&mut records.columns);
        let mut seen = HashSet::new();
        if let Some(twice) = columns.iter().find(|name| !seen.insert(*name)) {
            return Err(BatchError::table(path, &format!("the header has `{twice}` twice")));
        }
        let mut rows = 0;
        while records.next()?.is_some() {
            rows += 1;
        }
        let column = |name| TableColumn { name, holds: "text".to_owned(), shape: Shape::Text };
        let columns = columns.into_iter().map(column).collect();
        Ok(Box::new(LinesTable { path: path.to_owned(), columns, rows, open: Records::reading }))
    }

    fn results(&self, rows: &Rows, columns: &[Column], cells: &[Vec<Cell>]) -> Result<Vec<u8>, String> {
        let Rows::Lines(lines) = rows else { return Err("the rows are no lines".to_owned()) };
        let names = lines.first().map(Line::fields).unwrap_or_default().iter().map(|(name, _)| name.as_str());
        let header = names.chain(columns.iter().map(|column| column.name.as_str()));
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(header).map_err(|error| error.to_string())?;
        for (line, cells) in lines.iter().zip(cells) {
            let values = line.fields().iter().map(|(_, value)| Ok(value.get().to_owned()));
            let answers =
                (0..columns.len()).map(|at| serde_json::to_string(cells.get(at).unwrap_or(&Cell::None)));
            let record = values.chain(answers).map(|json| text(json?));
            let record = record.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
            writer.write_record(&record).map_err(|error| error.to_string())?;
        }
        writer.into_inner().map_err(|error| error.to_string())
    }

    fn count(&self, path: &Path, column: &str) -> Result<u64, BatchError> {
        let mut records = Records::open(path)?;
        let at = records.columns.iter().position(|name| name == column);
        let at = at.ok_or_else(|| BatchError::table(path, &format!("there is no column `{column}`")))?;
        let mut count = 0;
        while let Some(record) = records.next()? {
            count +=
                u64::from(record.is_ok_and(|record| record.get(at).is_some_and(|value| !value.is_empty())));
        }
        Ok(count)
    }
}

/// What stands for a value: a text without quotation marks, nothing for null, or else the JSON.
fn text(json: String) -> serde_json::Result<String> {
    match json.as_str() {
        "null" => Ok(String::new()),
        text if text.starts_with('"') => serde_json::from_str(text),
        _ => Ok(json),
    }
}

/// The records of a file after its header.
struct Records {
    path: PathBuf,
    reader: csv::Reader<Bounded>,
    columns: Vec<String>,
}

impl Records {
    fn open(path: &Path) -> Result<Self, BatchError> {
        let file = File::open(path).map_err(BatchError::file("open the table", path))?;
        let mut reader = csv::Reader::from_reader(Bounded { file, left: Counter::new(LONGEST) });
        let header = reader.headers().map_err(|error| BatchError::table(path, &error))?;
        let columns = header.iter().map(str::to_owned).collect();
        Ok(Self { path: path.to_owned(), reader, columns })
    }

    fn reading(path: &Path) -> Result<NextLine, BatchError> {
        let mut records = Self::open(path)?;
        Ok(Box::new(move |needed| {
            let line = records.next()?.map(|record| match record {
                Ok(record) if needed => Line::of_texts(&records.columns, &record),
                Ok(_) => Line::Object(Vec::new()),
                Err(reason) => Line::damaged(reason, &records.columns),
            });
            Ok(line)
        }))
    }

    /// The next record, or what is wrong with it; `None` at the end.
    fn next(&mut self) -> Result<Option<Result<StringRecord, String>>, BatchError> {
        self.reader.get_ref().left.set(LONGEST);
        let mut record = StringRecord::new();
        match self.reader.read_record(&mut record) {
            Ok(true) => Ok(Some(Ok(record))),
            Ok(false) => Ok(None),
            Err(error) if error.is_io_error() => Err(BatchError::table(&self.path, &error)),
            Err(error) => Ok(Some(Err(error.to_string()))),
        }
    }
}

/// A file of which so many bytes are read at most. A quotation mark that is not closed would make one record of all that follows.
struct Bounded {
    file: File,
    /// Bytes that may be read before the next record ends.
    left: Counter<u64>,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        let left = self.left.get().checked_sub(read as u64).ok_or_else(|| {
            let message =
                format!("a row is longer than {} MiB: is a quotation mark not closed?", LONGEST >> 20);
            io::Error::new(io::ErrorKind::InvalidData, message)
        })?;
        self.left.set(left);
        Ok(read)
    }
}
