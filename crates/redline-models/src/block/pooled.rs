//! Layers on one vector for a whole text: heads of classifiers, and the dense layers of embedding models.

use redline_kernels::op::activation::ActivationFunction;
use redline_kernels::op::linear::{Epilogue, Variant, linear, scratch_words};
use redline_kernels::{Buffer, Exec, Matrix, Rows, RowsMut};
use redline_settings::Pooling;

use crate::element::norm::Norm;
use crate::step::padded;

/// What a model without a head makes of a text: a number for each class.
#[derive(Debug)]
pub struct Classifier {
    /// How the states of a text become the input of the first layer.
    pub pooling: Pooling,
    /// The id that the last token of [`Pooling::Last`] does not have.
    pub padding: Option<u32>,
    /// Names of the classes, in the order of the outputs.
    pub labels: Vec<String>,
    /// The layers.
    pub layers: PooledLayers,
}

/// `norm(activation(x W^T + b))`.
#[derive(Debug)]
pub struct DenseLayer {
    /// `[outputs, inputs]`, in a format of floating-point numbers.
    pub weights: Matrix,
    /// Padded with zeros to whole strips.
    pub bias: Option<Buffer<f32>>,
    /// Applied to the outputs.
    pub activation: ActivationFunction,
    /// Applied last.
    pub norm: Option<Norm>,
}

/// Layers, one after the other; may be none.
#[derive(Debug, Default)]
pub struct PooledLayers(Vec<DenseLayer>);

impl PooledLayers {
    /// Layers of which each takes the outputs of the one before it.
    pub fn new(layers: Vec<DenseLayer>) -> Self {
        Self(layers)
    }

    /// Number of values that they make of `inputs` values.
    pub fn outputs(&self, inputs: usize) -> usize {
        self.0.last().map_or(inputs, |layer| layer.weights.rows())
    }

    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        let bytes = |layer: &DenseLayer| {
            let DenseLayer { weights, bias, norm, .. } = layer;
            weights.bytes() + bias.as_ref().map_or(0, Buffer::bytes) + norm.as_ref().map_or(0, Norm::bytes)
        };
        self.0.iter().map(bytes).sum()
    }

    /// The outputs for one vector.
    pub fn apply(&self, exec: Exec<'_>, x: &[f32]) -> Vec<f32> {
        let mut x = x.to_vec();
        for DenseLayer { weights, bias, activation, norm } in &self.0 {
            let (inputs, outputs) = (weights.cols(), weights.rows());
            let mut y = vec![0f32; padded(outputs)];
            let stride = y.len();
            let variant = Variant::estimate(exec.simd, weights, 1);
            let epilogue = Epilogue { bias: bias.as_deref(), activation: *activation, ..Epilogue::default() };
            let mut scratch = vec![0u32; scratch_words(weights.shape(), 1)];
            let (from, mut to) = (Rows::new(&x, 1, inputs, inputs), RowsMut::new(&mut y, 1, outputs, stride));
            linear(exec, weights, from, &mut to, epilogue, variant, &mut scratch);
            if let Some(norm) = norm {
                norm.apply_in_place(exec, &mut to);
            }
            y.truncate(outputs);
            x = y;
        }
        x
    }
}
