//! JSON Lines: one object per line.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::{Parts, Rows, Shape, Table, TableColumn, TableFormat};
use crate::cell::{Cell, Column};
use crate::error::BatchError;
use crate::json::Json;

/// Maximum length of a line in bytes.
pub(super) const LONGEST: u64 = 64 << 20;
/// The UTF-8 byte order mark, which some programs write at the start of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

pub(super) struct JsonLines;

impl TableFormat for JsonLines {
    fn name(&self) -> &'static str {
        "JSON Lines"
    }

    fn endings(&self) -> &'static [&'static str] {
        &["jsonl", "ndjson"]
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Table>, BatchError> {
        let (mut rows, mut columns, mut seen) = (0, Vec::new(), HashSet::new());
        for line in Lines::open(path)? {
            if let Line::Object(fields) = Line::parse(&line?) {
                for (name, _) in fields {
                    if seen.insert(name.clone()) {
                        columns.push(name);
                    }
                }
            }
            rows += 1;
        }
        let column = |name| TableColumn { name, holds: "JSON".to_owned(), shape: Shape::Any };
        let columns = columns.into_iter().map(column).collect();
        Ok(Box::new(LinesTable { path: path.to_owned(), columns, rows, open: Lines::reading }))
    }

    fn results(&self, rows: &Rows, columns: &[Column], cells: &[Vec<Cell>]) -> Result<Vec<u8>, String> {
        let Rows::Lines(lines) = rows else { return Err("the rows are no lines".to_owned()) };
        let mut text = String::new();
        for (line, cells) in lines.iter().zip(cells) {
            let answers = columns.iter().enumerate().map(|(index, column)| {
                let cell = cells.get(index).unwrap_or(&Cell::None);
                let value = match cell {
                    Cell::None => Ok("null".to_owned()),
                    cell => serde_json::to_string(cell),
                };
                value.map(|value| (column.name.as_str(), value)).map_err(|error| error.to_string())
            });
            let answers = answers.collect::<Result<Vec<_>, _>>()?;
            let own = line.fields().iter().map(|(name, value)| (name.as_str(), value.get()));
            let all = own.chain(answers.iter().map(|(name, value)| (*name, value.as_str())));
            for (index, (name, value)) in all.enumerate() {
                text.push(if index == 0 { '{' } else { ',' });
                text.push_str(&Value::from(name).to_string());
                text.push(':');
                text.push_str(value);
            }
            text.push_str("}\n");
        }
        Ok(text.into_bytes())
    }

    fn count(&self, path: &Path, column: &str) -> Result<u64, BatchError> {
        let mut count = 0;
        for line in Lines::open(path)? {
            let value = Line::parse(&line?).value(column);
            count += u64::from(value.is_ok_and(|value| value != Json::Null));
        }
        Ok(count)
    }
}

/// Reads the next row of a file, whose content is needed or not; `None` at the end.
pub(super) type NextLine = Box<dyn FnMut(bool) -> Result<Option<Line>, BatchError>>;

/// A file of lines that was read once.
pub(super) struct LinesTable {
    pub(super) path: PathBuf,
    pub(super) columns: Vec<TableColumn>,
    /// Number of rows.
    pub(super) rows: u64,
    /// Opens the file again.
    pub(super) open: fn(&Path) -> Result<NextLine, BatchError>,
}

impl Table for LinesTable {
    fn groups(&self) -> &[u64] {
        std::slice::from_ref(&self.rows)
    }

    fn columns(&self) -> &[TableColumn] {
        &self.columns
    }

    fn read(&self, _: usize, ranges: Vec<Range<u64>>, _: Option<&[String]>) -> Result<Parts, BatchError> {
        let (path, mut next_line, mut next) = (self.path.clone(), (self.open)(&self.path)?, 0);
        Ok(Box::new(ranges.into_iter().map(move |range| {
            let mut rows = Vec::with_capacity((range.end - range.start) as usize);
            while next < range.end {
                let needed = next >= range.start;
                let Some(line) = next_line(needed)? else {
                    return Err(BatchError::table(&path, &format!("{} rows are missing", range.end - next)));
                };
                rows.extend(needed.then_some(line));
                next += 1;
            }
            Ok(Rows::Lines(rows))
        })))
    }
}

/// A line.
pub(crate) enum Line {
    /// Its keys in their order, with the texts of their values.
    Object(Vec<(String, Box<RawValue>)>),
    /// What is wrong with it; its keys have no value.
    Damaged { reason: String, fields: Vec<(String, Box<RawValue>)> },
}

impl Line {
    fn parse(line: &[u8]) -> Self {
        match serde_json::from_slice::<Fields>(line) {
            Ok(Fields(fields)) => Self::Object(fields),
            Err(error) => {
                let reason = error.to_string().replace(" at line 1 column ", " at column ");
                Self::damaged(format!("the line is no JSON object: {reason}"), &[])
            }
        }
    }

    /// A row of these columns that cannot be read.
    pub(super) fn damaged(reason: String, columns: &[String]) -> Self {
        let fields = columns.iter().map(|name| (name.clone(), RawValue::NULL.to_owned())).collect();
        Self::Damaged { reason, fields }
    }

    /// A row of texts.
    pub(super) fn of_texts<'a>(columns: &[String], texts: impl IntoIterator<Item = &'a str>) -> Self {
        let value = |(name, text): (&String, &str)| Ok((name.clone(), to_raw_value(text)?));
        let fields = columns.iter().zip(texts).map(value).collect::<serde_json::Result<_>>();
        fields.map_or_else(|error| Self::damaged(error.to_string(), columns), Self::Object)
    }

    pub(super) fn fields(&self) -> &[(String, Box<RawValue>)] {
        match self {
            Self::Object(fields) | Self::Damaged { fields, .. } => fields,
        }
    }

    pub(super) fn value(&self, column: &str) -> Result<Json, String> {
        if let Self::Damaged { reason, .. } = self {
            return Err(reason.clone());
        }
        match self.fields().iter().find(|(name, _)| name == column) {
            Some((_, value)) => serde_json::from_str(value.get()).map_err(|error| error.to_string()),
            None => Ok(Json::Null),
        }
    }

    pub(super) fn has(&self, column: &str) -> bool {
        self.fields().iter().any(|(name, _)| name == column)
    }

    pub(super) fn keeping(self, columns: &[String]) -> Self {
        let kept = |fields: Vec<(String, _)>| {
            fields.into_iter().filter(|(name, _)| columns.contains(name)).collect::<Vec<_>>()
        };
        match self {
            Self::Object(fields) => Self::Object(kept(fields)),
            Self::Damaged { reason, fields } => Self::Damaged { reason, fields: kept(fields) },
        }
    }
}

/// The keys of an object in their order.
struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let (mut fields, mut seen) = (Vec::new(), HashSet::new());
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if !seen.insert(name.clone()) {
                        return Err(A::Error::custom(format!("`{name}` occurs twice")));
                    }
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }
        from.deserialize_map(Object)
    }
}

/// The lines of a file that are not blank.
struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    /// Number of lines that were read.
    number: u64,
}

impl Lines {
    fn open(path: &Path) -> Result<Self, BatchError> {
        let file = File::open(path).map_err(BatchError::file("open the table", path))?;
        Ok(Self { path: path.to_owned(), file: BufReader::with_capacity(1 << 16, file), number: 0 })
    }

    fn reading(path: &Path) -> Result<NextLine, BatchError> {
        let mut lines = Self::open(path)?;
        Ok(Box::new(move |needed| {
            let line = lines.next().transpose()?;
            Ok(line.map(|line| if needed { Line::parse(&line) } else { Line::Object(Vec::new()) }))
        }))
    }

    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let mut line = Vec::new();
            self.file.by_ref().take(LONGEST + 1).read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            if line.len() as u64 > LONGEST {
                let message = format!("line {} is longer than {} MiB", self.number, LONGEST >> 20);
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            if self.number == 1 && line.starts_with(BYTE_ORDER_MARK) {
                line.drain(..BYTE_ORDER_MARK.len());
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

impl Iterator for Lines {
    type Item = Result<Vec<u8>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.line().map_err(|error| BatchError::table(&self.path, &error)).transpose()
    }
}
