//! The pre-norm decoder that all architectures here share.

use super::attention::Attention;
use super::embedding::Embedding;
use super::linear::Linear;
use super::mlp::Mlp;
use super::norm::Norm;
use crate::activation::ActivationName as Name;
use crate::plan::Site;
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
    /// The linear layer at a site of the layer.
    pub fn linear(&self, site: Site) -> &Linear {
        let (first, second) = self.mlp.layers();
        match site {
            Site::Qkv => &self.attention.qkv,
            Site::Output => &self.attention.output,
            Site::Up => first,
            Site::Down => second,
            Site::Head => unreachable!("the head belongs to no layer"),
        }
    }

    /// `x + attention(norm(x))`, then `x + mlp(norm(x))`. The last layer continues only with the wanted rows, because the
    /// others need nothing beyond their keys and values.
    pub fn forward(&self, x: Act, last: bool, s: &mut Step<'_>) -> Act {
        let h = s.norm(x, &self.attention_norm);
        let q = self.attention.store(h, s);
        let (x, q) = if last { s.narrow(x, q) } else { (x, q) };
        if x.rows() == 0 {
            return x;
        }
        let a = self.attention.attend(q, s);
        let x = s.add(x, a, Name::ResidualMid);
        let h = s.norm(x, &self.mlp_norm);
        let m = self.mlp.forward(h, s);
        s.add(x, m, Name::Residual)
    }
}

/// Embedding, layers and final norm. The head is applied only to chosen rows, by [`crate::Model::logits`].
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
