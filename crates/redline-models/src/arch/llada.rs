//! LLaDA (Nie et al. 2025): a Llama-like decoder with OLMo's tensor names and bidirectional attention. Row j of the logits
//! predicts token j.

use redline_kernels::op::activation::{ActivationFunction, Gating};
use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::family::{check_eps, check_head_dim, config_error, dimension_or, layers, positive, require};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::rotary::{self, Rules};
use crate::spec::{
    AttentionSpec, DecoderSpec, FfnSpec, LayerSpec, LinearSpec, MixerSpec, MlpSpec, NormKind, NormSpec,
    NormsSpec, Objective, Orientation, PositionSpec, Residual,
};

/// In `config.json`: `LLaDAModelLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "LLaDAModelLM", model_type: "llada", spec, gguf: Some(GGUF) };

/// Keys of OLMo's family that change the result unless they are absent or false.
const OFF: &[&str] = &[
    "alibi",
    "attention_layer_norm",
    "bias_for_layer_norm",
    "include_bias",
    "input_emb_norm",
    "multi_query_attention",
    "scale_logits",
];
/// Keys that must have this value.
const FIXED: &[(&str, &str)] =
    &[("activation_type", "silu"), ("block_type", "llama"), ("layer_norm_type", "rms")];

const GGUF: GgufDialect = GgufDialect { pairs_rows: true, ..GgufDialect::new("llada", gguf) };

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    // The checkpoints include the reference's code (`auto_map`).
    keys::refuse_unknown(config, &["auto_map"])?;
    refuse_variants(config)?;
    // The defaults of the reference's configuration belong to another model.
    require(config, &["n_layers", "rms_norm_eps", "rope_theta", "weight_tying"])?;
    let hidden = positive(config, "d_model")?;
    let attention = Heads::read(config, hidden)?;
    let inner = positive(config, "mlp_hidden_size")?;
    let eps = check_eps(config, "rms_norm_eps", config.f32("rms_norm_eps")?)?;
    let norm = |name: String| NormSpec { name, width: hidden, eps, kind: NormKind::Rms };
    let before = |name| NormsSpec::before(norm(name));
    let layer = |i: usize| {
        let name = |part: &str| format!("blocks.{i}.{part}");
        let gate_up = ["ff_proj", "up_proj"].map(|part| (name(part), inner, false));
        LayerSpec {
            mixer: MixerSpec::Attention(attention.spec(hidden, name)),
            mixer_norms: before(name("attn_norm")),
            mlp: FfnSpec::Dense(MlpSpec {
                activation: ActivationFunction::None,
                gate: Some(Gating::Function(ActivationFunction::Silu)),
                up: LinearSpec::of(Orientation::OutIn, hidden, gate_up),
                down: LinearSpec::plain(name("ff_out"), inner, hidden),
            }),
            mlp_norms: before(name("ff_norm")),
            residual: Residual::default(),
            end: None,
        }
    };
    Ok(DecoderSpec {
        prefix: "model.transformer.",
        hidden,
        // The embedding and the head may have more rows than the tokenizer has tokens.
        vocab: dimension_or(config, "embedding_size", positive(config, "vocab_size")?)?,
        context: positive(config, "max_sequence_length")?,
        embedding: "wte".into(),
        positions: PositionSpec::Rotary(vec![rotary::rotation(config, attention.dim, Rules::default())?]),
        layers: (0..layers(config, "n_layers")?).map(layer).collect(),
        final_norm: Some(norm("ln_f".into())),
        tied: config.bool_or("weight_tying", false)?,
        head: "ff_out.weight",
        objective: Objective::MASKED,
        ..DecoderSpec::default()
    })
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.sees_both_sides();
    let sizes = [
        ("max_sequence_length", keys.count("context_length")?),
        ("d_model", keys.count("embedding_length")?),
        ("n_layers", keys.count("block_count")?),
        ("mlp_hidden_size", keys.count("feed_forward_length")?),
        ("n_heads", keys.count("attention.head_count")?),
        ("n_kv_heads", keys.kv_heads()?),
    ];
    for (key, size) in sizes {
        keys.config().set(key, size);
    }
    for (key, value) in FIXED {
        keys.config().set(key, *value);
    }
    keys.set_presence("include_qkv_bias", "blk.0.attn_q.bias");
    let value = keys.vocab()?;
    keys.config().set("vocab_size", value);
    let value = keys.is_tied();
    keys.config().set("weight_tying", value);
    keys.copy_numbers(&[("attention.layer_norm_rms_epsilon", "rms_norm_eps")])?;
    keys.set_rotation()
}

/// OLMo's code has many variants; LLaDA is one of them.
fn refuse_variants(config: &ConfigFile) -> Result<(), ModelError> {
    for key in OFF {
        if config.bool_or(key, false)? {
            return Err(config.refuse(key, "`false`").into());
        }
    }
    for (key, value) in FIXED {
        if config.opt_str(key)? != Some(value) {
            return Err(config.refuse(key, format!("`{value}`")).into());
        }
    }
    for key in ["rope", "layer_norm_with_affine"] {
        if !config.bool_or(key, true)? {
            return Err(config.refuse(key, "`true`").into());
        }
    }
    Ok(())
}

/// Query heads, KV heads and values per head.
struct Heads {
    query: usize,
    kv: usize,
    dim: usize,
    bias: bool,
}

impl Heads {
    fn read(config: &ConfigFile, hidden: usize) -> Result<Self, ModelError> {
        let query = positive(config, "n_heads")?;
        let kv = dimension_or(config, "n_kv_heads", query)?;
        if hidden % query != 0 || query % kv != 0 {
            let fact = format!(
                "`d_model` {hidden} must be a multiple of `n_heads` {query}, and that of `n_kv_heads` {kv}"
            );
            return Err(config_error(config, fact));
        }
        let dim = hidden / query;
        check_head_dim(config, dim)?;
        if dim % 2 != 0 {
            return Err(config_error(config, format!("a head of {dim} values is odd and cannot be rotated")));
        }
        Ok(Self { query, kv, dim, bias: config.bool_or("include_qkv_bias", false)? })
    }

    fn spec(&self, hidden: usize, name: impl Fn(&str) -> String) -> AttentionSpec {
        let (query, kv) = (self.query * self.dim, self.kv * self.dim);
        let parts = [("q_proj", query), ("k_proj", kv), ("v_proj", kv)];
        let parts = parts.map(|(part, outputs)| (name(part), outputs, self.bias));
        let qkv = LinearSpec::of(Orientation::OutIn, hidden, parts);
        let output = LinearSpec::plain(name("attn_out"), query, hidden);
        AttentionSpec { rotation: Some(0), ..AttentionSpec::new(self.query, self.kv, self.dim, qkv, output) }
    }
}
