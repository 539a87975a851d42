//! Mamba-2: a recurrence with a matrix for each head, all of which decays by one factor (Dao and Gu 2024; Bamba, Falcon-H1, Granite 4 H,
//! Nemotron-H).

use redline_kernels::op::activation::OutputGate;
use redline_kernels::op::conv::Taps;
use redline_kernels::op::kv::{LayerState, PageShape};
use redline_kernels::op::mamba2::Mamba2Shape;

use super::{BuildStage, Described, LinearRole, Loaded, Map, MixerOperations};
use crate::activation::ActivationName as Name;
use crate::plan::Site;
use crate::step::{Act, Step, padded};

/// `output(norm(y * silu(z)))`, where `y` is what the recurrence makes of x, B and C, after a short convolution and SiLU, and of the steps
/// dt; the norm is that of each group of heads. Some models have no norm, or `norm(y) * silu(z)`.
#[derive(Debug)]
pub struct Mamba2<S: BuildStage> {
    /// Its heads.
    pub shape: Mamba2Shape,
    /// Number of taps of the convolution.
    pub taps: usize,
    /// The least and the greatest step.
    pub limits: (f32, f32),
    /// Factors on z, x, B, C and dt.
    pub scales: [f32; 5],
    /// The gate z of the output, x, B, C and dt: `[values | values | groups * state | groups * state | heads, hidden]`.
    pub input: S::Linear,
    /// `[channels, 1, taps]`, the oldest first; in memory `[taps, channels]`. The channels are x, B and C.
    pub weights: S::Values,
    /// `[channels]`
    pub bias: Option<S::Values>,
    /// `A_log`, `[heads]`; in memory -exp of it.
    pub decay: S::Values,
    /// `dt_bias`, `[heads]`
    pub step_bias: S::Values,
    /// `D`, `[heads]`: the factor of the skip connection from x to y.
    pub skip: S::Values,
    /// Of all heads, `[values]`.
    pub norm: Option<S::Norm>,
    /// Whether the gate comes after the norm, not before it.
    pub gates_normed: bool,
    /// Back to the hidden width: `[hidden, values]`.
    pub output: S::Linear,
}

/// A Mamba-2 layer as an architecture describes it.
pub type Mamba2Spec = Mamba2<Described>;

const INPUT: LinearRole = LinearRole::plain(Site::Input, "ssm_in");
const OUTPUT: LinearRole = LinearRole::plain(Site::RecurrenceOutput, "ssm_out");

impl<S: BuildStage> Mamba2<S> {
    /// The same block of another stage.
    pub fn map<'a, T: BuildStage, M: Map<'a, S, T>>(&'a self, to: &mut M) -> Result<Mamba2<T>, M::Error> {
        Ok(Mamba2 {
            shape: self.shape,
            taps: self.taps,
            limits: self.limits,
            scales: self.scales,
            input: to.linear(&self.input, INPUT)?,
            weights: to.values(&self.weights, "ssm_conv1d.weight")?,
            bias: self.bias.as_ref().map(|bias| to.values(bias, "ssm_conv1d.bias")).transpose()?,
            decay: to.values(&self.decay, "ssm_a")?,
            step_bias: to.values(&self.step_bias, "ssm_dt.bias")?,
            skip: to.values(&self.skip, "ssm_d")?,
            norm: self.norm.as_ref().map(|norm| to.norm(norm, Name::Recurrence, "ssm_norm")).transpose()?,
            gates_normed: self.gates_normed,
            output: to.linear(&self.output, OUTPUT)?,
        })
    }
}

impl Mamba2<Described> {
    /// Its activations with the widths of their rows, in the order of the forward pass.
    pub fn activations(&self) -> Vec<(Name, usize)> {
        vec![
            (Name::ConvInput, self.input.outputs()),
            (Name::Conv, self.shape.channels()),
            (Name::Recurrence, self.shape.values()),
            (Name::ConvOutput, self.output.outputs()),
        ]
    }

    /// Number of values of the arena that a row needs.
    pub fn values_per_row(&self) -> usize {
        padded(self.input.outputs())
            + padded(2 * self.shape.heads)
            + padded(self.shape.values())
            + padded(self.output.outputs())
    }

    /// Its operations: those of the recurrence are three for each element of a matrix.
    pub fn operations(&self) -> MixerOperations {
        let recurrence = 3 * self.shape.values() * self.shape.state_dim;
        MixerOperations { of_every_row: self.input.size(), recurrence, per_key: 0 }
    }

    /// Adds what sequences keep to the shape of their pages. Returns the index of its states.
    pub(crate) fn add_to(&self, page: &mut PageShape) -> usize {
        page.states.push(LayerState {
            heads: self.shape.heads,
            rows: self.shape.state_dim,
            columns: self.shape.head_dim,
            channels: self.shape.channels(),
            inputs: self.taps - 1,
        });
        page.states.len() - 1
    }
}

impl Mamba2<Loaded> {
    /// Returns what the output layer reads of every row, and adds the rows to the states of their sequences.
    pub fn recur(&self, x: Act, s: &mut Step<'_>) -> Act {
        let (values, channels) = (self.shape.values(), self.shape.channels());
        let projected = s.linear(x, &self.input);
        let shared = self.shape.groups * self.shape.state_dim;
        let mut first = 0;
        for (width, scale) in [values, values, shared, shared, self.shape.heads].into_iter().zip(self.scales)
        {
            s.scale(projected.columns(first, width), scale);
            first += width;
        }
        s.show(Name::ConvInput, projected);
        let z = projected.columns(0, values);
        let xbc = projected.columns(values, channels);
        let dt = projected.columns(values + channels, self.shape.heads);
        s.convolve_silu(xbc, Taps { weights: &self.weights, bias: self.bias.as_deref(), channels });
        s.show(Name::Conv, xbc);
        let steps = s.steps_and_decays(dt, (&self.decay[..], &self.step_bias[..]), self.limits);
        let y = s.mamba2(self.shape, xbc, steps, &self.skip);
        if !self.gates_normed {
            s.gate_output(OutputGate::Silu, z, y);
        }
        if let Some(norm) = &self.norm {
            s.norm_groups(y, self.shape.groups, norm);
        }
        if self.gates_normed {
            s.gate_output(OutputGate::Silu, z, y);
        }
        s.show(Name::Recurrence, y);
        y
    }

    /// The output of rows of what [`Self::recur`] returns.
    pub fn project(&self, y: Act, s: &mut Step<'_>) -> Act {
        let output = s.linear(y, &self.output);
        s.show(Name::ConvOutput, output);
        output
    }
}
