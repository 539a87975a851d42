//! The part of a layer in which a row reads earlier rows: a list of kinds.

use redline_kernels::op::kv::{KvFormat, PageShape};

use super::attention::{Attention, KeyValues};
use super::delta_net::DeltaNet;
use super::mamba2::Mamba2;
use super::parallel::Parallel;
use super::short_conv::ShortConv;
use super::{Begun, BuildStage, Described, Loaded, Map, MixerOperations};
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
    /// Attention and Mamba-2.
    Parallel(Box<Parallel<S>>),
    /// The layer has only a feed-forward part.
    None,
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
            Self::Parallel(both) => Mixer::Parallel(Box::new(both.map(to)?)),
            Self::None => Mixer::None,
        })
    }

    /// Whether rows need anything of each other that this layer computes.
    pub(crate) fn mixes_rows(&self) -> bool {
        !matches!(self, Self::None | Self::Attention(Attention { source: KeyValues::OfLayer(_), .. }))
    }

    /// Attention, if it has it.
    pub fn attention(&self) -> Option<&Attention<S>> {
        match self {
            Self::Attention(attention) => Some(attention),
            Self::Parallel(both) => Some(&both.attention),
            Self::ShortConv(_) | Self::DeltaNet(_) | Self::Mamba2(_) | Self::None => None,
        }
    }

    /// Mamba-2, if it has it.
    pub fn mamba2(&self) -> Option<&Mamba2<S>> {
        match self {
            Self::Mamba2(layer) => Some(layer),
            Self::Parallel(both) => Some(&both.recurrence),
            Self::Attention(_) | Self::ShortConv(_) | Self::DeltaNet(_) | Self::None => None,
        }
    }

    /// Attention, if it has it, to change.
    pub fn attention_mut(&mut self) -> Option<&mut Attention<S>> {
        match self {
            Self::Attention(attention) => Some(attention),
            Self::Parallel(both) => Some(&mut both.attention),
            Self::ShortConv(_) | Self::DeltaNet(_) | Self::Mamba2(_) | Self::None => None,
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
            Self::Parallel(both) => both.activations(),
            Self::None => Vec::new(),
        }
    }

    /// Number of values of the arena that a row needs.
    pub fn values_per_row(&self) -> usize {
        match self {
            Self::Attention(attention) => attention.values_per_row(),
            Self::ShortConv(conv) => conv.values_per_row(),
            Self::DeltaNet(net) => net.values_per_row(),
            Self::Mamba2(layer) => layer.values_per_row(),
            Self::Parallel(both) => both.values_per_row(),
            Self::None => 0,
        }
    }

    /// Its operations.
    pub fn operations(&self) -> MixerOperations {
        match self {
            Self::Attention(attention) => attention.operations(),
            Self::ShortConv(conv) => conv.operations(),
            Self::DeltaNet(net) => net.operations(),
            Self::Mamba2(layer) => layer.operations(),
            Self::Parallel(both) => both.operations(),
            Self::None => MixerOperations { of_every_row: 0, recurrence: 0, per_key: 0 },
        }
    }

    /// Adds what sequences keep to the shape of their pages. Returns its index among those of its kind.
    pub(crate) fn add_to(&self, page: &mut PageShape, format: KvFormat) -> usize {
        match self {
            Self::Attention(attention) => attention.add_to(page, format),
            Self::ShortConv(conv) => conv.add_to(page),
            Self::DeltaNet(net) => {
                page.states.push(net.state());
                page.states.len() - 1
            }
            Self::Mamba2(layer) => layer.add_to(page),
            Self::Parallel(both) => {
                let index = both.attention.add_to(page, format);
                assert_eq!(index, both.recurrence.add_to(page), "all layers of the model are alike");
                index
            }
            Self::None => 0,
        }
    }
}

impl Mixer<Loaded> {
    /// The part of every row: stores what later rows need. Returns what [`Self::finish`] needs.
    pub fn begin(&self, x: Act, s: &mut Step<'_>) -> Begun {
        let only = |act: Act| [act, act.columns(0, 0)];
        match self {
            Self::Attention(attention) => attention.store(x, s),
            Self::ShortConv(conv) => only(conv.convolve(x, s)),
            Self::DeltaNet(net) => only(net.recur(x, s)),
            Self::Mamba2(layer) => only(layer.recur(x, s)),
            Self::Parallel(both) => both.begin(x, s),
            Self::None => only(x.columns(0, 0)),
        }
    }

    /// The output, to be added to the residual stream, of the rows that later layers need; `None` without a mixer.
    pub fn finish(&self, begun: Begun, s: &mut Step<'_>) -> Option<Act> {
        Some(match self {
            Self::Attention(attention) => attention.attend(begun, s),
            Self::ShortConv(ShortConv { output, .. }) | Self::DeltaNet(DeltaNet { output, .. }) => {
                let output = s.linear(begun[0], output);
                s.show(ActivationName::ConvOutput, output);
                output
            }
            Self::Mamba2(layer) => layer.project(begun[0], s),
            Self::Parallel(both) => both.finish(begun, s),
            Self::None => return None,
        })
    }
}
