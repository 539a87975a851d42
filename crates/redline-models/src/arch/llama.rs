//! Llama 2 and 3.x (Touvron et al. 2023; Meta 2024): grouped-query attention, llama3 rope scaling.

use redline_weights::ConfigFile;

use super::{Architecture, mixtral};
use crate::ModelError;
use crate::family::{self, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::spec::DecoderSpec;

/// In `config.json`: `LlamaForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "LlamaForCausalLM", model_type: "llama", spec, gguf: Some(GGUF) };
/// In `config.json`: `LlamaForSequenceClassification`.
pub const CLASSIFIER: Architecture = Architecture {
    name: "LlamaForSequenceClassification",
    model_type: "llama",
    spec: |config| family::classifier(config, spec(config)?),
    gguf: None,
};

const GGUF: GgufDialect = GgufDialect { pairs_rows: true, ..GgufDialect::new("llama", gguf) };

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &["attention_bias", "mlp_bias", "rope_scaling", "rope_parameters"])?;
    let bias = config.bool_or("attention_bias", false)?;
    let options = Options {
        qkv_bias: bias,
        output_bias: bias,
        mlp_bias: config.bool_or("mlp_bias", false)?,
        default_eps: 1e-6,
        ..Options::default()
    };
    family::decoder(config, &options)
}

/// Mistral's models have this name, too, and with experts those of Mixtral.
fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    if keys.opt_count("expert_count")?.is_some_and(|experts| experts > 0) {
        return mixtral::gguf(keys);
    }
    keys.set_common()?;
    keys.set_presence("attention_bias", "blk.0.attn_q.bias");
    keys.set_presence("mlp_bias", "blk.0.ffn_gate.bias");
    Ok(())
}
