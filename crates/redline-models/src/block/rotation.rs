//! A rotation of queries and keys.

use redline_kernels::op::rope::RopeTable;

use crate::spec::{QueryGrowth, RotarySpec};

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
        let RotarySpec { head_dim, inverse_frequencies, factor, query_growth } = spec;
        let table = RopeTable::partial(inverse_frequencies.clone(), *head_dim, *factor);
        Self { table, growth: *query_growth }
    }
}
