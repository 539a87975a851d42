//! What follows both parts of a layer in Gemma 4: an input that the layer has for itself, and a factor.

use redline_kernels::op::activation::OutputGate;

use super::{BuildStage, Described, LinearRole, Loaded, Map};
use crate::activation::ActivationName as Name;
use crate::plan::Site;
use crate::step::{Act, Step, padded};

/// `factor * (x + norm(output(gelu(gate(x)) * input)))`, or `factor * x`.
#[derive(Debug)]
pub struct LayerEnd<S: BuildStage> {
    /// What is made of the input that the layer has for itself.
    pub input: Option<LayerInputGate<S>>,
    /// `[1]`: the factor.
    pub scale: S::Values,
}

/// `norm(output(gelu(gate(x)) * input))`
#[derive(Debug)]
pub struct LayerInputGate<S: BuildStage> {
    /// `[width, hidden]`
    pub gate: S::Linear,
    /// `[hidden, width]`
    pub output: S::Linear,
    /// Of the output.
    pub norm: S::Norm,
}

/// The end of a layer as an architecture describes it.
pub type LayerEndSpec = LayerEnd<Described>;

/// The gate of an input as an architecture describes it.
pub type LayerInputGateSpec = LayerInputGate<Described>;

impl<S: BuildStage> LayerEnd<S> {
    /// The same block of another stage.
    pub fn map<'a, T: BuildStage, M: Map<'a, S, T>>(&'a self, to: &mut M) -> Result<LayerEnd<T>, M::Error> {
        let input = match &self.input {
            Some(LayerInputGate { gate, output, norm }) => Some(LayerInputGate {
                gate: to.linear(gate, LinearRole::plain(Site::InputGate, "inp_gate"))?,
                output: to.linear(output, LinearRole::plain(Site::InputOutput, "proj"))?,
                norm: to.norm(norm, Name::LayerInputNorm, "post_norm")?,
            }),
            None => None,
        };
        Ok(LayerEnd { input, scale: to.values(&self.scale, "layer_output_scale.weight")? })
    }
}

impl LayerEnd<Described> {
    /// Its activations but the residual stream, with the widths of their rows, in the order of the forward pass.
    pub fn activations(&self) -> Vec<(Name, usize)> {
        let of = |it: &LayerInputGate<Described>| {
            [(Name::LayerInput, it.output.inputs), (Name::LayerInputNorm, it.output.outputs())]
        };
        self.input.iter().flat_map(of).collect()
    }

    /// Number of values of the arena that a row needs.
    pub fn values_per_row(&self) -> usize {
        let of = |it: &LayerInputGate<Described>| padded(it.output.inputs) + 2 * padded(it.output.outputs());
        self.input.as_ref().map_or(0, of)
    }
}

impl LayerEnd<Loaded> {
    /// The residual stream after the layer.
    pub fn forward(&self, x: Act, s: &mut Step<'_>) -> Act {
        if let Some(LayerInputGate { gate, output, norm }) = &self.input {
            let gate = s.linear(x, gate);
            let input = s.layer_input();
            s.gate_output(OutputGate::GeluNew, gate, input);
            s.show(Name::LayerInput, input);
            let output = s.linear(input, output);
            let normed = s.norm(output, norm);
            s.add_to(x, normed, 1.0);
        }
        s.scale(x, self.scale[0]);
        s.show(Name::Residual, x);
        x
    }
}
