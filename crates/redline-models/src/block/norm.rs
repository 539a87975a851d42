//! Normalisation: RMSNorm or LayerNorm.

use redline_kernels::op::norm::{layer_norm, layer_norm_in_place, rms_norm, rms_norm_heads};
use redline_kernels::{Buffer, Exec, Rows, RowsMut};

use crate::activation::ActivationName;

/// A normalisation over the hidden width.
#[derive(Debug)]
pub struct Norm {
    /// The activation that it computes.
    pub name: ActivationName,
    /// `[width]`
    pub weight: Buffer<f32>,
    /// `[width]`, LayerNorm only; zeros if it has none.
    pub bias: Option<Buffer<f32>>,
    /// Added to the mean square or the variance.
    pub eps: f32,
}

impl Norm {
    pub(crate) fn apply(&self, exec: Exec<'_>, x: Rows<'_>, out: &mut RowsMut<'_>) {
        match &self.bias {
            None => rms_norm(exec, x, &self.weight, self.eps, out),
            Some(bias) => layer_norm(exec, x, &self.weight, bias, self.eps, out),
        }
    }

    pub(crate) fn apply_in_place(&self, exec: Exec<'_>, x: &mut RowsMut<'_>) {
        match &self.bias {
            None => rms_norm_heads(exec, x, 0, 1, &self.weight, self.eps),
            Some(bias) => layer_norm_in_place(exec, x, &self.weight, bias, self.eps),
        }
    }

    /// Number of values.
    pub fn width(&self) -> usize {
        self.weight.len()
    }

    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        self.weight.bytes() + self.bias.as_ref().map_or(0, Buffer::bytes)
    }
}
