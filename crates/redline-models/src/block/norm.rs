//! Normalisation: RMSNorm or LayerNorm.

use redline_kernels::op::norm::{layer_norm, rms_norm};
use redline_kernels::{Buffer, Exec, Rows, RowsMut};

use crate::activation::ActivationName;
use crate::step::{Act, Step};

/// A normalisation over the hidden width.
#[derive(Debug)]
pub struct Norm {
    /// The activation that it computes.
    pub name: ActivationName,
    /// `[width]`
    pub weight: Buffer<f32>,
    /// `[width]`, LayerNorm only.
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

    /// Number of values.
    pub fn width(&self) -> usize {
        self.weight.len()
    }

    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        self.weight.bytes() + self.bias.as_ref().map_or(0, Buffer::bytes)
    }
}

/// The norms of attention or of the feed-forward part.
#[derive(Debug)]
pub struct Norms {
    /// Of the input.
    pub before: Option<Norm>,
    /// Of the output.
    pub after: Option<Norm>,
}

impl Norms {
    /// The input as the block reads it.
    pub fn before(&self, x: Act, s: &mut Step<'_>) -> Act {
        self.before.as_ref().map_or(x, |norm| s.norm(x, norm))
    }

    /// The output as it is added to the residual stream.
    pub fn after(&self, x: Act, s: &mut Step<'_>) -> Act {
        self.after.as_ref().map_or(x, |norm| s.norm(x, norm))
    }

    /// Those that exist.
    pub fn iter(&self) -> impl Iterator<Item = &Norm> {
        self.before.iter().chain(&self.after)
    }
}
