//! Matrices that files hold as integers with scales.

use std::ops::Range;

use redline_kernels::matrix::QuantisedRows;

use crate::ModelError;

/// Tensors of which some are stored as integers with scales.
pub(crate) trait QuantisedTensors: Sync {
    /// The rows `rows` of such a matrix, with a buffer that many calls can share.
    fn read_quantised(
        &self,
        name: &str,
        rows: Range<usize>,
        to: &mut QuantisedRows,
        buffer: &mut Vec<u8>,
    ) -> Result<(), ModelError>;
}
