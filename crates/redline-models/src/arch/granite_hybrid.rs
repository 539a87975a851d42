//! Granite 4 (IBM 2025) without experts: Granite 3 with gate and up in one tensor, rotation only if it says so, and in Granite 4 H
//! Mamba-2 in place of attention in most layers.

use redline_weights::ConfigFile;

use super::{Architecture, granite};
use crate::ModelError;
use crate::family;
use crate::keys;
use crate::mamba2::Mamba2Keys;
use crate::spec::{DecoderSpec, FfnSpec, LinearSpec, MixerSpec};

/// In `config.json`: `GraniteMoeHybridForCausalLM`. llama.cpp stores models without Mamba-2 as those of Granite 3.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "GraniteMoeHybridForCausalLM", model_type: "granitemoehybrid", spec, gguf: None };

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &[granite::KEYS, &["layer_types", "num_local_experts"]].concat())?;
    family::require(config, &["layer_types", "num_local_experts", "shared_intermediate_size"])?;
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
    set_recurrences(config, &mut spec)?;
    if !rotates {
        spec.attentions_mut().for_each(|attention| attention.rotation = None);
    }
    Ok(spec)
}

/// Replaces attention by Mamba-2 in the layers that `layer_types` calls `mamba` (transformers 4) or `linear_attention` (transformers 5).
fn set_recurrences(config: &ConfigFile, spec: &mut DecoderSpec) -> Result<(), ModelError> {
    let kinds =
        [("mamba", true), ("attention", false), ("linear_attention", true), ("full_attention", false)];
    let Some(recurs) = family::by_layer_type(config, spec.layers.len(), kinds)? else {
        return Err(config.refuse("layer_types", "a kind for each layer").into());
    };
    if !recurs.contains(&true) {
        return Ok(());
    }
    let keys = Mamba2Keys::read(config, spec.hidden, granite::DEFAULT_EPS)?;
    for (index, layer) in spec.layers.iter_mut().enumerate().filter(|(index, _)| recurs[*index]) {
        layer.mixer = MixerSpec::Mamba2(keys.layer(index));
    }
    Ok(())
}
