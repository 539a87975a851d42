//! Names of the values between the operations of a pass, for comparison with another implementation.

use std::fmt;

use redline_kernels::Rows;

/// The kind of an activation. `docs/parity.md` says where each stands in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActivationName {
    /// `[tokens, width]`: the embedding before its projection, where a family has one.
    EmbeddingNorm,
    /// `[tokens, hidden]`: tokens, with learned positions where a family has them.
    Embedding,
    /// `[tokens, layers * width]`: per-layer inputs, in families that have them: the norm of what is made of the
    /// embedding, before the token's own are added.
    LayerInputs,
    /// `[tokens, hidden]`: the norm before attention or another mixer.
    AttentionNorm,
    /// `[tokens, heads * head_dim]`: as projected, bias included.
    Query,
    /// `[tokens, kv_heads * head_dim]`
    Key,
    /// `[tokens, kv_heads * head_dim]`
    Value,
    /// The query after the norm of its heads.
    QueryNorm,
    /// The key after the norm of its heads.
    KeyNorm,
    /// The value after the norm of its heads.
    ValueNorm,
    /// The query after rotation.
    QueryRope,
    /// The key after rotation.
    KeyRope,
    /// `[tokens, heads * head_dim]`: `softmax(q k^T) v` of all heads.
    Attention,
    /// `[tokens, hidden]`: attention after its output projection.
    AttentionOutput,
    /// `[tokens, outputs]`: what a mixer with a convolution reads, as projected: both gates and the input of a short convolution; of a
    /// delta net queries, keys, values and gates; of Mamba-2 z, x, B, C and dt.
    ConvInput,
    /// `[tokens, channels]`: the convolution between its gates, or after SiLU.
    Conv,
    /// `[tokens, values]`: the outputs of a recurrence after its norm; of Mamba-2 also after its gate.
    Recurrence,
    /// `[tokens, hidden]`: the convolution or the recurrence after its output projection.
    ConvOutput,
    /// `[tokens, hidden]`: the norm of a mixer's output, in families that have one.
    AttentionOutputNorm,
    /// `[tokens, hidden]`: the residual stream with the mixer's output, before its norm, in families that have one.
    AttentionSum,
    /// `[tokens, hidden]`: the residual stream after the mixer.
    ResidualMid,
    /// `[tokens, hidden]`: the norm before the feed-forward part.
    MlpNorm,
    /// `[tokens, experts]`: what the router of a mixture of experts says of each, before the softmax.
    Router,
    /// `[tokens, inner]`: the gate's projection.
    Gate,
    /// `[tokens, inner]`: the projection that the gate multiplies.
    Up,
    /// `[tokens, inner]`: the input of the feed-forward part's last layer.
    MlpHidden,
    /// `[tokens, hidden]`: the feed-forward part's output; of its dense part where there are experts beside.
    MlpOutput,
    /// `[tokens, hidden]`: the norm of the dense part's output, where there are experts beside.
    DenseOutputNorm,
    /// `[tokens, hidden]`: the norm that the router reads, where there is a dense part beside.
    RouterNorm,
    /// `[tokens, hidden]`: the norm before the experts, where there is a dense part beside.
    ExpertsNorm,
    /// `[tokens, hidden]`: the norm of the experts' output, where there is a dense part beside.
    ExpertsOutputNorm,
    /// `[tokens, hidden]`: its norm, in families that have one.
    MlpOutputNorm,
    /// `[tokens, hidden]`: the residual stream with the feed-forward part, before its norm or the end of the layer, in families that have
    /// one.
    MlpSum,
    /// `[tokens, width]`: the layer's per-layer input, times its gate.
    LayerInput,
    /// `[tokens, hidden]`: the norm of what becomes of it.
    LayerInputNorm,
    /// `[tokens, hidden]`: the residual stream after the layer.
    Residual,
    /// `[rows, hidden]`: the last norm.
    FinalNorm,
    /// `[rows, vocab]`
    Logits,
}

impl ActivationName {
    /// All names, in the order of a pass.
    pub const ALL: &[ActivationName] = &[
        Self::EmbeddingNorm,
        Self::Embedding,
        Self::LayerInputs,
        Self::AttentionNorm,
        Self::Query,
        Self::Key,
        Self::Value,
        Self::QueryNorm,
        Self::KeyNorm,
        Self::ValueNorm,
        Self::QueryRope,
        Self::KeyRope,
        Self::Attention,
        Self::AttentionOutput,
        Self::ConvInput,
        Self::Conv,
        Self::Recurrence,
        Self::ConvOutput,
        Self::AttentionOutputNorm,
        Self::AttentionSum,
        Self::ResidualMid,
        Self::MlpNorm,
        Self::Router,
        Self::Gate,
        Self::Up,
        Self::MlpHidden,
        Self::MlpOutput,
        Self::DenseOutputNorm,
        Self::RouterNorm,
        Self::ExpertsNorm,
        Self::ExpertsOutputNorm,
        Self::MlpOutputNorm,
        Self::MlpSum,
        Self::LayerInput,
        Self::LayerInputNorm,
        Self::Residual,
        Self::FinalNorm,
        Self::Logits,
    ];

    /// The name in reference dumps.
    pub fn name(self) -> &'static str {
        match self {
            Self::EmbeddingNorm => "embedding_norm",
            Self::Embedding => "embedding",
            Self::LayerInputs => "layer_inputs",
            Self::AttentionNorm => "attention_norm",
            Self::Query => "query",
            Self::Key => "key",
            Self::Value => "value",
            Self::QueryNorm => "query_norm",
            Self::KeyNorm => "key_norm",
            Self::ValueNorm => "value_norm",
            Self::QueryRope => "query_rope",
            Self::KeyRope => "key_rope",
            Self::Attention => "attention",
            Self::AttentionOutput => "attention_output",
            Self::ConvInput => "conv_input",
            Self::Conv => "conv",
            Self::Recurrence => "recurrence",
            Self::ConvOutput => "conv_output",
            Self::AttentionOutputNorm => "attention_output_norm",
            Self::AttentionSum => "attention_sum",
            Self::ResidualMid => "residual_mid",
            Self::MlpNorm => "mlp_norm",
            Self::Router => "router",
            Self::Gate => "gate",
            Self::Up => "up",
            Self::MlpHidden => "mlp_hidden",
            Self::MlpOutput => "mlp_output",
            Self::DenseOutputNorm => "dense_output_norm",
            Self::RouterNorm => "router_norm",
            Self::ExpertsNorm => "experts_norm",
            Self::ExpertsOutputNorm => "experts_output_norm",
            Self::MlpOutputNorm => "mlp_output_norm",
            Self::MlpSum => "mlp_sum",
            Self::LayerInput => "layer_input",
            Self::LayerInputNorm => "layer_input_norm",
            Self::Residual => "residual",
            Self::FinalNorm => "final_norm",
            Self::Logits => "logits",
        }
    }
}

/// Identifies an activation of a pass: `layers.3.query`, or `logits` outside the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActivationId {
    /// The layer, from 0; `None` before and after the layers.
    pub layer: Option<usize>,
    /// The kind of activation.
    pub name: ActivationName,
}

impl fmt::Display for ActivationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(layer) = self.layer {
            write!(f, "layers.{layer}.")?;
        }
        f.write_str(self.name.name())
    }
}

/// Some rows of an activation. Logits and the final norm may arrive in several pieces, in order.
#[derive(Clone, Copy, Debug)]
pub struct Activation<'a> {
    /// The activation's identity.
    pub id: ActivationId,
    /// `[rows, width]`
    pub values: Rows<'a>,
}
