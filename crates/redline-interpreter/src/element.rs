//! What blocks are made of, as plain numbers.

use redline_kernels::op::activation::ActivationFunction;
use redline_models::Loader;
use redline_models::activation::ActivationName;
use redline_models::block::{BuildStage, Described, LinearRole, Map};
use redline_models::spec::{LinearSpec, NormKind, NormSpec, Orientation, Role, TensorSpec};
use redline_reference::elementwise::{gelu, gelu_new, layer_norm, relu, rms_norm, silu, squared_relu, tanh};
use redline_reference::linear::{self, Inputs, OutputWeights};

use crate::{InterpreterError, Row};

/// Plain numbers.
#[derive(Debug)]
pub(crate) enum Literal {}

impl BuildStage for Literal {
    type Linear = Linear;
    type Norm = Norm;
    type Values = Vec<f32>;
}

/// A linear layer.
#[derive(Debug)]
pub(crate) struct Linear {
    outputs: Vec<OutputWeights>,
    bias: Option<Vec<f32>>,
    activation: ActivationFunction,
}

impl Linear {
    /// `activation(x W^T + b)` of one row.
    pub(crate) fn apply(&self, x: &[f32]) -> Row {
        let x = Inputs::new(x);
        let sums = self.outputs.iter().enumerate().map(|(o, weights)| {
            let sum = weights.dot(&x);
            self.bias.as_ref().map_or(sum, |bias| sum + bias[o])
        });
        sums.map(|sum| activated(self.activation, sum)).collect()
    }

    /// The format of its first output.
    pub(crate) fn format(&self) -> linear::WeightFormat {
        self.outputs[0].format()
    }

    /// The weights of one output, as the layer sees them: a row of a table.
    pub(crate) fn weights(&self, output: usize) -> Row {
        self.outputs[output].widened()
    }
}

/// The value of an activation function.
pub(crate) fn activated(function: ActivationFunction, x: f32) -> f32 {
    match function {
        ActivationFunction::None => x,
        ActivationFunction::GeluNew => gelu_new(x),
        ActivationFunction::Silu => silu(x),
        ActivationFunction::Gelu => gelu(x),
        ActivationFunction::Tanh => tanh(x),
        ActivationFunction::Relu => relu(x),
        ActivationFunction::SquaredRelu => squared_relu(x),
    }
}

/// A normalisation.
#[derive(Debug)]
pub(crate) struct Norm {
    weight: Vec<f32>,
    bias: Option<Vec<f32>>,
    eps: f32,
}

impl Norm {
    /// The norm of one row.
    pub(crate) fn apply(&self, x: &[f32]) -> Row {
        match &self.bias {
            None => rms_norm(x, &self.weight, self.eps),
            Some(bias) => layer_norm(x, &self.weight, bias, self.eps),
        }
    }

    /// The norm of each part that is as wide as the norm.
    pub(crate) fn apply_to_parts(&self, x: &[f32]) -> Row {
        x.chunks(self.weight.len()).flat_map(|part| self.apply(part)).collect()
    }

    /// The norm of each of `groups` parts, with weights of its own.
    pub(crate) fn apply_to_groups(&self, x: &[f32], groups: usize) -> Row {
        let width = x.len() / groups;
        let parts = x.chunks(width).zip(self.weight.chunks(width));
        parts.flat_map(|(part, weight)| rms_norm(part, weight, self.eps)).collect()
    }
}

/// Reads the elements of blocks.
#[derive(Clone, Copy)]
pub(crate) struct Builder<'a> {
    pub(crate) loader: &'a Loader<'a>,
}

impl Builder<'_> {
    /// A linear layer with an activation.
    pub(crate) fn read_linear(
        self,
        spec: &LinearSpec,
        activation: ActivationFunction,
    ) -> Result<Linear, InterpreterError> {
        let (mut outputs, mut bias) = (Vec::new(), Vec::new());
        for part in &spec.parts {
            let (name, count) = (part.weight(), part.outputs);
            let format = self.loader.format_of(&name);
            let unknown = || InterpreterError::Format { name: name.clone(), format };
            let format = linear::WeightFormat::named(format.name(), format.group()).ok_or_else(unknown)?;
            let values = self.loader.values(&name, count * spec.inputs)?;
            let weight = |o: usize, k: usize| match spec.orientation {
                Orientation::OutIn => values[o * spec.inputs + k],
                Orientation::InOut => values[k * count + o],
            };
            let row = |o: usize| (0..spec.inputs).map(|k| weight(o, k)).collect::<Row>();
            outputs.extend((0..count).map(|o| OutputWeights::new(format, &row(o))));
            bias.extend(if part.bias {
                self.loader.values(&part.bias_name(), count)?
            } else {
                vec![0.0; count]
            });
        }
        Ok(Linear { outputs, bias: spec.has_bias().then_some(bias), activation })
    }

    /// A table, whose rows are looked up.
    pub(crate) fn table(self, spec: &LinearSpec) -> Result<Linear, InterpreterError> {
        self.read_linear(spec, ActivationFunction::None)
    }

    /// A normalisation.
    pub(crate) fn read_norm(self, spec: &NormSpec) -> Result<Norm, InterpreterError> {
        let named = |end: &str| self.loader.values(&format!("{}.{end}", spec.name), spec.width);
        let weight = if spec.kind == NormKind::RmsUnweighted {
            vec![1.0; spec.width]
        } else {
            named(spec.kind.weight())?
        };
        let (weight, bias) = match spec.kind {
            NormKind::Rms | NormKind::RmsUnweighted => (weight, None),
            NormKind::RmsPlusOne => (weight.iter().map(|weight| weight + 1.0).collect(), None),
            NormKind::RmsOverRoot => {
                let root = (spec.width as f32).sqrt();
                (weight.iter().map(|weight| weight / root).collect(), None)
            }
            NormKind::Layer => (weight, Some(named("bias")?)),
            NormKind::LayerUnbiased => (weight, Some(vec![0.0; spec.width])),
        };
        Ok(Norm { weight, bias, eps: spec.eps })
    }
}

impl<'a> Map<'a, Described, Literal> for Builder<'_> {
    type Error = InterpreterError;

    fn linear(&mut self, spec: &'a LinearSpec, role: LinearRole) -> Result<Linear, InterpreterError> {
        self.read_linear(spec, role.activation)
    }

    fn norm(
        &mut self,
        spec: &'a NormSpec,
        _: ActivationName,
        _: &'static str,
    ) -> Result<Norm, InterpreterError> {
        self.read_norm(spec)
    }

    fn values(&mut self, spec: &'a TensorSpec, _: &'static str) -> Result<Vec<f32>, InterpreterError> {
        let values = self.loader.values(&spec.name, spec.shape.iter().product())?;
        match spec.role {
            Role::Taps => {}
            Role::LogDecay => return Ok(values.into_iter().map(|value| -libm::expf(value)).collect()),
            _ => return Ok(values),
        }
        // From `[channels, 1, taps]` to `[taps, channels]`.
        let (channels, taps) = (spec.shape[0], values.len() / spec.shape[0]);
        Ok((0..values.len()).map(|i| values[i % channels * taps + i / channels]).collect())
    }
}
