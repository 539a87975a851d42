//! Apache Parquet.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ::parquet::arrow::ProjectionMask;
use ::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use ::parquet::arrow::arrow_writer::ArrowWriter;
use ::parquet::basic::Compression;
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;

use super::columns::{Ranges, indices, of_schema, projected, with_answers};
use super::{Parts, Rows, Table, TableColumn, TableFormat};
use crate::cell::{Cell, Column, present};
use crate::error::BatchError;

/// Rows that are decoded at a time.
const BATCH: usize = 1024;

pub(super) struct Parquet;

impl TableFormat for Parquet {
    fn name(&self) -> &'static str {
        "Parquet"
    }

    fn endings(&self) -> &'static [&'static str] {
        &["parquet", "pq"]
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Table>, BatchError> {
        let file = File::open(path).map_err(BatchError::file("open the table", path))?;
        let failed = |error: ParquetError| BatchError::table(path, &error);
        let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).map_err(failed)?;
        let columns = of_schema(metadata.schema()).map_err(|reason| BatchError::table(path, &reason))?;
        let groups = metadata.metadata().row_groups().iter();
        let groups = groups.map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).collect();
        Ok(Box::new(ParquetTable { path: path.to_owned(), metadata, columns, groups }))
    }

    fn results(&self, rows: &Rows, columns: &[Column], cells: &[Vec<Cell>]) -> Result<Vec<u8>, String> {
        let batch = with_answers(rows, columns, cells)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by("redline".to_owned())
            .build();
        let failed = |error: ParquetError| error.to_string();
        let mut writer =
            ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).map_err(failed)?;
        writer.write(&batch).map_err(failed)?;
        writer.into_inner().map_err(failed)
    }

    fn count(&self, path: &Path, column: &str) -> Result<u64, BatchError> {
        let file = File::open(path).map_err(BatchError::file("open the results", path))?;
        let failed = |error: ParquetError| BatchError::table(path, &error);
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(failed)?;
        let index = builder.schema().index_of(column).map_err(|error| BatchError::table(path, &error))?;
        let mask = ProjectionMask::roots(builder.parquet_schema(), [index]);
        let mut count = 0;
        for batch in builder.with_projection(mask).with_batch_size(BATCH).build().map_err(failed)? {
            let batch = batch.map_err(|error| BatchError::table(path, &error))?;
            count += batch.column_by_name(column).map_or(0, |values| present(values.as_ref()));
        }
        Ok(count)
    }
}

/// An open file.
struct ParquetTable {
    path: PathBuf,
    metadata: ArrowReaderMetadata,
    columns: Vec<TableColumn>,
    groups: Vec<u64>,
}

impl Table for ParquetTable {
    fn groups(&self) -> &[u64] {
        &self.groups
    }

    fn columns(&self) -> &[TableColumn] {
        &self.columns
    }

    fn read(
        &self,
        group: usize,
        ranges: Vec<Range<u64>>,
        columns: Option<&[String]>,
    ) -> Result<Parts, BatchError> {
        // Not kept open: there may be thousands of files.
        let file = File::open(&self.path).map_err(BatchError::file("open the table", &self.path))?;
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone());
        let chosen = indices(&self.columns, columns);
        let schema = projected(self.metadata.schema(), chosen.as_deref())
            .map_err(|error| BatchError::table(&self.path, &error))?;
        if let Some(indices) = chosen {
            let mask = ProjectionMask::roots(builder.parquet_schema(), indices);
            builder = builder.with_projection(mask);
        }
        let path = self.path.clone();
        let reader = builder
            .with_row_groups(vec![group])
            .with_row_selection(selection(&ranges))
            .with_batch_size(BATCH)
            .build()
            .map_err(|error| BatchError::table(&path, &error))?;
        let rows = Ranges::new(reader, schema, ranges, false);
        Ok(Box::new(rows.map(move |rows| rows.map_err(|reason| BatchError::table(&path, &reason)))))
    }
}

/// The rows of the ranges.
fn selection(ranges: &[Range<u64>]) -> RowSelection {
    let (mut selectors, mut next) = (Vec::new(), 0);
    for range in ranges {
        selectors.push(RowSelector::skip((range.start - next) as usize));
        selectors.push(RowSelector::select((range.end - range.start) as usize));
        next = range.end;
    }
    selectors.into()
}
