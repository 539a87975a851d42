//! A layer outside the decoder: of a classifier, of an embedding model, or before the head of a model that fills masks.

use redline_kernels::op::activation::ActivationFunction;
use redline_kernels::{Buffer, Matrix};

use crate::element::norm::Norm;

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

impl DenseLayer {
    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        let Self { weights, bias, norm, .. } = self;
        weights.bytes() + bias.as_ref().map_or(0, Buffer::bytes) + norm.as_ref().map_or(0, Norm::bytes)
    }
}
