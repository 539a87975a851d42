//! Qwen3 (Yang et al. 2025): RMSNorm on every query and key head, explicit `head_dim`.

use redline_weights::ConfigFile;

use super::Architecture;
use super::qwen2::windows;
use crate::ModelError;
use crate::family::{self, HeadNorms, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::spec::DecoderSpec;

/// In `config.json`: `Qwen3ForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "Qwen3ForCausalLM", model_type: "qwen3", spec, gguf: Some(GGUF) };
/// In `config.json`: `Qwen3ForSequenceClassification`.
pub const CLASSIFIER: Architecture = Architecture {
    name: "Qwen3ForSequenceClassification",
    model_type: "qwen3",
    spec: |config| family::classifier(config, spec(config)?),
    gguf: None,
};

const GGUF: GgufDialect = GgufDialect::new("qwen3", gguf);

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(
        config,
        &[
            "attention_bias",
            "use_sliding_window",
            "sliding_window",
            "layer_types",
            "rope_scaling",
            "rope_parameters",
        ],
    )?;
    family::require(config, &["num_key_value_heads", "head_dim"])?;
    let bias = config.bool_or("attention_bias", false)?;
    let options = Options {
        qkv_bias: bias,
        output_bias: bias,
        head_norms: HeadNorms::Each,
        windows: windows(config)?,
        default_eps: 1e-6,
        ..Options::default()
    };
    family::decoder(config, &options)
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_presence("attention_bias", "blk.0.attn_q.bias");
    // A reranker: of the head, only the rows of yes and no.
    if keys.set_classes()? {
        keys.rename(CLASSIFIER.name, CLASSIFIER.model_type);
    }
    keys.set_common()
}
