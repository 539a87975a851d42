//! The feed-forward part of a layer: one for all rows, or a mixture of experts.

use super::experts::Experts;
use super::linear::Linear;
use super::mlp::Mlp;
use crate::step::{Act, Step};

/// The feed-forward part of a layer.
#[derive(Debug)]
pub enum Ffn {
    /// The same for every row.
    Dense(Mlp),
    /// A mixture of experts.
    Experts(Box<Experts>),
}

impl Ffn {
    /// The block's output, to be added to the residual stream.
    pub fn forward(&self, x: Act, s: &mut Step<'_>) -> Act {
        match self {
            Self::Dense(mlp) => mlp.forward(x, s),
            Self::Experts(experts) => experts.forward(x, s),
        }
    }

    /// The linear layers, in the order of the forward pass.
    pub fn linears(&self) -> impl Iterator<Item = &Linear> {
        let dense = self.dense().into_iter().flat_map(Mlp::linears);
        dense.chain(self.experts().into_iter().flat_map(Experts::linears))
    }

    /// The feed-forward part, unless it is a mixture of experts.
    pub fn dense(&self) -> Option<&Mlp> {
        match self {
            Self::Dense(mlp) => Some(mlp),
            Self::Experts(_) => None,
        }
    }

    /// The mixture of experts, if it is one.
    pub fn experts(&self) -> Option<&Experts> {
        match self {
            Self::Dense(_) => None,
            Self::Experts(experts) => Some(experts),
        }
    }

    /// What a single row does not use of a size of all linear layers.
    pub fn unused(&self, size: impl Fn(&Linear) -> usize) -> usize {
        self.experts().map_or(0, |experts| experts.unused(size))
    }
}
