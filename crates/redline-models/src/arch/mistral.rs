//! Mistral (Jiang et al. 2023): Llama with a sliding window on every layer.

use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::family::{self, Options};
use crate::keys;
use crate::spec::DecoderSpec;

/// In `config.json`: `MistralForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "MistralForCausalLM", model_type: "mistral", spec, gguf: None };
/// In `config.json`: `MistralForSequenceClassification`.
pub const CLASSIFIER: Architecture = Architecture {
    name: "MistralForSequenceClassification",
    model_type: "mistral",
    spec: |config| family::classifier(config, spec(config)?),
    gguf: None,
};

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &["sliding_window", "rope_scaling", "rope_parameters"])?;
    // In the reference these default to Mistral 7B's values, which are rarely right for a file without them.
    family::require(config, &["sliding_window", "num_key_value_heads"])?;
    let options = Options {
        windows: family::windows(config, family::sliding_window(config)?, |_| true)?,
        default_eps: 1e-6,
        ..Options::default()
    };
    family::decoder(config, &options)
}
