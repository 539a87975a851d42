//! Normalisation: RMSNorm or LayerNorm.

use redline_kernels::op::norm::{layer_norm, layer_norm_in_place, rms_norm, rms_norm_heads};
use redline_kernels::{Buffer, Exec, Rows, RowsMut};

use super::tensor::{Role, TensorSpec};
use crate::activation::ActivationName;

/// The kind of a normalisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormKind {
    /// RMSNorm.
    #[default]
    Rms,
    /// RMSNorm whose scale is 1 more than the weight that the checkpoint holds (Gemma).
    RmsPlusOne,
    /// RMSNorm without a weight.
    RmsUnweighted,
    /// RMSNorm whose scale is the weight, which is called `scale`, divided by the square root of the width (a router of Gemma 4).
    RmsOverRoot,
    /// LayerNorm, with bias.
    Layer,
    /// LayerNorm without bias.
    LayerUnbiased,
}

impl NormKind {
    /// The end of the weight's name.
    pub fn weight(self) -> &'static str {
        if self == Self::RmsOverRoot { "scale" } else { "weight" }
    }
}

/// A normalisation: `{name}.weight` (or `{name}.scale`) and for LayerNorm `{name}.bias`.
#[derive(Clone, Debug)]
pub struct NormSpec {
    /// Name up to `.weight`.
    pub name: String,
    /// Number of values.
    pub width: usize,
    /// Added to the mean square or variance.
    pub eps: f32,
    /// What it computes.
    pub kind: NormKind,
}

impl NormSpec {
    /// Its tensors.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        if self.kind == NormKind::RmsUnweighted {
            return Vec::new();
        }
        let of = |end: &str, role| TensorSpec::new(format!("{}.{end}", self.name), [self.width], role);
        let weight = if self.kind == NormKind::RmsPlusOne { Role::ScaleLessOne } else { Role::Scale };
        let mut all = vec![of(self.kind.weight(), weight)];
        if self.kind == NormKind::Layer {
            all.push(of("bias", Role::Bias));
        }
        all
    }
}

/// A normalisation over the hidden width.
#[derive(Debug)]
pub struct Norm {
    /// The activation that it computes.
    pub name: ActivationName,
    /// `[width]`; ones if it has none.
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
