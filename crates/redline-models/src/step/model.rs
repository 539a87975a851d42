//! What the passes of a model have in common.

use redline_kernels::op::attention::AttentionBias;

use crate::element::distance::Distances;
use crate::element::rotation::Rotation;

/// What operations need of a model besides its weights.
#[derive(Clone, Copy)]
pub(crate) struct StepModel<'a> {
    pub(crate) rotations: &'a [Rotation],
    pub(crate) distances: Option<&'a Distances>,
    /// For each layer, the index of its part of a page among those of its kind.
    pub(crate) cache_slots: &'a [usize],
}

impl<'a> StepModel<'a> {
    /// What is added to logits where rows have no numbers of their own.
    pub(super) fn distance_bias(self) -> Option<AttentionBias<'a>> {
        match self.distances {
            Some(Distances::Table(table)) => Some(AttentionBias::ByDistance(table)),
            Some(Distances::Relative(_)) | None => None,
        }
    }
}
