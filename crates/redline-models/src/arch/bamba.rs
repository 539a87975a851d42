//! Bamba (IBM, Princeton, CMU and UIUC 2024): Mamba-2 in most layers, and grouped-query attention with rotated halves of heads in some.

use redline_weights::ConfigFile;

use super::Architecture;
use super::granite_hybrid::Recurrences;
use crate::ModelError;
use crate::experts::{self, Names};
use crate::family::{self, Options, config_error};
use crate::keys;
use crate::rotary::Rules;
use crate::spec::{DecoderSpec, FfnSpec, MixerSpec};

/// In `config.json`: `BambaForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "BambaForCausalLM", model_type: "bamba", spec, gguf: None };

const KEYS: &[&str] = &["attention_bias", "rope_scaling", "rope_parameters", "partial_rotary_factor"];
/// The names of the projections of the feed-forward part.
const NAMES: Names = Names { module: "feed_forward", gate: "gate_proj", up: "up_proj", down: "down_proj" };

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, KEYS)?;
    family::require(config, &["num_key_value_heads"])?;
    let bias = config.bool_or("attention_bias", false)?;
    let options = Options {
        qkv_bias: bias,
        output_bias: bias,
        rotary: Rules { partial: Some(0.5), ..Rules::default() },
        default_eps: 1e-5,
        ..Options::default()
    };
    let mut spec = family::decoder(config, &options)?;
    let inner = family::positive(config, "intermediate_size")?;
    let attends: Vec<usize> =
        config.numbers("attn_layer_indices")?.iter().map(|index| *index as usize).collect();
    if let Some(index) = attends.iter().find(|index| **index >= spec.layers.len()) {
        let fact = format!("`attn_layer_indices` has {index}, and there are {} layers", spec.layers.len());
        return Err(config_error(config, fact));
    }
    let recurrences = Recurrences::of(config, spec.hidden)?;
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        if !attends.contains(&i) {
            layer.mixer = MixerSpec::Mamba2(recurrences.layer(i));
        }
        if let Some(norm) = &mut layer.mlp_norms.before {
            norm.name = format!("layers.{i}.pre_ff_layernorm");
        }
        let name = format!("layers.{i}.{}", NAMES.module);
        layer.mlp = FfnSpec::Dense(experts::expert(&name, spec.hidden, inner, NAMES));
    }
    if let Some(norm) = &mut spec.final_norm {
        norm.name = "final_layernorm".into();
    }
    Ok(spec)
}
