//! Bamba (IBM, Princeton, CMU and UIUC 2024): Mamba-2 in most layers, and grouped-query attention with rotated halves of heads in some.

use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::experts::{self, Names};
use crate::family::{self, Options};
use crate::keys;
use crate::mamba2::Mamba2Keys;
use crate::rotary::Rules;
use crate::spec::{DecoderSpec, FfnSpec, MixerSpec};

/// In `config.json`: `BambaForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "BambaForCausalLM", model_type: "bamba", spec, gguf: None };

const KEYS: &[&str] = &["attention_bias", "rope_scaling", "rope_parameters", "partial_rotary_factor"];
/// The epsilon of the norms if its key is absent.
pub(super) const DEFAULT_EPS: f32 = 1e-5;
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
        default_eps: DEFAULT_EPS,
        ..Options::default()
    };
    let mut spec = family::decoder(config, &options)?;
    set_names(config, &mut spec)?;
    let count = spec.layers.len();
    let attends = family::by_layer_index(config, count, "attn_layer_indices")?.unwrap_or(vec![false; count]);
    let keys = Mamba2Keys::read(config, spec.hidden, DEFAULT_EPS)?;
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        if !attends[i] {
            layer.mixer = MixerSpec::Mamba2(keys.layer(i));
        }
    }
    Ok(spec)
}

/// Gives feed-forward parts, the norms before them and the last norm their names.
pub(super) fn set_names(config: &ConfigFile, spec: &mut DecoderSpec) -> Result<(), ModelError> {
    let inner = family::positive(config, "intermediate_size")?;
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        if let Some(norm) = &mut layer.mlp_norms.before {
            norm.name = format!("layers.{i}.pre_ff_layernorm");
        }
        let name = format!("layers.{i}.{}", NAMES.module);
        layer.mlp = FfnSpec::Dense(experts::expert(&name, spec.hidden, inner, NAMES));
    }
    if let Some(norm) = &mut spec.final_norm {
        norm.name = "final_layernorm".into();
    }
    Ok(())
}
