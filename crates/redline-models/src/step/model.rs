//! What the passes of a model have in common.

use redline_kernels::op::attention::DistanceBias;

use crate::element::rotation::Rotation;

/// What operations need of a model besides its weights.
#[derive(Clone, Copy)]
pub(crate) struct StepModel<'a> {
    pub(crate) rotations: &'a [Rotation],
    pub(crate) distances: Option<&'a DistanceBias>,
    /// For each layer, the index of its part of a page among those of its kind.
    pub(crate) cache_slots: &'a [usize],
}
