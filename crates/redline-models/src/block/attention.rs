//! Multi-head attention with grouped keys and values.

use redline_kernels::Buffer;
use redline_kernels::op::attention::AttentionShape;

use super::linear::Linear;
use super::norm::Norm;
use crate::activation::ActivationName as Name;
use crate::step::{Act, Step};

/// Self-attention of one layer.
#[derive(Debug)]
pub struct Attention {
    /// Index of the layer in the cache.
    pub layer: usize,
    /// Query heads, scale, window, soft cap.
    pub shape: AttentionShape<'static>,
    /// A logit without a value for each query head.
    pub sinks: Option<Buffer<f32>>,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// `[heads * head_dim | kv_heads * head_dim | kv_heads * head_dim, hidden]`
    pub qkv: Linear,
    /// `[hidden, heads * head_dim]`
    pub output: Linear,
    /// RMSNorm of queries and keys, of every head or of all together.
    pub head_norms: Option<(Norm, Norm)>,
    /// The rotation of queries and keys, an index among those of the model.
    pub rotation: Option<usize>,
}

impl Attention {
    /// Returns the queries of every row, and stores its keys and values.
    pub fn store(&self, x: Act, s: &mut Step<'_>) -> Act {
        let (heads, kv_heads) = (self.shape.heads, self.kv_heads);
        let (q_width, kv_width) = (heads * self.head_dim, kv_heads * self.head_dim);
        let qkv = s.linear(x, &self.qkv);
        let q = qkv.columns(0, q_width);
        let k = qkv.columns(q_width, kv_width);
        let v = qkv.columns(q_width + kv_width, kv_width);
        for (name, x) in [(Name::Query, q), (Name::Key, k), (Name::Value, v)] {
            s.show(name, x);
        }
        if let Some((q_norm, k_norm)) = &self.head_norms {
            s.norm_heads(q, q_norm);
            s.norm_heads(k, k_norm);
        }
        if let Some(rotation) = self.rotation {
            s.rope(rotation, q, heads);
            s.rope(rotation, k, kv_heads);
            s.show(Name::QueryRope, q);
            s.show(Name::KeyRope, k);
            s.grow(rotation, q);
        }
        s.store(self.layer, k, v);
        q
    }

    /// `output(softmax(q k^T) v)`, with the sinks among the logits, of queries over the stored keys and values.
    pub fn attend(&self, q: Act, s: &mut Step<'_>) -> Act {
        let shape = AttentionShape { sinks: self.sinks.as_deref(), ..self.shape };
        let a = s.attention(self.layer, shape, q);
        s.show(Name::Attention, a);
        let output = s.linear(a, &self.output);
        s.show(Name::AttentionOutput, output);
        output
    }
}
