//! A short convolution between two gates (LFM2, Liquid AI 2025).

use redline_kernels::op::conv::Taps;
use redline_kernels::op::kv::{ConvInputs, PageShape};

use super::{BuildStage, Described, LinearRole, Loaded, Map, MixerOperations};
use crate::activation::ActivationName as Name;
use crate::plan::Site;
use crate::step::{Act, Step, padded};

/// `output(c * conv(b * x))`, where `b | c | x` are projections of the input, and each channel is convolved with itself.
#[derive(Debug)]
pub struct ShortConv<S: BuildStage> {
    /// Number of channels.
    pub channels: usize,
    /// Number of taps.
    pub taps: usize,
    /// How many of them are for later rows: those of an encoder, in which nothing is kept for another pass.
    pub after: usize,
    /// Both gates and the input of the convolution: `[channels | channels | channels, hidden]`.
    pub input: S::Linear,
    /// `[channels, 1, taps]`, the oldest first; in memory `[taps, channels]`.
    pub weights: S::Values,
    /// `[channels]`
    pub bias: Option<S::Values>,
    /// Back to the hidden width: `[hidden, channels]`.
    pub output: S::Linear,
}

/// A short convolution as an architecture describes it.
pub type ShortConvSpec = ShortConv<Described>;

const INPUT: LinearRole = LinearRole::plain(Site::Input, "shortconv.in_proj");
const OUTPUT: LinearRole = LinearRole::plain(Site::RecurrenceOutput, "shortconv.out_proj");

impl<S: BuildStage> ShortConv<S> {
    /// The same block of another stage.
    pub fn map<'a, T: BuildStage, M: Map<'a, S, T>>(&'a self, to: &mut M) -> Result<ShortConv<T>, M::Error> {
        Ok(ShortConv {
            channels: self.channels,
            taps: self.taps,
            after: self.after,
            input: to.linear(&self.input, INPUT)?,
            weights: to.values(&self.weights, "shortconv.conv.weight")?,
            bias: self.bias.as_ref().map(|bias| to.values(bias, "shortconv.conv.bias")).transpose()?,
            output: to.linear(&self.output, OUTPUT)?,
        })
    }
}

impl ShortConv<Described> {
    /// Its activations with the widths of their rows, in the order of the forward pass.
    pub fn activations(&self) -> Vec<(Name, usize)> {
        vec![
            (Name::ConvInput, self.input.outputs()),
            (Name::Conv, self.channels),
            (Name::ConvOutput, self.output.outputs()),
        ]
    }

    /// Number of values of the arena that a row needs.
    pub fn values_per_row(&self) -> usize {
        padded(self.input.outputs()) + padded(self.channels) + padded(self.output.outputs())
    }

    /// Its operations.
    pub fn operations(&self) -> MixerOperations {
        MixerOperations { of_every_row: self.input.size(), recurrence: 0, per_key: 0 }
    }

    /// Adds what sequences keep to the shape of their pages: the last inputs of the convolution. Returns its index.
    pub(crate) fn add_to(&self, page: &mut PageShape) -> usize {
        if self.after > 0 {
            return 0;
        }
        let rows = self.taps - 1;
        page.inputs.push(ConvInputs { channels: self.channels, rows, slots: rows.max(1) });
        page.inputs.len() - 1
    }
}

impl ShortConv<Loaded> {
    /// Returns `c * conv(b * x)` of every row, and stores the inputs that later rows need, unless it is an encoder's.
    pub fn convolve(&self, x: Act, s: &mut Step<'_>) -> Act {
        let bcx = s.linear(x, &self.input);
        s.show(Name::ConvInput, bcx);
        let taps = Taps { weights: &self.weights, bias: self.bias.as_deref(), channels: self.channels };
        let y = s.convolve(bcx, taps, self.after);
        s.show(Name::Conv, y);
        y
    }
}
