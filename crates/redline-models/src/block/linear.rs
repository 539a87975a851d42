//! A linear layer: weights in their format, bias, activation. Formats and adapters live below this line.

use redline_kernels::op::activation::ActivationFunction;
use redline_kernels::{Buffer, Matrix};

use crate::plan::Site;

/// `activation(x W^T + b)`, W `[outputs, inputs]`.
#[derive(Debug)]
pub struct Linear {
    matrix: Matrix,
    /// Padded with zeros to whole strips.
    bias: Option<Buffer<f32>>,
    activation: ActivationFunction,
    site: Site,
}

impl Linear {
    /// The bias, if any, has as many values as the matrix has rows, rounded up to a multiple of 16.
    pub fn new(
        matrix: Matrix,
        bias: Option<Buffer<f32>>,
        activation: ActivationFunction,
        site: Site,
    ) -> Self {
        Self { matrix, bias, activation, site }
    }

    /// Its position in the layer, as named in plans.
    pub fn site(&self) -> Site {
        self.site
    }

    /// The weights.
    pub fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    pub(crate) fn bias(&self) -> Option<&[f32]> {
        self.bias.as_deref()
    }

    pub(crate) fn activation(&self) -> ActivationFunction {
        self.activation
    }

    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        self.matrix.bytes() + self.bias.as_ref().map_or(0, Buffer::bytes)
    }
}
