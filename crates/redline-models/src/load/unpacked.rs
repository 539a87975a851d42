//! Packs matrices while they are read from a checkpoint.

use std::ops::Range;

use redline_kernels::matrix::QuantisedRows;
use redline_kernels::{Exec, Format, Matrix};

use super::WeightSource;
use crate::ModelError;
use crate::spec::{LinearSpec, Orientation};
use crate::tensors::{Source, Tensors, check_magnitude, outlier_columns, pieces};

pub(super) struct Unpacked<'a> {
    pub(super) exec: Exec<'a>,
    pub(super) source: &'a Source<'a>,
    pub(super) outliers: f64,
}

impl WeightSource for Unpacked<'_> {
    fn matrix(&self, linear: &LinearSpec, format: Format) -> Result<Matrix, ModelError> {
        let fraction = if format.is_integer() { self.outliers } else { 0.0 };
        let columns = outlier_columns(self.source, linear, fraction)?;
        let mut matrix = Matrix::with_outliers(format, linear.outputs(), linear.inputs, columns)?;
        let mut first = 0;
        for part in &linear.parts {
            let (weight, name) = (part.weight(), self.source.name(&part.weight()));
            let stored = self.source.quantised(&weight, format).filter(|_| fraction == 0.0);
            match (stored, linear.orientation) {
                (Some(stored), _) => {
                    let read = |rows: Range<usize>, to: &mut QuantisedRows, buffer: &mut Vec<u8>| {
                        stored.read_quantised(&weight, rows, to, buffer)
                    };
                    matrix.read_quantised_rows(self.exec, first, part.outputs, read)?;
                }
                (None, Orientation::OutIn) => {
                    let read = |rows: Range<usize>, values: &mut [f32], buffer: &mut Vec<u8>| {
                        self.source.read_with(&weight, rows.start * linear.inputs, values, buffer)?;
                        check_magnitude(values, &name, format)
                    };
                    matrix.read_rows(self.exec, first, part.outputs, read)?;
                }
                (None, Orientation::InOut) => pieces(self.source, linear, part, |piece| {
                    check_magnitude(piece.values(), &name, format)?;
                    piece.pack(self.exec, &mut matrix, first + piece.first);
                    Ok(())
                })?,
            }
            first += part.outputs;
        }
        Ok(matrix)
    }

    fn values(&self, name: &str, out: &mut [f32]) -> Result<(), ModelError> {
        self.source.read(name, 0, out)
    }
}
