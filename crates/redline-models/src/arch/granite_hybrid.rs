//! Granite 4 (IBM 2025) without Mamba layers and experts: Granite 3 with gate and up in one tensor, and rotation only if it says so.

use redline_weights::ConfigFile;

use super::{Architecture, granite};
use crate::ModelError;
use crate::family::{self, config_error};
use crate::keys;
use crate::spec::{DecoderSpec, FfnSpec, LinearSpec};

/// In `config.json`: `GraniteMoeHybridForCausalLM`. llama.cpp stores its models as those of Granite 3.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "GraniteMoeHybridForCausalLM", model_type: "granitemoehybrid", spec, gguf: None };

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &[granite::KEYS, &["layer_types", "num_local_experts"]].concat())?;
    family::require(config, &["layer_types", "num_local_experts", "shared_intermediate_size"])?;
    check_layers(config)?;
    let experts = config.usize("num_local_experts")?;
    if experts > 0 {
        let supported = "`0`: the experts of Granite 4 are not supported";
        return Err(config.refuse("num_local_experts", supported).into());
    }
    let rotates = match config.opt_str("position_embedding_type")? {
        Some("rope") => true,
        None | Some("nope") => false,
        Some(_) => return Err(config.refuse("position_embedding_type", "`rope`, `nope` or `null`").into()),
    };
    let mut spec = granite::decoder(config)?;
    let inner = family::positive(config, "shared_intermediate_size")?;
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        if let FfnSpec::Dense(mlp) = &mut layer.mlp {
            let name = |part: &str| format!("layers.{i}.shared_mlp.{part}");
            mlp.up = LinearSpec::plain(name("input_linear"), spec.hidden, 2 * inner);
            mlp.down = LinearSpec::plain(name("output_linear"), inner, spec.hidden);
        }
    }
    if !rotates {
        spec.attentions_mut().for_each(|attention| attention.rotation = None);
    }
    Ok(spec)
}

/// Refuses layers that are not attention: Mamba layers, `linear_attention` in transformers 5.
fn check_layers(config: &ConfigFile) -> Result<(), ModelError> {
    let (types, layers) = (config.strings("layer_types")?, family::layers(config, "num_hidden_layers")?);
    if types.len() != layers {
        let fact = format!("`layer_types` has {} entries for {layers} layers", types.len());
        return Err(config_error(config, fact));
    }
    let is_attention = |name: &String| matches!(name.as_str(), "attention" | "full_attention");
    let Some(other) = types.iter().find(|name| !is_attention(name)) else { return Ok(()) };
    let count = types.iter().filter(|name| !is_attention(name)).count();
    let fact = format!(
        "{count} of {layers} layers are `{other}` (`layer_types`), and only layers of `attention` are supported"
    );
    Err(config_error(config, fact))
}
