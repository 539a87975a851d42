//! The feed-forward part of a layer: one for all rows, a mixture of experts, or both.

use super::dense_and_experts::DenseAndExperts;
use super::experts::Experts;
use super::mlp::{DENSE, Mlp};
use super::{BuildStage, Described, Loaded, Map};
use crate::activation::ActivationName;
use crate::step::{Act, Step};

/// The feed-forward part of a layer.
#[derive(Debug)]
pub enum Ffn<S: BuildStage> {
    /// The same for every row.
    Dense(Mlp<S>),
    /// A mixture of experts.
    Experts(Box<Experts<S>>),
    /// Both.
    Both(Box<DenseAndExperts<S>>),
    /// The layer has only a mixer.
    None,
}

/// A feed-forward part as an architecture describes it.
pub type FfnSpec = Ffn<Described>;

impl<S: BuildStage> Ffn<S> {
    /// The same block of another stage.
    pub fn map<'a, T: BuildStage, M: Map<'a, S, T>>(&'a self, to: &mut M) -> Result<Ffn<T>, M::Error> {
        Ok(match self {
            Self::Dense(mlp) => Ffn::Dense(mlp.map(&DENSE, to)?),
            Self::Experts(experts) => Ffn::Experts(Box::new(experts.map(to)?)),
            Self::Both(both) => Ffn::Both(Box::new(both.map(to)?)),
            Self::None => Ffn::None,
        })
    }

    /// The part that is the same for every row, if there is one.
    pub fn dense(&self) -> Option<&Mlp<S>> {
        match self {
            Self::Dense(mlp) => Some(mlp),
            Self::Both(both) => Some(&both.mlp),
            Self::Experts(_) | Self::None => None,
        }
    }

    /// The mixture of experts, if there is one.
    pub fn experts(&self) -> Option<&Experts<S>> {
        match self {
            Self::Experts(experts) => Some(experts),
            Self::Both(both) => Some(&both.experts),
            Self::Dense(_) | Self::None => None,
        }
    }

    /// What a single row does not use of a size of all linear layers.
    pub fn unused(&self, size: impl Fn(&S::Linear) -> usize) -> usize {
        self.experts().map_or(0, |experts| experts.unused(size))
    }
}

impl Ffn<Described> {
    /// Its activations with the widths of their rows, in the order of the forward pass.
    pub fn activations(&self) -> Vec<(ActivationName, usize)> {
        match self {
            Self::Dense(mlp) => mlp.activations(),
            Self::Experts(experts) => experts.activations(),
            Self::Both(both) => both.activations(),
            Self::None => Vec::new(),
        }
    }

    /// Number of values of the arena that a row needs outside of a mixture of experts.
    pub(crate) fn values_per_row(&self) -> usize {
        match self {
            Self::Both(both) => both.values_per_row(),
            _ => self.dense().map_or(0, Mlp::values_per_row),
        }
    }
}

impl Ffn<Loaded> {
    /// The block's output, to be added to the residual stream; `None` without a feed-forward part.
    pub fn forward(&self, x: Act, s: &mut Step<'_>) -> Option<Act> {
        match self {
            Self::Dense(mlp) => Some(mlp.forward(x, s)),
            Self::Experts(experts) => Some(experts.forward(x, s)),
            Self::Both(both) => Some(both.forward(x, s)),
            Self::None => None,
        }
    }
}
