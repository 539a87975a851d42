//! Apache Arrow: IPC files (also called Feather), and streams.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, SchemaRef};

use super::columns::{Ranges, indices, of_schema, projected, with_answers};
use super::lengths::{self, MAGIC};
use super::{Parts, Rows, Table, TableColumn, TableFormat};
use crate::cell::{Cell, Column, present};
use crate::error::BatchError;

pub(super) struct Arrow;

impl TableFormat for Arrow {
    fn name(&self) -> &'static str {
        "Arrow"
    }

    fn endings(&self) -> &'static [&'static str] {
        &["arrow", "feather", "arrows", "ipc"]
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Table>, BatchError> {
        table(Place { path: path.to_owned(), memory: None })
    }

    fn results(&self, rows: &Rows, columns: &[Column], cells: &[Vec<Cell>]) -> Result<Vec<u8>, String> {
        let batch = with_answers(rows, columns, cells)?;
        let failed = |error: ArrowError| error.to_string();
        let mut writer = FileWriter::try_new(Vec::new(), &batch.schema()).map_err(failed)?;
        writer.write(&batch).map_err(failed)?;
        writer.into_inner().map_err(failed)
    }

    fn count(&self, path: &Path, column: &str) -> Result<u64, BatchError> {
        let place = Place { path: path.to_owned(), memory: None };
        let (schema, _) = place.open(None)?;
        let index = schema.index_of(column).map_err(|error| BatchError::table(path, &error))?;
        let (_, batches) = place.open(Some(vec![index]))?;
        let mut count = 0;
        for batch in batches {
            count += present(batch.map_err(|error| BatchError::table(path, &error))?.column(0).as_ref());
        }
        Ok(count)
    }
}

type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

/// A file, or bytes.
struct Place {
    path: PathBuf,
    memory: Option<Bytes>,
}

/// Bytes that are shared.
#[derive(Clone)]
struct Bytes(Arc<Vec<u8>>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A source of bytes.
trait Source: Read + Seek {}

impl<S: Read + Seek> Source for S {}

impl Place {
    fn bytes(&self) -> io::Result<Box<dyn Source>> {
        Ok(match &self.memory {
            Some(memory) => Box::new(Cursor::new(memory.clone())),
            None => Box::new(BufReader::new(File::open(&self.path)?)),
        })
    }

    /// Opens a file or a stream; of all columns, or of those with these indices.
    fn open(&self, columns: Option<Vec<usize>>) -> Result<(SchemaRef, Batches), BatchError> {
        let failed = |error: ArrowError| BatchError::table(&self.path, &error);
        let mut bytes = self.bytes().map_err(BatchError::file("open the table", &self.path))?;
        if is_file(bytes.as_mut()).map_err(BatchError::file("read the table", &self.path))? {
            let reader = FileReader::try_new(bytes, columns).map_err(failed)?;
            Ok((reader.schema(), Box::new(reader)))
        } else {
            let reader = StreamReader::try_new(bytes, columns).map_err(failed)?;
            Ok((reader.schema(), Box::new(reader)))
        }
    }
}

/// Whether these bytes are a file, and not a stream.
fn is_file(bytes: &mut dyn Source) -> io::Result<bool> {
    let mut begin = Vec::with_capacity(MAGIC.len());
    bytes.take(MAGIC.len() as u64).read_to_end(&mut begin)?;
    bytes.rewind()?;
    Ok(begin == MAGIC)
}

/// A table in memory; `path` is a name for messages.
pub(super) fn in_memory(path: &Path, bytes: Vec<u8>) -> Result<Box<dyn Table>, BatchError> {
    table(Place { path: path.to_owned(), memory: Some(Bytes(Arc::new(bytes))) })
}

fn table(place: Place) -> Result<Box<dyn Table>, BatchError> {
    let mut bytes = place.bytes().map_err(BatchError::file("open the table", &place.path))?;
    let is_file = is_file(bytes.as_mut()).map_err(BatchError::file("read the table", &place.path))?;
    lengths::check(&mut bytes, is_file).map_err(|reason| BatchError::table(&place.path, &reason))?;
    let (schema, batches) = place.open(None)?;
    let columns = of_schema(&schema).map_err(|reason| BatchError::table(&place.path, &reason))?;
    let mut rows = 0;
    for batch in batches {
        rows += batch.map_err(|error| BatchError::table(&place.path, &error))?.num_rows() as u64;
    }
    Ok(Box::new(ArrowTable { place, schema, columns, groups: [rows] }))
}

/// An open file. All of its batches are one group: a stream cannot be entered in its middle.
struct ArrowTable {
    place: Place,
    schema: SchemaRef,
    columns: Vec<TableColumn>,
    groups: [u64; 1],
}

impl Table for ArrowTable {
    fn groups(&self) -> &[u64] {
        &self.groups
    }

    fn columns(&self) -> &[TableColumn] {
        &self.columns
    }

    fn read(
        &self,
        _: usize,
        ranges: Vec<Range<u64>>,
        columns: Option<&[String]>,
    ) -> Result<Parts, BatchError> {
        let chosen = indices(&self.columns, columns);
        let schema = projected(&self.schema, chosen.as_deref())
            .map_err(|error| BatchError::table(&self.place.path, &error))?;
        let (_, batches) = self.place.open(chosen)?;
        let path = self.place.path.clone();
        let rows = Ranges::new(batches, schema, ranges, true);
        Ok(Box::new(rows.map(move |rows| rows.map_err(|reason| BatchError::table(&path, &reason)))))
    }
}
