//! GTE (Zhang et al. 2024, mGTE): BERT with rotary positions and gates.

use redline_kernels::op::activation::ActivationFunction;
use redline_weights::ConfigFile;

use super::Architecture;
use super::bert::{self, LayerParts, Shape};
use crate::ModelError;
use crate::family::dimension_or;
use crate::keys;
use crate::rotary::Rules;
use crate::spec::{DecoderSpec, LinearSpec};

/// In `config.json`: `GteModel`, which transformers has.
pub const MODEL: Architecture = Architecture { name: "GteModel", model_type: "gte", spec: gte, gguf: None };
/// In `config.json`: `GteForMaskedLM`, an encoder too, whose head makes sparse vectors.
pub const MASKED: Architecture =
    Architecture { name: "GteForMaskedLM", spec: |config| masked(config, gte(config)?), ..MODEL };
/// In `config.json`: `GteForSequenceClassification`.
pub const CLASSIFIER: Architecture = Architecture {
    name: "GteForSequenceClassification",
    spec: |config| classifier(config, gte(config)?),
    ..MODEL
};
/// In `config.json`: `NewModel`, as the published models say, whose code comes with them.
pub const NEW_MODEL: Architecture =
    Architecture { name: "NewModel", model_type: "new", spec: new, gguf: None };
/// In `config.json`: `NewForTokenClassification`, of which the encoder is read.
pub const NEW_TOKENS: Architecture = Architecture { name: "NewForTokenClassification", ..NEW_MODEL };
/// In `config.json`: `NewForMaskedLM`.
pub const NEW_MASKED: Architecture =
    Architecture { name: "NewForMaskedLM", spec: |config| masked(config, new(config)?), ..NEW_MODEL };
/// In `config.json`: `NewForSequenceClassification`.
pub const NEW_CLASSIFIER: Architecture = Architecture {
    name: "NewForSequenceClassification",
    spec: |config| classifier(config, new(config)?),
    ..NEW_MODEL
};

/// Layers of what the encoders were trained for.
const UNUSED: &[&str] = &[bert::POOLER[0], bert::POOLER[1], "lm_head.", "classifier."];

fn layer_parts(shape: &Shape, layer: usize) -> LayerParts {
    let &Shape { hidden, inner, .. } = shape;
    let name = |part: &str| format!("encoder.layer.{layer}.{part}");
    LayerParts {
        qkv: bert::biased(name("attention.qkv_proj"), hidden, 3 * hidden),
        attention_output: bert::biased(name("attention.o_proj"), hidden, hidden),
        attention_norm: name("attn_ln"),
        // The gate is the second half of the tensor.
        up: LinearSpec::joined(
            (hidden, inner),
            &name("mlp.up_gate_proj"),
            [(name("mlp.gate_proj"), 1), (name("mlp.up_proj"), 0)],
        ),
        down: bert::biased(name("mlp.down_proj"), inner, hidden),
        norm: name("mlp_ln"),
    }
}

fn gte(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    spec(config, "gte.", 160_000.0)
}

fn new(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    for (key, supported) in [("layer_norm_type", "layer_norm"), ("position_embedding_type", "rope")] {
        if config.opt_str(key)?.is_some_and(|value| value != supported) {
            return Err(config.refuse(key, format!("`{supported}`")).into());
        }
    }
    if config.bool_or("logn_attention_scale", false)? {
        return Err(config.refuse("logn_attention_scale", "`false`").into());
    }
    if !config.bool_or("pack_qkv", true)? {
        return Err(config.refuse("pack_qkv", "`true`").into());
    }
    spec(config, "new.", 10_000.0)
}

/// The encoder without a head.
fn spec(config: &ConfigFile, prefix: &'static str, default_theta: f64) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &["auto_map", "rope_parameters", "rope_scaling"])?;
    let shape = Shape::read(config, &bert::KEYS)?;
    let types = match config.opt_usize("type_vocab_size")? {
        Some(0) => 0,
        _ => dimension_or(config, "type_vocab_size", 1)?,
    };
    let rules = Rules { default_theta, ntk: true, ..Rules::default() };
    let spec = Shape { types, gated: true, ..shape }.rotated(config, rules, layer_parts)?;
    Ok(DecoderSpec { prefix, ignored: UNUSED, ..spec })
}

/// The encoder with what makes logits.
fn masked(config: &ConfigFile, mut spec: DecoderSpec) -> Result<DecoderSpec, ModelError> {
    let names = ["lm_head.dense", "lm_head.norm", "lm_head.decoder.bias"];
    bert::add_logits(config, &mut spec, names, bert::activation(config, "hidden_act")?)?;
    spec.outside = &["lm_head."];
    spec.ignored = &[bert::POOLER[0], bert::POOLER[1], "lm_head.decoder.weight"];
    Ok(spec)
}

/// The pooler's layer with tanh, then one output for each class, on the state of the first token.
fn classifier(config: &ConfigFile, mut spec: DecoderSpec) -> Result<DecoderSpec, ModelError> {
    bert::classify(config, &mut spec, ["pooler.dense", "classifier"], ActivationFunction::Tanh)?;
    Ok(spec)
}
