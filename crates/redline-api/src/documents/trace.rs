//! Lines of a precision trace.

use serde::{Deserialize, Serialize};

use crate::json::finite::Finite;

/// Statistics of the residual stream in one pass, after the embedding or after a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceLine {
    /// The pass, from 0.
    pub pass: u64,
    /// The layer, from 0; `null` for the embedding.
    pub layer: Option<usize>,
    /// Number of rows of the pass.
    pub rows: usize,
    /// Smallest finite value.
    pub min: Finite<f32>,
    /// Largest finite value.
    pub max: Finite<f32>,
    /// Mean of the finite values.
    pub mean: Finite<f64>,
    /// Root of the mean square of the finite values.
    pub rms: Finite<f64>,
    /// Number of values that are infinite or NaN.
    pub non_finite: usize,
    /// A digest of all bits of all rows, as sixteen hexadecimal digits.
    pub digest: String,
}
