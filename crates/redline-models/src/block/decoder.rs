//! The layers that all architectures here share.

use super::attention::Attention;
use super::embedding::Embedding;
use super::ffn::Ffn;
use super::linear::Linear;
use super::norm::Norm;
use crate::activation::ActivationName as Name;
use crate::plan::Site;
use crate::step::{Act, Step};

/// The norms of attention or of the feed-forward part.
#[derive(Debug)]
pub struct Norms {
    /// Of the input.
    pub before: Option<Norm>,
    /// Of the output.
    pub after: Option<Norm>,
    /// Of the residual stream after the addition.
    pub sum: Option<Norm>,
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

    /// The residual stream with the output, which is reported as `sum` if a norm follows, and otherwise as `name`.
    pub fn add(&self, x: Act, a: Act, scale: f32, [sum, name]: [Name; 2], s: &mut Step<'_>) -> Act {
        match &self.sum {
            None => s.add(x, a, scale, name),
            Some(norm) => {
                let x = s.add(x, a, scale, sum);
                s.norm_in_place(x, norm)
            }
        }
    }

    /// Those that exist.
    pub fn iter(&self) -> impl Iterator<Item = &Norm> {
        self.before.iter().chain(&self.after).chain(&self.sum)
    }
}

/// One layer.
#[derive(Debug)]
pub struct Layer {
    /// Attention.
    pub attention: Attention,
    /// Its norms.
    pub attention_norms: Norms,
    /// The feed-forward part.
    pub mlp: Ffn,
    /// Its norms.
    pub mlp_norms: Norms,
    /// Factor on what is added to the residual stream.
    pub residual_scale: f32,
}

impl Layer {
    /// The linear layers, in the order of the forward pass.
    pub fn linears(&self) -> impl Iterator<Item = &Linear> {
        let Self { attention, mlp, .. } = self;
        [&attention.qkv, &attention.output].into_iter().chain(mlp.linears())
    }

    /// The first linear layer at a site; `None` if the layer has none there.
    pub fn linear(&self, site: Site) -> Option<&Linear> {
        self.linears().find(|linear| linear.site() == site)
    }

    /// All norms.
    pub fn norms(&self) -> impl Iterator<Item = &Norm> {
        let heads = self.attention.head_norms.iter().flat_map(|(query, key)| [query, key]);
        self.attention_norms.iter().chain(self.mlp_norms.iter()).chain(heads)
    }

    /// `x + attention(x)`, then `x + mlp(x)`, each with its norms. The last layer continues only with the wanted rows, because
    /// the others need nothing beyond their keys and values.
    pub fn forward(&self, x: Act, last: bool, s: &mut Step<'_>) -> Act {
        let h = self.attention_norms.before(x, s);
        let q = self.attention.store(h, s);
        let (x, q) = if last { s.narrow(x, q) } else { (x, q) };
        if x.rows() == 0 {
            return x;
        }
        let a = self.attention.attend(q, s);
        let a = self.attention_norms.after(a, s);
        let x =
            self.attention_norms.add(x, a, self.residual_scale, [Name::AttentionSum, Name::ResidualMid], s);
        let h = self.mlp_norms.before(x, s);
        let m = self.mlp.forward(h, s);
        let m = self.mlp_norms.after(m, s);
        self.mlp_norms.add(x, m, self.residual_scale, [Name::MlpSum, Name::Residual], s)
    }
}

/// Embedding, layers and final norm. The head is applied only to chosen rows, by [`crate::Model::logits`].
#[derive(Debug)]
pub struct Decoder {
    /// Tokens and positions.
    pub embedding: Embedding,
    /// The layers.
    pub layers: Vec<Layer>,
    /// After the last layer, on the rows whose logits or states are wanted.
    pub final_norm: Option<Norm>,
}

impl Decoder {
    /// The residual stream after the last layer, `[wanted rows, hidden]`.
    pub fn forward(&self, s: &mut Step<'_>) -> Act {
        let mut x = self.embedding.forward(s);
        for (index, layer) in self.layers.iter().enumerate() {
            let (mark, timed) = (s.mark(), s.begin_layer(index));
            x = layer.forward(x, index + 1 == self.layers.len(), s);
            s.end_layer(timed);
            s.release(mark);
        }
        x
    }
}
