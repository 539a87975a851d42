//! GPT-2 (Radford et al. 2019): learned positions, LayerNorm, `Conv1D` weights stored `[in, out]`, tied head.

use redline_kernels::op::activation::ActivationFunction;
use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::family::{check_eps, check_head_dim, config_error, dimension_or, layers, positive};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::spec::{
    AttentionSpec, DecoderSpec, FfnSpec, HEAD, LayerSpec, LinearSpec, MixerSpec, MlpSpec, NormKind, NormSpec,
    NormsSpec, Orientation, PositionSpec, PositionTableSpec, Residual,
};

/// In `config.json`: `GPT2LMHeadModel`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "GPT2LMHeadModel", model_type: "gpt2", spec, gguf: Some(GGUF) };

const GGUF: GgufDialect = GgufDialect::new("gpt2", gguf);

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    // `reorder_and_upcast_attn` changes where the reference rounds, not what it computes.
    keys::refuse_unknown(config, &["scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"])?;
    if !matches!(config.opt_str("activation_function")?, None | Some("gelu_new" | "gelu_pytorch_tanh")) {
        return Err(config.refuse("activation_function", "`gelu_new`").into());
    }
    let hidden = positive(config, "n_embd")?;
    let heads = positive(config, "n_head")?;
    if hidden % heads != 0 {
        return Err(config_error(config, format!("`n_embd` {hidden} is not a multiple of `n_head` {heads}")));
    }
    check_head_dim(config, hidden / heads)?;
    let inner = dimension_or(config, "n_inner", 4 * hidden)?;
    let eps = check_eps(config, "layer_norm_epsilon", config.f32_or("layer_norm_epsilon", 1e-5)?)?;
    let norm = |name: String| NormSpec { name, width: hidden, eps, kind: NormKind::Layer };
    let before = |name| NormsSpec::before(norm(name));
    let conv =
        |name: String, inputs, outputs| LinearSpec::of(Orientation::InOut, inputs, [(name, outputs, true)]);
    let scale_by_root = config.bool_or("scale_attn_weights", true)?;
    let scale_by_layer = config.bool_or("scale_attn_by_inverse_layer_idx", false)?;
    let scale = |layer: usize| {
        let root = if scale_by_root { 1.0 / ((hidden / heads) as f32).sqrt() } else { 1.0 };
        if scale_by_layer { root / (layer + 1) as f32 } else { root }
    };
    let layer = |i: usize| LayerSpec {
        mixer: MixerSpec::Attention({
            let qkv = conv(format!("h.{i}.attn.c_attn"), hidden, 3 * hidden);
            let output = conv(format!("h.{i}.attn.c_proj"), hidden, hidden);
            AttentionSpec { scale: scale(i), ..AttentionSpec::new(heads, heads, hidden / heads, qkv, output) }
        }),
        mixer_norms: before(format!("h.{i}.ln_1")),
        mlp: FfnSpec::Dense(MlpSpec {
            activation: ActivationFunction::GeluNew,
            gate: None,
            up: conv(format!("h.{i}.mlp.c_fc"), hidden, inner),
            down: conv(format!("h.{i}.mlp.c_proj"), inner, hidden),
        }),
        mlp_norms: before(format!("h.{i}.ln_2")),
        residual: Residual::default(),
        end: None,
    };
    Ok(DecoderSpec {
        prefix: "transformer.",
        hidden,
        vocab: positive(config, "vocab_size")?,
        context: positive(
            config,
            if config.opt_usize("n_positions")?.is_some() { "n_positions" } else { "n_ctx" },
        )?,
        embedding: "wte".into(),
        positions: PositionSpec::Learned(PositionTableSpec { name: "wpe".into(), unused: 0 }),
        layers: (0..layers(config, "n_layer")?).map(layer).collect(),
        final_norm: Some(norm("ln_f".into())),
        tied: config.bool_or("tie_word_embeddings", true)?,
        outside: &[HEAD],
        ignored: &[".attn.bias", ".attn.masked_bias"],
        ..DecoderSpec::default()
    })
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    let sizes = [
        ("n_positions", keys.count("context_length")?),
        ("n_embd", keys.count("embedding_length")?),
        ("n_layer", keys.count("block_count")?),
        ("n_inner", keys.count("feed_forward_length")?),
        ("n_head", keys.count("attention.head_count")?),
    ];
    for (key, size) in sizes {
        keys.config().set(key, size);
    }
    if keys.kv_heads()? != keys.count("attention.head_count")? {
        return Err(keys.refuse("attention.head_count_kv", "the number of heads"));
    }
    let value = keys.vocab()?;
    keys.config().set("vocab_size", value);
    let value = keys.is_tied();
    keys.config().set("tie_word_embeddings", value);
    keys.copy_numbers(&[("attention.layer_norm_epsilon", "layer_norm_epsilon")])
}
