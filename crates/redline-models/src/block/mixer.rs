//! The part of a layer in which a row reads earlier rows: a list of kinds.

use redline_kernels::op::kv::{KvFormat, KvShape};

use super::attention::Attention;
use super::{Described, Loaded, Map, Stage};
use crate::activation::ActivationName;
use crate::step::{Act, Step};

/// The part of a layer in which a row reads earlier rows.
#[derive(Debug)]
pub enum Mixer<S: Stage> {
    /// Attention.
    Attention(Attention<S>),
}

/// A mixer as an architecture describes it.
pub type MixerSpec = Mixer<Described>;

/// Operations of a mixer: multiplications with an addition each.
#[derive(Clone, Copy, Debug)]
pub struct MixerOperations {
    /// Of the linear layers that run for every row, because later rows need what they return. The others run only for the rows that
    /// later layers need.
    pub of_every_row: usize,
    /// For each pair of a row and a key that it sees.
    pub per_key: usize,
}

impl<S: Stage> Mixer<S> {
    /// The same block of another stage.
    pub fn map<'a, T: Stage, M: Map<'a, S, T>>(&'a self, to: &mut M) -> Result<Mixer<T>, M::Error> {
        Ok(match self {
            Self::Attention(attention) => Mixer::Attention(attention.map(to)?),
        })
    }

    /// Attention, if it is that.
    pub fn attention(&self) -> Option<&Attention<S>> {
        match self {
            Self::Attention(attention) => Some(attention),
        }
    }

    /// Attention, if it is that, to change.
    pub fn attention_mut(&mut self) -> Option<&mut Attention<S>> {
        match self {
            Self::Attention(attention) => Some(attention),
        }
    }
}

impl Mixer<Described> {
    /// Its activations with the widths of their rows, in the order of the forward pass.
    pub fn activations(&self) -> Vec<(ActivationName, usize)> {
        match self {
            Self::Attention(attention) => attention.activations(),
        }
    }

    /// Number of values of the arena that a row needs.
    pub fn values_per_row(&self) -> usize {
        match self {
            Self::Attention(attention) => attention.values_per_row(),
        }
    }

    /// Its operations.
    pub fn operations(&self) -> MixerOperations {
        match self {
            Self::Attention(attention) => attention.operations(),
        }
    }

    /// The shape of the keys and values that sequences keep; `None` if it has none.
    pub fn keys(&self, format: KvFormat) -> Option<KvShape> {
        let &Attention { kv_heads, head_dim, .. } = self.attention()?;
        Some(KvShape { format, kv_heads, head_dim })
    }
}

impl Mixer<Loaded> {
    /// The part of every row: stores what later rows need. Returns what [`Self::finish`] needs.
    pub fn begin(&self, x: Act, s: &mut Step<'_>) -> Act {
        match self {
            Self::Attention(attention) => attention.store(x, s),
        }
    }

    /// The output, to be added to the residual stream, of the rows that later layers need.
    pub fn finish(&self, begun: Act, s: &mut Step<'_>) -> Act {
        match self {
            Self::Attention(attention) => attention.attend(begun, s),
        }
    }
}
