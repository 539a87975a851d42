//! A rotation of queries and keys.

use redline_kernels::op::rope::RopeTable;
pub use redline_kernels::op::rope::RotatedPairs;

/// A rotation of queries and keys.
#[derive(Clone, Debug)]
pub struct RotarySpec {
    /// Values of a head.
    pub head_dim: usize,
    /// One inverse frequency per pair of dimensions, of the first dimensions of a head; the others are not rotated.
    pub inverse_frequencies: Vec<f64>,
    /// Which dimensions turn together.
    pub pairs: RotatedPairs,
    /// Factor on cosines and sines (the attention factor of YaRN).
    pub factor: f64,
    /// Growth of queries with their position.
    pub query_growth: Option<QueryGrowth>,
}

/// Factor `1 + beta ln(1 + floor(position / context))` on the queries after their rotation (Llama 4, Ministral 3).
#[derive(Clone, Copy, Debug)]
pub struct QueryGrowth {
    /// `llama_4_scaling_beta`.
    pub beta: f64,
    /// `original_max_position_embeddings`, positive.
    pub context: f64,
}

impl QueryGrowth {
    /// The factor at a position, computed in f64 and rounded once.
    pub fn factor(self, position: u32) -> f32 {
        (1.0 + self.beta * libm::log1p((f64::from(position) / self.context).floor())) as f32
    }
}

/// A rotation, and what queries are multiplied by after it.
#[derive(Debug)]
pub struct Rotation {
    /// Cosines and sines.
    pub table: RopeTable,
    /// Growth of queries with their position.
    pub growth: Option<QueryGrowth>,
}

impl Rotation {
    /// Creates a rotation without positions.
    pub(crate) fn new(spec: &RotarySpec) -> Self {
        let RotarySpec { head_dim, inverse_frequencies, pairs, factor, query_growth } = spec;
        let table = RopeTable::partial(inverse_frequencies.clone(), *head_dim, *factor, *pairs);
        Self { table, growth: *query_growth }
    }
}
