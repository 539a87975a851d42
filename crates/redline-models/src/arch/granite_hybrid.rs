//! Granite 4 (IBM 2025): Granite 3 with gate and up in one tensor, rotation only if it says so, and in Granite 4 H Mamba-2 in place of
//! attention in most layers, and in some models mixtures of experts with a shared expert.

use redline_weights::ConfigFile;

use super::{Architecture, granite};
use crate::ModelError;
use crate::experts::{self, Names};
use crate::family;
use crate::gguf::adapted;
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::mamba2::{self, Mamba2Keys, Mamba2Names};
use crate::spec::{
    DecoderSpec, FfnSpec, LinearSpec, MixerSpec, MlpSpec, Orientation, SharedExpertSpec, WeightingSpec,
};

/// In `config.json`: `GraniteMoeHybridForCausalLM`. llama.cpp stores models without Mamba-2 as those of Granite 3.
pub const ARCHITECTURE: Architecture = Architecture {
    name: "GraniteMoeHybridForCausalLM",
    model_type: "granitemoehybrid",
    spec,
    gguf: Some(GGUF),
};

const GGUF: GgufDialect = GgufDialect { pairs_rows: true, ..GgufDialect::new("granitehybrid", gguf) };

/// The names of experts. All of a layer are stored in two tensors.
const NAMES: Names = Names { module: "block_sparse_moe", gate: "gate", up: "up", down: "down" };

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &[granite::KEYS, &["layer_types", "num_local_experts"]].concat())?;
    family::require(config, &["layer_types", "num_local_experts", "shared_intermediate_size"])?;
    let rotates = match config.opt_str("position_embedding_type")? {
        Some("rope") => true,
        None | Some("nope") => false,
        Some(_) => return Err(config.refuse("position_embedding_type", "`rope`, `nope` or `null`").into()),
    };
    let mut spec = granite::decoder(config)?;
    set_feed_forward(config, &mut spec)?;
    set_recurrences(config, &mut spec)?;
    if !rotates {
        spec.attentions_mut().for_each(|attention| attention.rotation = None);
    }
    Ok(spec)
}

/// Sets the feed-forward part of each layer: an MLP, or experts with the MLP as shared expert.
fn set_feed_forward(config: &ConfigFile, spec: &mut DecoderSpec) -> Result<(), ModelError> {
    let (hidden, inner) = (spec.hidden, family::positive(config, "shared_intermediate_size")?);
    let counts = match config.usize("num_local_experts")? {
        0 => None,
        _ => Some(experts::counts(config, &["num_local_experts"])?),
    };
    let width = family::positive(config, "intermediate_size")?;
    let apart = adapted::is_gguf(config)?;
    let gate_up = if apart { &[("gate", inner), ("up", inner)][..] } else { &[("input_linear", 2 * inner)] };
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        let FfnSpec::Dense(mlp) = &mut layer.mlp else { continue };
        let name = |part: &str| format!("layers.{i}.shared_mlp.{part}");
        mlp.up = LinearSpec::of(
            Orientation::OutIn,
            hidden,
            gate_up.iter().map(|&(part, outputs)| (name(part), outputs, false)),
        );
        mlp.down = LinearSpec::plain(name("output_linear"), inner, hidden);
        let Some(counts) = counts else { continue };
        let shared = MlpSpec { up: mlp.up.clone(), down: mlp.down.clone(), ..*mlp };
        let softmax = WeightingSpec::Softmax { normalise: true, factors: None };
        layer.mlp = experts::mixture(i, (hidden, width), counts, softmax, NAMES);
        if let FfnSpec::Experts(experts) = &mut layer.mlp {
            let tensor = |part: &str| format!("layers.{i}.{}.{part}.weight", NAMES.module);
            experts.router.parts[0].name = format!("layers.{i}.{}.router.layer", NAMES.module);
            experts.stack([&tensor("input_linear"), &tensor("output_linear")]);
            experts.shared = Some(SharedExpertSpec { gate: None, mlp: shared });
        }
    }
    Ok(())
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

/// Files of Bamba have this name, too. Only its queries and keys are rotated.
fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    let attends = keys.set_hybrid()?;
    let width = keys.count("feed_forward_length")?;
    keys.config().set("intermediate_size", width);
    let first = |kind: bool| attends.iter().position(|attends| *attends == kind);
    let inner = mamba2::set_keys(keys, Mamba2Names::BAMBA, first(false).unwrap_or(0))?;
    let hidden = keys.count("embedding_length")?;
    if hidden == 0 || inner % hidden != 0 {
        return Err(keys.refuse("ssm.inner_size", format!("a multiple of `embedding_length`, {hidden}")));
    }
    keys.config().set("mamba_expand", inner / hidden);
    keys.set_presence("attention_bias", &format!("blk.{}.attn_q.bias", first(true).unwrap_or(0)));
    if keys.opt_bool(granite::FINETUNED)?.unwrap_or(true) {
        let indices = (0u32..).zip(&attends).filter(|(_, attends)| **attends);
        let indices: Vec<u32> = indices.map(|(index, _)| index).collect();
        keys.config().set("attn_layer_indices", indices);
        keys.rename("BambaForCausalLM", "bamba");
        return Ok(());
    }
    let kind = |attends: &bool| if *attends { "attention" } else { "mamba" };
    keys.config().set("layer_types", attends.iter().map(kind).collect::<Vec<_>>());
    keys.config().set("position_embedding_type", "nope");
    let shared = keys.count("expert_shared_feed_forward_length")?;
    keys.config().set("shared_intermediate_size", shared);
    for (name, key) in [("expert_count", "num_local_experts"), ("expert_used_count", "num_experts_per_tok")] {
        let count = keys.opt_count(name)?.unwrap_or(0);
        keys.config().set(key, count);
    }
    granite::copy_factors(keys)
}
