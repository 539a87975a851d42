//! Qwen2 and Qwen2.5 (Yang et al. 2024): biases on queries, keys and values.

use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::family::{self, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::spec::DecoderSpec;

/// In `config.json`: `Qwen2ForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "Qwen2ForCausalLM", model_type: "qwen2", spec, gguf: Some(GGUF) };
/// In `config.json`: `Qwen2ForSequenceClassification`.
pub const CLASSIFIER: Architecture = Architecture {
    name: "Qwen2ForSequenceClassification",
    model_type: "qwen2",
    spec: |config| family::classifier(config, spec(config)?),
    gguf: None,
};

const GGUF: GgufDialect = GgufDialect::new("qwen2", gguf);

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(
        config,
        &["use_sliding_window", "sliding_window", "layer_types", "rope_scaling", "rope_parameters"],
    )?;
    family::require(config, &["num_key_value_heads"])?;
    let options =
        Options { qkv_bias: true, windows: windows(config)?, default_eps: 1e-6, ..Options::default() };
    family::decoder(config, &options)
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_common()
}

/// The window applies only if `use_sliding_window` is set, from layer `max_window_layers` on.
pub(super) fn windows(config: &ConfigFile) -> Result<Vec<Option<usize>>, ModelError> {
    let in_use = config.bool_or("use_sliding_window", false)?;
    let window = if in_use { family::sliding_window(config)? } else { None };
    let first = config.usize_or("max_window_layers", 28)?;
    family::windows(config, window, |layer| layer >= first)
}
