//! The part of a layer in which a row reads earlier rows: a list of kinds.

use redline_kernels::op::kv::{KvFormat, KvShape, PageShape};

use super::attention::{Attention, KeyValues};
use super::delta_net::DeltaNet;
use super::mamba2::Mamba2;
use super::short_conv::ShortConv;
use super::{BuildStage, Described, Loaded, Map, MixerOperations};
use crate::activation::ActivationName;
use crate::step::{Act, Step};

/// The part of a layer in which a row reads earlier rows.
#[derive(Debug)]
pub enum Mixer<S: BuildStage> {
    /// Attention.
    Attention(Attention<S>),
    /// A short convolution.
    ShortConv(ShortConv<S>),
    /// A gated delta net.
    DeltaNet(DeltaNet<S>),
    /// Mamba-2.
    Mamba2(Mamba2<S>),
}

/// A mixer as an architecture describes it.
pub type MixerSpec = Mixer<Described>;

impl<S: BuildStage> Mixer<S> {
    /// The same block of another stage.
    pub fn map<'a, T: BuildStage, M: Map<'a, S, T>>(&'a self, to: &mut M) -> Result<Mixer<T>, M::Error> {
        Ok(match self {
            Self::Attention(attention) => Mixer::Attention(attention.map(to)?),
            Self::ShortConv(conv) => Mixer::ShortConv(conv.map(to)?),
            Self::DeltaNet(net) => Mixer::DeltaNet(net.map(to)?),
            Self::Mamba2(layer) => Mixer::Mamba2(layer.map(to)?),
        })
    }

    /// Whether it stores anything for later rows.
    pub(crate) fn stores(&self) -> bool {
        !matches!(self, Self::Attention(Attention { source: KeyValues::OfLayer(_), .. }))
    }

    /// Attention, if it is that.
    pub fn attention(&self) -> Option<&Attention<S>> {
        match self {
            Self::Attention(attention) => Some(attention),
            Self::ShortConv(_) | Self::DeltaNet(_) | Self::Mamba2(_) => None,
        }
    }

    /// Attention, if it is that, to change.
    pub fn attention_mut(&mut self) -> Option<&mut Attention<S>> {
        match self {
            Self::Attention(attention) => Some(attention),
            Self::ShortConv(_) | Self::DeltaNet(_) | Self::Mamba2(_) => None,
        }
    }
}

impl Mixer<Described> {
    /// Its activations with the widths of their rows, in the order of the forward pass.
    pub fn activations(&self) -> Vec<(ActivationName, usize)> {
        match self {
            Self::Attention(attention) => attention.activations(),
            Self::ShortConv(conv) => conv.activations(),
            Self::DeltaNet(net) => net.activations(),
            Self::Mamba2(layer) => layer.activations(),
        }
    }

    /// Number of values of the arena that a row needs.
    pub fn values_per_row(&self) -> usize {
        match self {
            Self::Attention(attention) => attention.values_per_row(),
            Self::ShortConv(conv) => conv.values_per_row(),
            Self::DeltaNet(net) => net.values_per_row(),
            Self::Mamba2(layer) => layer.values_per_row(),
        }
    }

    /// Its operations.
    pub fn operations(&self) -> MixerOperations {
        match self {
            Self::Attention(attention) => attention.operations(),
            Self::ShortConv(conv) => conv.operations(),
            Self::DeltaNet(net) => net.operations(),
            Self::Mamba2(layer) => layer.operations(),
        }
    }

    /// Adds what sequences keep to the shape of their pages. Returns its index among those of its kind.
    pub(crate) fn add_to(&self, page: &mut PageShape, format: KvFormat) -> usize {
        match self {
            &Self::Attention(Attention { source: KeyValues::OfLayer(index), .. }) => index,
            &Self::Attention(Attention { kv_heads, head_dim, .. }) => {
                page.keys.push(KvShape { format, kv_heads, head_dim });
                page.keys.len() - 1
            }
            Self::ShortConv(conv) => {
                page.inputs.push(conv.inputs());
                page.inputs.len() - 1
            }
            Self::DeltaNet(net) => {
                page.states.push(net.state());
                page.states.len() - 1
            }
            Self::Mamba2(layer) => {
                page.states.push(layer.state());
                page.states.len() - 1
            }
        }
    }
}

impl Mixer<Loaded> {
    /// The part of every row: stores what later rows need. Returns what [`Self::finish`] needs.
    pub fn begin(&self, x: Act, s: &mut Step<'_>) -> Act {
        match self {
            Self::Attention(attention) => attention.store(x, s),
            Self::ShortConv(conv) => conv.convolve(x, s),
            Self::DeltaNet(net) => net.recur(x, s),
            Self::Mamba2(layer) => layer.recur(x, s),
        }
    }

    /// The output, to be added to the residual stream, of the rows that later layers need.
    pub fn finish(&self, begun: Act, s: &mut Step<'_>) -> Act {
        match self {
            Self::Attention(attention) => attention.attend(begun, s),
            Self::ShortConv(ShortConv { output, .. })
            | Self::DeltaNet(DeltaNet { output, .. })
            | Self::Mamba2(Mamba2 { output, .. }) => {
                let output = s.linear(begun, output);
                s.show(ActivationName::ConvOutput, output);
                output
            }
        }
    }
}
