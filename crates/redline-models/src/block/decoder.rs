//! The pre-norm decoder that all architectures here share.

use super::attention::Attention;
use super::embedding::Embedding;
use super::mlp::Mlp;
use super::norm::Norm;
use crate::step::{Act, Step};

/// One layer.
#[derive(Debug)]
pub struct Layer {
    /// Before attention.
    pub attention_norm: Norm,
    /// Attention.
    pub attention: Attention,
    /// Before the feed-forward part.
    pub mlp_norm: Norm,
    /// The feed-forward part.
    pub mlp: Mlp,
}

impl Layer {
    /// `x + attention(norm(x))`, then `x + mlp(norm(x))`.
    pub fn forward(&self, x: Act, s: &mut Step<'_>) -> Act {
        let h = s.norm(x, &self.attention_norm);
        let a = self.attention.forward(h, s);
        let x = s.add(x, a);
        let h = s.norm(x, &self.mlp_norm);
        let m = self.mlp.forward(h, s);
        s.add(x, m)
    }
}

/// Embedding, layers, final norm. The head is applied to chosen rows only, by [`crate::Model::logits`].
#[derive(Debug)]
pub struct Decoder {
    /// Tokens and positions.
    pub embedding: Embedding,
    /// The layers.
    pub layers: Vec<Layer>,
    /// After the last layer, on the rows whose logits are wanted.
    pub final_norm: Norm,
}

impl Decoder {
    /// The residual stream after the last layer, `[rows, hidden]`.
    pub fn forward(&self, s: &mut Step<'_>) -> Act {
        let mut x = self.embedding.forward(s);
        s.observe(None, x);
        for (index, layer) in self.layers.iter().enumerate() {
            let mark = s.mark();
            x = layer.forward(x, s);
            s.release(mark);
            s.observe(Some(index), x);
        }
        x
    }
}
