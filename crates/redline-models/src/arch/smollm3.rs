//! SmolLM3 (Hugging Face 2025): Llama without rotation in every fourth layer.

use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::family::{self, Options, config_error};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::rotary::Rules;
use crate::spec::DecoderSpec;

/// In `config.json`: `SmolLM3ForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "SmolLM3ForCausalLM", model_type: "smollm3", spec, gguf: Some(GGUF) };

const KEYS: &[&str] = &[
    "attention_bias",
    "mlp_bias",
    "use_sliding_window",
    "sliding_window",
    "layer_types",
    "rope_scaling",
    "rope_parameters",
    "no_rope_layers",
    "no_rope_layer_interval",
];

const GGUF: GgufDialect = GgufDialect { pairs_rows: true, ..GgufDialect::new("smollm3", gguf) };

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, KEYS)?;
    family::require(config, &["num_key_value_heads"])?;
    let rotated = rotated(config)?;
    let in_use = config.bool_or("use_sliding_window", false)?;
    let window = if in_use { family::sliding_window(config)? } else { None };
    let bias = config.bool_or("attention_bias", false)?;
    let options = Options {
        qkv_bias: bias,
        output_bias: bias,
        mlp_bias: config.bool_or("mlp_bias", false)?,
        windows: family::windows(config, window, |layer| !rotated[layer])?,
        rotary: Rules { default_theta: 2_000_000.0, ..Rules::default() },
        default_tied: true,
        default_eps: 1e-6,
        ..Options::default()
    };
    let mut spec = family::decoder(config, &options)?;
    for (attention, rotated) in spec.attentions_mut().zip(rotated) {
        attention.rotation = rotated.then_some(0);
    }
    Ok(spec)
}

/// Which layers rotate is not stored: the defaults apply, as in llama.cpp.
fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_common()?;
    keys.set_presence("attention_bias", "blk.0.attn_q.bias");
    keys.set_presence("mlp_bias", "blk.0.ffn_gate.bias");
    Ok(())
}

/// Whether each layer rotates: `no_rope_layers` has 1 for those that do. If it is absent, every `no_rope_layer_interval`th does not.
fn rotated(config: &ConfigFile) -> Result<Vec<bool>, ModelError> {
    let layers = family::layers(config, "num_hidden_layers")?;
    let listed = config.numbers("no_rope_layers")?;
    if listed.is_empty() {
        return match config.usize_or("no_rope_layer_interval", 4)? {
            0 => Err(config.refuse("no_rope_layer_interval", "a number of at least 1").into()),
            interval => Ok((1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect()),
        };
    }
    if listed.len() != layers {
        let fact = format!("`no_rope_layers` has {} entries for {layers} layers", listed.len());
        return Err(config_error(config, fact));
    }
    Ok(listed.iter().map(|entry| *entry != 0.0).collect())
}
