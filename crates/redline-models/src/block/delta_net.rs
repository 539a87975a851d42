//! A gated delta net: a recurrence with a matrix for each head (Yang, Kautz and Hatamizadeh 2024; Qwen3-Next, 2025).

use redline_kernels::op::activation::OutputGate;
use redline_kernels::op::conv::Taps;
use redline_kernels::op::delta::DeltaShape;
use redline_kernels::op::kv::LayerState;

use super::{BuildStage, Described, GgufNames, LinearRole, Loaded, Map, MixerOperations};
use crate::activation::ActivationName as Name;
use crate::plan::Site;
use crate::step::{Act, Step, padded};

/// `output(norm(o) * silu(z))`, where `o` are the outputs of the delta rule over queries, keys and values that a short convolution and SiLU
/// have passed, with queries and keys divided by their lengths.
#[derive(Debug)]
pub struct DeltaNet<S: BuildStage> {
    /// Its heads.
    pub shape: DeltaShape,
    /// Number of taps of the convolution.
    pub taps: usize,
    /// Queries, keys and values, the gate z of the output, b and a of every value head:
    /// `[2 * keys + values | values | value_heads | value_heads, hidden]`.
    pub input: S::Linear,
    /// `[2 * keys + values, 1, taps]`, the oldest first; in memory `[taps, 2 * keys + values]`.
    pub weights: S::Values,
    /// `A_log`, `[value_heads]`; in memory -exp of it.
    pub decay: S::Values,
    /// `dt_bias`, `[value_heads]`: added to a.
    pub decay_bias: S::Values,
    /// Of each head's output.
    pub norm: S::Norm,
    /// Back to the hidden width: `[hidden, values]`.
    pub output: S::Linear,
}

/// A gated delta net as an architecture describes it.
pub type DeltaNetSpec = DeltaNet<Described>;

const INPUT: LinearRole = LinearRole {
    gguf: GgufNames {
        whole: "ssm_in",
        parts: &["attn_qkv", "attn_gate", "ssm_beta", "ssm_alpha"],
        rotated: None,
        stacked: None,
    },
    ..LinearRole::plain(Site::Input, "ssm_in")
};
const OUTPUT: LinearRole = LinearRole::plain(Site::RecurrenceOutput, "ssm_out");
/// Added to the square of the length of a query or key.
pub const LENGTH_EPS: f32 = 1e-6;

impl<S: BuildStage> DeltaNet<S> {
    /// The same block of another stage.
    pub fn map<'a, T: BuildStage, M: Map<'a, S, T>>(&'a self, to: &mut M) -> Result<DeltaNet<T>, M::Error> {
        Ok(DeltaNet {
            shape: self.shape,
            taps: self.taps,
            input: to.linear(&self.input, INPUT)?,
            weights: to.values(&self.weights, "ssm_conv1d.weight")?,
            decay: to.values(&self.decay, "ssm_a")?,
            decay_bias: to.values(&self.decay_bias, "ssm_dt.bias")?,
            norm: to.norm(&self.norm, Name::Recurrence, "ssm_norm")?,
            output: to.linear(&self.output, OUTPUT)?,
        })
    }

    /// Number of channels of the convolution.
    pub fn channels(&self) -> usize {
        2 * self.shape.keys() + self.shape.values()
    }

    /// The factor on queries of length 1.
    pub fn query_scale(&self) -> f32 {
        (1.0 / (self.shape.key_dim as f64).sqrt()) as f32
    }
}

impl DeltaNet<Described> {
    /// Its activations with the widths of their rows, in the order of the forward pass.
    pub fn activations(&self) -> Vec<(Name, usize)> {
        vec![
            (Name::ConvInput, self.input.outputs()),
            (Name::Conv, self.channels()),
            (Name::Recurrence, self.shape.values()),
            (Name::ConvOutput, self.output.outputs()),
        ]
    }

    /// Number of values of the arena that a row needs.
    pub fn values_per_row(&self) -> usize {
        padded(self.input.outputs()) + padded(self.shape.values()) + padded(self.output.outputs())
    }

    /// Its operations: those of the rule are three for each element of a matrix.
    pub fn operations(&self) -> MixerOperations {
        let recurrence = 3 * self.shape.values() * self.shape.key_dim;
        MixerOperations { of_every_row: self.input.size(), recurrence, per_key: 0 }
    }

    /// What sequences keep.
    pub fn state(&self) -> LayerState {
        LayerState {
            heads: self.shape.value_heads,
            rows: self.shape.key_dim,
            columns: self.shape.value_dim,
            channels: self.channels(),
            inputs: self.taps - 1,
        }
    }
}

impl DeltaNet<Loaded> {
    /// Returns `norm(o) * silu(z)` of every row, and adds the rows to the states of their sequences.
    pub fn recur(&self, x: Act, s: &mut Step<'_>) -> Act {
        let DeltaShape { key_heads, value_heads, key_dim, .. } = self.shape;
        let (keys, values, channels) = (self.shape.keys(), self.shape.values(), self.channels());
        let projected = s.linear(x, &self.input);
        s.show(Name::ConvInput, projected);
        let qkv = projected.columns(0, channels);
        let z = projected.columns(channels, values);
        let gates = projected.columns(channels + values, 2 * value_heads);
        s.convolve_silu(qkv, Taps { weights: &self.weights, bias: None, channels });
        s.show(Name::Conv, qkv);
        s.l2_norm_heads(qkv.columns(0, keys), (key_heads, key_dim), LENGTH_EPS, self.query_scale());
        s.l2_norm_heads(qkv.columns(keys, keys), (key_heads, key_dim), LENGTH_EPS, 1.0);
        s.delta_gates(gates, &self.decay, &self.decay_bias);
        let o = s.delta_rule(self.shape, projected, (0, channels + values));
        s.norm_heads(o, &self.norm);
        s.gate_output(OutputGate::Silu, z, o);
        o
    }
}
