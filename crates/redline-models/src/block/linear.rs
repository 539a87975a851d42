//! A linear layer: weights in their format, bias, activation. Formats and adapters live below this line.

use redline_kernels::op::activation::ActivationFunction;
use redline_kernels::{Buffer, Matrix};

use crate::plan::Site;

/// `activation(x W^T + b)`, W `[outputs, inputs]`.
#[derive(Debug)]
pub struct Linear {
    /// Stacked by rows: one, or one for each run of projections that have a format of their own. All but the last have whole strips.
    matrices: Vec<Matrix>,
    /// Padded with zeros to whole strips.
    bias: Option<Buffer<f32>>,
    activation: ActivationFunction,
    site: Site,
}

impl Linear {
    /// At least one matrix. The bias, if any, has as many values as the matrices have rows, rounded up to a multiple of 16.
    pub fn new(
        matrices: Vec<Matrix>,
        bias: Option<Buffer<f32>>,
        activation: ActivationFunction,
        site: Site,
    ) -> Self {
        Self { matrices, bias, activation, site }
    }

    /// Its position in the layer, as named in plans.
    pub fn site(&self) -> Site {
        self.site
    }

    /// The weights, stacked by rows.
    pub fn matrices(&self) -> &[Matrix] {
        &self.matrices
    }

    /// The weights, if all have one format.
    pub fn only_matrix(&self) -> Option<&Matrix> {
        match &self.matrices[..] {
            [matrix] => Some(matrix),
            _ => None,
        }
    }

    /// Length of k.
    pub fn inputs(&self) -> usize {
        self.matrices.first().map_or(0, Matrix::cols)
    }

    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        self.matrices.iter().map(Matrix::rows).sum()
    }

    pub(crate) fn bias(&self) -> Option<&[f32]> {
        self.bias.as_deref()
    }

    pub(crate) fn activation(&self) -> ActivationFunction {
        self.activation
    }

    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        self.matrices.iter().map(Matrix::bytes).sum::<usize>() + self.bias.as_ref().map_or(0, Buffer::bytes)
    }
}
