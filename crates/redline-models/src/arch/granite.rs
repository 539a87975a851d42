//! Granite 3 (IBM 2024): Llama with factors on embedding, attention, residual stream and logits.

use redline_weights::{ConfigFile, WeightsError};

use super::Architecture;
use crate::ModelError;
use crate::family::{self, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::spec::DecoderSpec;

/// In `config.json`: `GraniteForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "GraniteForCausalLM", model_type: "granite", spec, gguf: Some(GGUF) };

const GGUF: GgufDialect = GgufDialect { pairs_rows: true, ..GgufDialect::new("granite", gguf) };

/// The epsilon of the norms if its key is absent.
pub(super) const DEFAULT_EPS: f32 = 1e-6;

/// Keys that Granite 3 and 4 honour.
pub(super) const KEYS: &[&str] = &[
    "attention_bias",
    "mlp_bias",
    "rope_scaling",
    "rope_parameters",
    "embedding_multiplier",
    "attention_multiplier",
    "residual_multiplier",
    "logits_scaling",
];

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, KEYS)?;
    decoder(config)
}

/// The decoder with its factors.
pub(super) fn decoder(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let bias = config.bool_or("attention_bias", false)?;
    let options = Options {
        qkv_bias: bias,
        output_bias: bias,
        mlp_bias: config.bool_or("mlp_bias", false)?,
        default_eps: DEFAULT_EPS,
        ..Options::default()
    };
    let mut spec = family::decoder(config, &options)?;
    spec.embedding_scale = factor(config, "embedding_multiplier")?;
    spec.logits.scale = 1.0 / factor(config, "logits_scaling")?;
    let (attention, residual) =
        (factor(config, "attention_multiplier")?, factor(config, "residual_multiplier")?);
    spec.attentions_mut().for_each(|it| it.scale = attention);
    for layer in &mut spec.layers {
        (layer.residual.mixer_scale, layer.residual.mlp_scale) = (residual, residual);
    }
    Ok(spec)
}

/// Reads a factor, 1 if the key is absent.
pub(super) fn factor(config: &ConfigFile, key: &str) -> Result<f32, WeightsError> {
    let factor = config.f32_or(key, 1.0)?;
    if factor > 0.0 && factor.is_finite() { Ok(factor) } else { Err(config.refuse(key, "a positive number")) }
}

/// In GGUF files, whether queries and keys are rotated.
pub(super) const FINETUNED: &str = "rope.scaling.finetuned";

/// Dense models of Granite 4 have this name, too, with keys of the layers and experts that they do not have.
fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_common()?;
    keys.leave_out(&[
        "ssm.conv_kernel",
        "ssm.state_size",
        "ssm.group_count",
        "ssm.inner_size",
        "ssm.time_step_rank",
    ]);
    if keys.opt_bool(FINETUNED)? == Some(false) {
        return Err(keys.refuse(FINETUNED, "`true`, with which queries and keys are rotated"));
    }
    if let Some(inner) = keys.opt_count("expert_shared_feed_forward_length")?.filter(|inner| *inner > 0) {
        keys.config().set("intermediate_size", inner);
    }
    keys.set_presence("attention_bias", "blk.0.attn_q.bias");
    keys.set_presence("mlp_bias", "blk.0.ffn_gate.bias");
    copy_factors(keys)
}

/// Copies the factors.
pub(super) fn copy_factors(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.copy_numbers(&[
        ("embedding_scale", "embedding_multiplier"),
        ("attention.scale", "attention_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("logit_scale", "logits_scaling"),
    ])
}
