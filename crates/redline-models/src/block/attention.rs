//! Multi-head attention with grouped keys and values.

use redline_kernels::op::activation::{ActivationFunction, OutputGate};
use redline_kernels::op::attention::AttentionShape;
use redline_kernels::op::kv::{KvFormat, KvShape, PageShape};

use super::{Begun, BuildStage, Described, GgufNames, LinearRole, Loaded, Map, MixerOperations};
use crate::activation::ActivationName as Name;
use crate::element::linear::LinearSpec;
use crate::element::norm::{Norm, NormSpec};
use crate::plan::Site;
use crate::step::{Act, Step, padded};

/// Self-attention of one layer.
#[derive(Debug)]
pub struct Attention<S: BuildStage> {
    /// Query heads.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// Factor on the logits.
    pub scale: f32,
    /// A query sees keys at a distance of less than this, which includes itself: before it, and in an encoder also after it.
    pub window: Option<usize>,
    /// Logits are capped to `cap * tanh(logit / cap)`.
    pub softcap: Option<f32>,
    /// The rotation of queries and keys, an index among those of the model; `None`: not rotated.
    pub rotation: Option<usize>,
    /// Whether the output of each head is multiplied by the sigmoid of a gate of its own. The gate of a head comes after its query.
    pub gated: bool,
    /// Where its keys and values come from.
    pub source: KeyValues,
    /// Queries, keys and values, of which the last two may be missing: `[heads * head_dim | kv_heads * head_dim | kv_heads * head_dim,
    /// hidden]`; with gates, twice as many outputs for queries.
    pub qkv: S::Linear,
    /// Norm of the queries: over every head, or if it is as wide as all heads, over these together.
    pub query_norm: Option<S::Norm>,
    /// The same of the keys.
    pub key_norm: Option<S::Norm>,
    /// Whether both come after the rotation, not before it.
    pub norms_after_rotation: bool,
    /// Norm of the values, over every head.
    pub value_norm: Option<S::Norm>,
    /// `[heads]`: one logit for each query head that takes part in its softmax but has no value.
    pub sinks: Option<S::Values>,
    /// Back to the hidden width: `[hidden, heads * head_dim]`.
    pub output: S::Linear,
}

/// Where the keys and values of a layer come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyValues {
    /// A projection of each.
    Projected,
    /// One projection: values are what it makes, before the norm and the rotation of keys.
    OneProjection,
    /// They are those of an earlier layer, with this index among the layers that have their own.
    OfLayer(usize),
}

/// Attention as an architecture describes it.
pub type AttentionSpec = Attention<Described>;

/// Queries, keys and values in GGUF files.
const QKV: GgufNames =
    GgufNames { whole: "attn_qkv", parts: &["attn_q", "attn_k", "attn_v"], rotated: None, stacked: None };

impl<S: BuildStage> Attention<S> {
    /// The same block of another stage.
    pub fn map<'a, T: BuildStage, M: Map<'a, S, T>>(&'a self, to: &mut M) -> Result<Attention<T>, M::Error> {
        let gguf = match self.source {
            KeyValues::Projected | KeyValues::OneProjection => QKV,
            KeyValues::OfLayer(_) => GgufNames { whole: QKV.parts[0], ..QKV },
        };
        let qkv = LinearRole {
            site: Site::Qkv,
            activation: ActivationFunction::None,
            gguf: GgufNames { rotated: Some(self.head_dim), ..gguf },
        };
        let norm = |norm: &'a Option<S::Norm>, (name, gguf), to: &mut M| {
            norm.as_ref().map(|norm| to.norm(norm, name, gguf)).transpose()
        };
        Ok(Attention {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            scale: self.scale,
            window: self.window,
            softcap: self.softcap,
            rotation: self.rotation,
            gated: self.gated,
            source: self.source,
            qkv: to.linear(&self.qkv, qkv)?,
            query_norm: norm(&self.query_norm, (Name::QueryNorm, "attn_q_norm"), to)?,
            key_norm: norm(&self.key_norm, (Name::KeyNorm, "attn_k_norm"), to)?,
            norms_after_rotation: self.norms_after_rotation,
            value_norm: norm(&self.value_norm, (Name::ValueNorm, "attn_v_norm"), to)?,
            sinks: self.sinks.as_ref().map(|sinks| to.values(sinks, "attn_sinks.weight")).transpose()?,
            output: to.linear(&self.output, LinearRole::plain(Site::Output, "attn_output"))?,
        })
    }

    /// Number of values of a row of all queries with their gates.
    fn query_width(&self) -> usize {
        if self.gated { 2 * self.heads * self.head_dim } else { self.heads * self.head_dim }
    }

    /// Number of values of a row of all queries, and of all keys.
    fn widths(&self) -> (usize, usize) {
        (self.heads * self.head_dim, self.kv_heads * self.head_dim)
    }
}

impl Attention<Described> {
    /// Names in GGUF files, without an ending, of tensors that some files hold and this layer does not use.
    pub(crate) fn unread(&self) -> &'static [&'static str] {
        match self.source {
            KeyValues::OfLayer(_) => &["attn_k", "attn_v", "attn_k_norm"],
            KeyValues::Projected | KeyValues::OneProjection => &[],
        }
    }

    /// Attention with nothing that only some families have: no window, cap, rotation, gates, norms of heads or sinks; logits are divided by
    /// the root of a head's width.
    pub fn new(heads: usize, kv_heads: usize, head_dim: usize, qkv: LinearSpec, output: LinearSpec) -> Self {
        Self {
            heads,
            kv_heads,
            head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
            window: None,
            softcap: None,
            rotation: None,
            gated: false,
            source: KeyValues::Projected,
            qkv,
            query_norm: None,
            key_norm: None,
            norms_after_rotation: false,
            value_norm: None,
            sinks: None,
            output,
        }
    }

    /// Its activations with the widths of their rows, in the order of the forward pass.
    pub fn activations(&self) -> Vec<(Name, usize)> {
        let (query, key) = self.widths();
        let has_keys = !matches!(self.source, KeyValues::OfLayer(_));
        let mut all = vec![(Name::Query, query)];
        if has_keys {
            all.extend([(Name::Key, key), (Name::Value, key)]);
        }
        let norm = |norm: &Option<NormSpec>, name, width| norm.as_ref().map(|_| (name, width));
        let normed =
            [norm(&self.query_norm, Name::QueryNorm, query), norm(&self.key_norm, Name::KeyNorm, key)];
        let rotated = self.rotation.map(|_| (Name::QueryRope, query)).into_iter();
        let rotated = rotated.chain(self.rotation.filter(|_| has_keys).map(|_| (Name::KeyRope, key)));
        let normed = normed.into_iter().flatten();
        if self.norms_after_rotation {
            all.extend(rotated.chain(normed));
        } else {
            all.extend(normed.chain(rotated));
        }
        all.extend(norm(&self.value_norm, Name::ValueNorm, key));
        all.extend([(Name::Attention, query), (Name::AttentionOutput, self.output.outputs())]);
        all
    }

    /// Number of values of the arena that a row needs.
    pub fn values_per_row(&self) -> usize {
        let parted = if self.gated { padded(self.query_width()) } else { 0 };
        let copied = if self.source == KeyValues::OneProjection { padded(self.widths().1) } else { 0 };
        let output = padded(self.output.inputs) + padded(self.output.outputs());
        padded(self.qkv.outputs()) + parted + copied + output
    }

    /// Adds what sequences keep to the shape of their pages. Returns the index of its keys and values.
    pub(crate) fn add_to(&self, page: &mut PageShape, format: KvFormat) -> usize {
        let &Self { source, kv_heads, head_dim, .. } = self;
        if let KeyValues::OfLayer(index) = source {
            return index;
        }
        page.keys.push(KvShape { format, kv_heads, head_dim });
        page.keys.len() - 1
    }

    /// Its operations.
    pub fn operations(&self) -> MixerOperations {
        let per_key = 2 * self.heads * self.head_dim;
        MixerOperations { of_every_row: self.qkv.size(), recurrence: 0, per_key }
    }
}

impl Attention<Loaded> {
    /// Returns the queries of every row, with their gates after them, and what is added to its logits, and stores its keys and values.
    pub fn store(&self, x: Act, s: &mut Step<'_>) -> Begun {
        let (query, key) = self.widths();
        let qkv = s.linear(x, &self.qkv);
        let queries = qkv.columns(0, self.query_width());
        let queries = if self.gated { s.split_heads(queries, self.head_dim) } else { queries };
        let q = queries.columns(0, query);
        let part = |index| qkv.columns(self.query_width() + index * key, key);
        let (k, v) = match self.source {
            KeyValues::Projected => (Some(part(0)), Some(part(1))),
            KeyValues::OneProjection => (Some(part(0)), Some(s.copy(part(0)))),
            KeyValues::OfLayer(_) => (None, None),
        };
        for (name, x) in [(Name::Query, Some(q)), (Name::Key, k), (Name::Value, v)] {
            if let Some(x) = x {
                s.show(name, x);
            }
        }
        let norm = |s: &mut Step<'_>, x: Option<Act>, norm: &Option<Norm>| {
            if let (Some(x), Some(norm)) = (x, norm) {
                s.norm_heads(x, norm);
            }
        };
        let norm_heads = |s: &mut Step<'_>| {
            norm(s, Some(q), &self.query_norm);
            norm(s, k, &self.key_norm);
        };
        if !self.norms_after_rotation {
            norm_heads(s);
        }
        if let Some(rotation) = self.rotation {
            s.rope(rotation, q, self.heads);
            s.show(Name::QueryRope, q);
            if let Some(k) = k {
                s.rope(rotation, k, self.kv_heads);
                s.show(Name::KeyRope, k);
            }
            s.grow(rotation, q);
        }
        if self.norms_after_rotation {
            norm_heads(s);
        }
        norm(s, v, &self.value_norm);
        let (Some(k), Some(v)) = (k, v) else { return [queries, queries.columns(0, 0)] };
        s.store(k, v);
        let bias = s.relative_bias(q, k, self.heads, self.scale);
        [queries, bias.unwrap_or(queries.columns(0, 0))]
    }

    /// `output(softmax(q k^T + bias) v)`, with the sinks among the logits and gates on the values, of queries over the stored keys and
    /// values.
    pub fn attend(&self, [queries, bias]: Begun, s: &mut Step<'_>) -> Act {
        let &Self { heads, scale, window, softcap, .. } = self;
        let (query, _) = self.widths();
        let q = queries.columns(0, query);
        let (own, sinks) = ((bias.width() > 0).then_some(bias), self.sinks.as_deref());
        let a = s.attention(AttentionShape { heads, scale, window, softcap, bias: None, sinks }, q, own);
        s.show(Name::Attention, a);
        if self.gated {
            s.gate_output(OutputGate::Sigmoid, queries.columns(query, query), a);
        }
        let output = s.linear(a, &self.output);
        s.show(Name::AttentionOutput, output);
        output
    }
}
