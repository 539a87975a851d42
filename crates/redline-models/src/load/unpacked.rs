//! Packs matrices while they are read from a checkpoint.

use redline_kernels::{Exec, Format, Matrix};

use super::Blocks;
use crate::ModelError;
use crate::spec::LinearSpec;
use crate::tensors::{Piece, Source, Tensors, outlier_columns, pieces};

pub(super) struct Unpacked<'a> {
    pub(super) exec: Exec<'a>,
    pub(super) source: &'a Source<'a>,
    pub(super) outliers: f64,
}

impl Blocks for Unpacked<'_> {
    fn matrix(&self, linear: &LinearSpec, format: Format) -> Result<Matrix, ModelError> {
        let fraction = if format.is_integer() { self.outliers } else { 0.0 };
        let columns = outlier_columns(self.source, linear, fraction)?;
        let mut matrix = Matrix::with_outliers(format, linear.outputs(), linear.inputs, columns)?;
        let mut first = 0;
        for part in &linear.parts {
            pieces(self.source, linear, part, |piece| {
                check_magnitude(piece, &self.source.name(&part.weight()), format)?;
                piece.pack(self.exec, &mut matrix, first + piece.first);
                Ok(())
            })?;
            first += part.outputs;
        }
        Ok(matrix)
    }

    fn values(&self, name: &str, out: &mut [f32]) -> Result<(), ModelError> {
        self.source.read(name, 0, out)
    }
}

/// Refuses a weight that the format cannot hold.
pub(crate) fn check_magnitude(piece: &Piece<'_>, name: &str, format: Format) -> Result<(), ModelError> {
    let (magnitude, largest) = (piece.magnitude(), format.largest());
    if magnitude > largest {
        return Err(ModelError::TooLarge {
            name: name.to_owned(),
            magnitude,
            format: format.to_string(),
            largest,
        });
    }
    Ok(())
}
