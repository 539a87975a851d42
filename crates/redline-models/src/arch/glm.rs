//! Dense models of GLM-4 (Zhipu AI 2024, 2025): biases on queries, keys and values, half of each head rotated in pairs of neighbouring
//! dimensions; those of 2025 with norms before and after attention and the feed-forward part.

use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::family::{self, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::rotary::Rules;
use crate::spec::{DecoderSpec, NormSpec, RotatedPairs};

/// In `config.json`: `GlmForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "GlmForCausalLM", model_type: "glm", spec, gguf: None };
/// In `config.json`: `Glm4ForCausalLM`.
pub const GLM4: Architecture =
    Architecture { name: "Glm4ForCausalLM", model_type: "glm4", spec: glm4, gguf: Some(GGUF) };

const GGUF: GgufDialect = GgufDialect::new("glm4", gguf);

const KEYS: &[&str] = &["attention_bias", "rope_scaling", "rope_parameters", "partial_rotary_factor"];

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, KEYS)?;
    family::require(config, &["num_key_value_heads", "head_dim"])?;
    let options = Options {
        qkv_bias: config.bool_or("attention_bias", true)?,
        fused_gate: true,
        rotary: Rules { partial: Some(0.5), pairs: RotatedPairs::Neighbours, ..Rules::default() },
        default_eps: 1.562_5e-7,
        ..Options::default()
    };
    family::decoder(config, &options)
}

fn glm4(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let mut spec = spec(config)?;
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        for (norms, after) in [
            (&mut layer.mixer_norms, "post_self_attn_layernorm"),
            (&mut layer.mlp_norms, "post_mlp_layernorm"),
        ] {
            let like = |norm: &NormSpec| NormSpec { name: format!("layers.{i}.{after}"), ..norm.clone() };
            norms.after = norms.before.as_ref().map(like);
        }
    }
    Ok(spec)
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_common()?;
    keys.set_presence("attention_bias", "blk.0.attn_q.bias");
    Ok(())
}
