//! Lines of a precision trace.

use serde::{Deserialize, Serialize};

use crate::Finite;

/// What the residual stream of one pass looks like after the embedding or after a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceLine {
    /// The pass, from 0.
    pub pass: u64,
    /// The layer, from 0; `null` for the embedding.
    pub layer: Option<usize>,
    /// Rows of the pass.
    pub rows: usize,
    /// Smallest finite value.
    pub min: Finite<f32>,
    /// Largest finite value.
    pub max: Finite<f32>,
    /// Mean of the finite values.
    pub mean: Finite<f64>,
    /// Root of the mean square of the finite values.
    pub rms: Finite<f64>,
    /// Values that are infinite or no numbers.
    pub non_finite: usize,
    /// Sixteen hexadecimal digits that depend on every bit of every row.
    pub digest: String,
}
