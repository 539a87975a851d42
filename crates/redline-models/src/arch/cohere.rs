//! Command R, Command R7B and Command A, Aya (Cohere 2024, 2025): attention and the feed-forward part side by side after one LayerNorm,
//! rotations of neighbouring dimensions, a factor on the logits; in those of 2025 three of four layers have a window, and only these are
//! rotated.

use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::family::{self, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::rotary::Rules;
use crate::spec::{DecoderSpec, NormKind, NormsSpec, RotatedPairs};

/// In `config.json`: `CohereForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "CohereForCausalLM", model_type: "cohere", spec: cohere, gguf: Some(GGUF) };
/// In `config.json`: `Cohere2ForCausalLM`.
pub const COHERE2: Architecture =
    Architecture { name: "Cohere2ForCausalLM", model_type: "cohere2", spec: cohere2, gguf: Some(GGUF2) };

const GGUF: GgufDialect = GgufDialect::new("command-r", gguf);
const GGUF2: GgufDialect = GgufDialect::new("cohere2", gguf2);

const KEYS: &[&str] = &["attention_bias", "rope_scaling", "rope_parameters", "logit_scale"];

fn cohere(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, KEYS)?;
    let mut spec = spec(config, Vec::new())?;
    // `max_position_embeddings` of Command R is less than what it was trained on, which this key says.
    spec.context = family::dimension_or(config, "model_max_length", spec.context)?;
    Ok(spec)
}

fn cohere2(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &[KEYS, &["sliding_window", "layer_types"]].concat())?;
    family::require(config, &["num_key_value_heads", "sliding_window"])?;
    const PATTERN: &str = "sliding_window_pattern";
    let every = config.usize_or(PATTERN, 4)?;
    if every == 0 {
        return Err(config.refuse(PATTERN, "a number of at least 1").into());
    }
    let slides = |layer: usize| !(layer + 1).is_multiple_of(every);
    let mut spec = spec(config, family::windows(config, family::sliding_window(config)?, slides)?)?;
    for attention in spec.attentions_mut() {
        attention.rotation = attention.window.map(|_| 0);
    }
    Ok(spec)
}

fn spec(config: &ConfigFile, windows: Vec<Option<usize>>) -> Result<DecoderSpec, ModelError> {
    let bias = config.bool_or("attention_bias", false)?;
    let options = Options {
        qkv_bias: bias,
        output_bias: bias,
        norm: NormKind::LayerUnbiased,
        eps_key: Some("layer_norm_eps"),
        default_eps: 1e-5,
        default_tied: true,
        rotary: Rules { pairs: RotatedPairs::Neighbours, ..Rules::default() },
        windows,
        ..Options::default()
    };
    let mut spec = family::decoder(config, &options)?;
    spec.logits.scale = config.f32_or("logit_scale", 0.0625)?;
    if !spec.logits.scale.is_finite() {
        return Err(config.refuse("logit_scale", "a finite number").into());
    }
    for layer in &mut spec.layers {
        layer.residual.is_parallel = true;
        layer.mlp_norms = NormsSpec::default();
    }
    Ok(spec)
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_common()?;
    keys.set_presence("attention_bias", "blk.0.attn_q.bias");
    keys.copy_numbers(&[("attention.layer_norm_epsilon", "layer_norm_eps"), ("logit_scale", "logit_scale")])
}

fn gguf2(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    gguf(keys)?;
    let (window, slides) = (keys.count("attention.sliding_window")?, keys.slides(4)?);
    keys.config().set("sliding_window", window);
    keys.set_layer_types(&slides);
    Ok(())
}
