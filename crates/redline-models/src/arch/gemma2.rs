//! Gemma 2 (Gemma Team 2024): norms before and after attention and the feed-forward part, soft caps, a window in every other layer.

use redline_weights::{ConfigFile, WeightsError};

use super::Architecture;
use crate::ModelError;
use crate::family::{self, Gate, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::spec::{DecoderSpec, NormKind, NormSpec, NormsSpec};

/// In `config.json`: `Gemma2ForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "Gemma2ForCausalLM", model_type: "gemma2", spec, gguf: Some(GGUF) };
/// In `config.json`: `Gemma2ForSequenceClassification`.
pub const CLASSIFIER: Architecture = Architecture {
    name: "Gemma2ForSequenceClassification",
    model_type: "gemma2",
    spec: |config| family::classifier(config, spec(config)?),
    gguf: None,
};

/// Keys that Gemma 2 and 3 honour.
pub(super) const KEYS: &[&str] = &[
    "attention_bias",
    "sliding_window",
    "layer_types",
    "rope_scaling",
    "rope_parameters",
    "query_pre_attn_scalar",
    "attn_logit_softcapping",
    "final_logit_softcapping",
];

/// Keys that they need: in the reference these default to the values of one published model.
pub(super) const NEEDED: &[&str] =
    &["num_key_value_heads", "head_dim", "query_pre_attn_scalar", "sliding_window"];

const GGUF: GgufDialect = GgufDialect::new("gemma2", gguf);

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, KEYS)?;
    family::require(config, NEEDED)?;
    let windows = family::windows(config, family::sliding_window(config)?, |layer| layer % 2 == 0)?;
    let mut spec = family::decoder(config, &options(config, windows)?)?;
    finish(config, &mut spec, (Some(50.0), Some(30.0)))?;
    Ok(spec)
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    set_keys(keys, 46)?;
    keys.copy_numbers(&[("attn_logit_softcapping", "attn_logit_softcapping")])?;
    let value = keys.opt_count("attention.sliding_window")?.unwrap_or(4096);
    keys.config().set("sliding_window", value);
    let slides = keys.slides(2)?;
    keys.set_layer_types(&slides);
    Ok(())
}

/// Keys of GGUF files of both versions. The models of 27 billion parameters, which have this number of layers, scale the logits of
/// attention in another way, which is not stored.
pub(super) fn set_keys(keys: &mut Keys<'_>, layers_of_27b: usize) -> Result<(), ModelError> {
    keys.set_common()?;
    keys.copy_numbers(&[("final_logit_softcapping", "final_logit_softcapping")])?;
    keys.config().set("hidden_activation", "gelu_pytorch_tanh");
    let scalar = if keys.layers()? == layers_of_27b {
        keys.count("embedding_length")? / keys.count("attention.head_count")?.max(1)
    } else {
        keys.head_dim()?
    };
    keys.config().set("query_pre_attn_scalar", scalar);
    Ok(())
}

/// The options of both versions.
pub(super) fn options(config: &ConfigFile, windows: Vec<Option<usize>>) -> Result<Options, ModelError> {
    let bias = config.bool_or("attention_bias", false)?;
    Ok(Options {
        qkv_bias: bias,
        output_bias: bias,
        norm: NormKind::RmsPlusOne,
        gate: Gate::Gelu,
        default_tied: true,
        windows,
        default_eps: 1e-6,
        ..Options::default()
    })
}

/// What both versions have beyond the family: scales, caps and norms. `caps` are the caps on the logits of attention and of the head
/// if their keys are absent; the keys may also be null.
pub(super) fn finish(
    config: &ConfigFile,
    spec: &mut DecoderSpec,
    caps: (Option<f32>, Option<f32>),
) -> Result<(), ModelError> {
    let attention_cap = cap(config, "attn_logit_softcapping", caps.0)?;
    let logit_cap = cap(config, "final_logit_softcapping", caps.1)?;
    let scalar = config.f32("query_pre_attn_scalar")?;
    if !(scalar > 0.0 && scalar.is_finite()) {
        return Err(config.refuse("query_pre_attn_scalar", "a positive number").into());
    }
    spec.embedding_scale = (spec.hidden as f32).sqrt();
    spec.logits.softcap = logit_cap;
    for attention in spec.attentions_mut() {
        (attention.scale, attention.softcap) = (1.0 / scalar.sqrt(), attention_cap);
    }
    norm_around(spec);
    Ok(())
}

/// A soft cap, `default` if the key is absent; it may also be null.
pub(super) fn cap(config: &ConfigFile, key: &str, default: Option<f32>) -> Result<Option<f32>, WeightsError> {
    if !config.keys().any(|name| name == key) {
        return Ok(default);
    }
    match config.opt_f32(key)? {
        Some(cap) if !(cap > 0.0 && cap.is_finite()) => {
            Err(config.refuse(key, "a positive number or `null`"))
        }
        cap => Ok(cap),
    }
}

/// Puts norms before and after attention and the feed-forward part.
pub(super) fn norm_around(spec: &mut DecoderSpec) {
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        let norm = |name| {
            let like = |norm: &NormSpec| NormSpec { name: format!("layers.{i}.{name}"), ..norm.clone() };
            spec.final_norm.as_ref().map(like)
        };
        let around = |before, after| NormsSpec { before: norm(before), after: norm(after), sum: None };
        layer.mixer_norms = around("input_layernorm", "post_attention_layernorm");
        layer.mlp_norms = around("pre_feedforward_layernorm", "post_feedforward_layernorm");
    }
}
