//! What the formats with columns have in common.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;

use super::{Rows, TableColumn};
use crate::cell::{Cell, Column};

/// Rows with the new columns behind their own.
pub(super) fn with_answers(
    rows: &Rows,
    columns: &[Column],
    cells: &[Vec<Cell>],
) -> Result<RecordBatch, String> {
    let Rows::Columns(batch) = rows else { return Err("the rows are no columns".to_owned()) };
    let schema = batch.schema();
    let mut fields = schema.fields().to_vec();
    let mut arrays = batch.columns().to_vec();
    for (index, column) in columns.iter().enumerate() {
        fields.push(Arc::new(Field::new(&column.name, column.holds.arrow(), true)));
        arrays.push(column.holds.array(cells.iter().map(|row| row.get(index).unwrap_or(&Cell::None))));
    }
    let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
    RecordBatch::try_new(schema, arrays).map_err(|error| error.to_string())
}

/// The columns of a schema. Two of one name are an error.
pub(super) fn of_schema(schema: &Schema) -> Result<Vec<TableColumn>, String> {
    let columns: Vec<_> = schema.fields().iter().map(|field| super::value::column(field)).collect();
    for (index, column) in columns.iter().enumerate() {
        if columns[..index].iter().any(|other| other.name == column.name) {
            return Err(format!("two columns are called `{}`", column.name));
        }
    }
    Ok(columns)
}

/// The indices of the columns of these names; `None`: all.
pub(super) fn indices(columns: &[TableColumn], names: Option<&[String]>) -> Option<Vec<usize>> {
    let names = names?;
    let chosen = columns.iter().enumerate().filter(|(_, column)| names.contains(&column.name));
    Some(chosen.map(|(index, _)| index).collect())
}

/// A schema with the columns of these indices only; `None`: with all.
pub(super) fn projected(schema: &SchemaRef, indices: Option<&[usize]>) -> Result<SchemaRef, ArrowError> {
    indices.map_or_else(|| Ok(Arc::clone(schema)), |indices| schema.project(indices).map(Arc::new))
}

/// Cuts a stream of batches, whose first row has the number `first` in the stream of all rows, into ranges of rows. With `skips`, the
/// stream has all rows; otherwise only those of the ranges.
pub(super) struct Ranges<I> {
    batches: I,
    /// The columns of the batches.
    schema: SchemaRef,
    ranges: std::vec::IntoIter<Range<u64>>,
    /// What is left of the last batch.
    rest: Option<RecordBatch>,
    /// The number of the next row of the stream.
    next: u64,
    skips: bool,
}

impl<I: Iterator<Item = Result<RecordBatch, ArrowError>>> Ranges<I> {
    pub(super) fn new(batches: I, schema: SchemaRef, ranges: Vec<Range<u64>>, skips: bool) -> Self {
        Self { batches, schema, ranges: ranges.into_iter(), rest: None, next: 0, skips }
    }

    /// The next `rows` rows of the stream, in as many batches as they come.
    fn take(&mut self, mut rows: u64, mut each: impl FnMut(RecordBatch)) -> Result<(), String> {
        while rows > 0 {
            let batch = match self.rest.take() {
                Some(batch) => batch,
                None => match self.batches.next() {
                    Some(batch) => batch.map_err(|error| error.to_string())?,
                    None => return Err(format!("{rows} rows are missing")),
                },
            };
            let length = rows.min(batch.num_rows() as u64) as usize;
            if length < batch.num_rows() {
                self.rest = Some(batch.slice(length, batch.num_rows() - length));
            }
            self.next += length as u64;
            rows -= length as u64;
            each(batch.slice(0, length));
        }
        Ok(())
    }

    fn range(&mut self, range: Range<u64>) -> Result<Rows, String> {
        if self.skips {
            self.take(range.start.saturating_sub(self.next), drop)?;
        }
        let mut batches = Vec::new();
        self.take(range.end - range.start, |batch| batches.push(batch))?;
        concat_batches(&self.schema, &batches).map(Rows::Columns).map_err(|error| error.to_string())
    }
}

impl<I: Iterator<Item = Result<RecordBatch, ArrowError>>> Iterator for Ranges<I> {
    type Item = Result<Rows, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let range = self.ranges.next()?;
        Some(self.range(range))
    }
}
