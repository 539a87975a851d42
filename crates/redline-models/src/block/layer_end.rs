//! What follows both parts of a layer in Gemma 4: a per-layer input, and a factor.

use redline_kernels::op::activation::OutputGate;

use super::{BuildStage, Described, LinearRole, Loaded, Map};
use crate::activation::ActivationName as Name;
use crate::plan::Site;
use crate::step::{Act, Step, padded};

/// `factor * (x + norm(output(gelu(gate(x)) * input)))`, or `factor * x`.
#[derive(Debug)]
pub struct LayerEnd<S: BuildStage> {
    /// What is made of the layer's per-layer input.
    pub input: Option<PerLayerInputGate<S>>,
    /// `[1]`: the factor.
    pub scale: S::Values,
}

/// `norm(output(gelu(gate(x)) * input))`
#[derive(Debug)]
pub struct PerLayerInputGate<S: BuildStage> {
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
pub type PerLayerInputGateSpec = PerLayerInputGate<Described>;

impl<S: BuildStage> LayerEnd<S> {
    /// The same block of another stage.
    pub fn map<'a, T: BuildStage, M: Map<'a, S, T>>(&'a self, to: &mut M) -> Result<LayerEnd<T>, M::Error> {
        let input = match &self.input {
            Some(PerLayerInputGate { gate, output, norm }) => Some(PerLayerInputGate {
                gate: to.linear(gate, LinearRole::plain(Site::PerLayerGate, "inp_gate"))?,
                output: to.linear(output, LinearRole::plain(Site::PerLayerProjection, "proj"))?,
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
        let of = |it: &PerLayerInputGate<Described>| {
            [(Name::LayerInput, it.output.inputs), (Name::LayerInputNorm, it.output.outputs())]
        };
        self.input.iter().flat_map(of).collect()
    }

    /// Number of values of the arena that a row needs.
    pub fn values_per_row(&self) -> usize {
        let of =
            |it: &PerLayerInputGate<Described>| padded(it.output.inputs) + 2 * padded(it.output.outputs());
        self.input.as_ref().map_or(0, of)
    }
}

impl LayerEnd<Loaded> {
    /// The residual stream after the layer.
    pub fn forward(&self, x: Act, s: &mut Step<'_>) -> Act {
        if let Some(PerLayerInputGate { gate, output, norm }) = &self.input {
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
