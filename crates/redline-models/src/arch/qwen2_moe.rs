//! Qwen1.5-MoE and Qwen2-57B-A14B (Yang et al. 2024): Qwen2 with mixtures of experts, and an expert that every row goes to.

use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::experts::{self, Names};
use crate::family::{self, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::spec::{DecoderSpec, FfnSpec, LinearSpec, SharedExpertSpec, WeightingSpec};

/// In `config.json`: `Qwen2MoeForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "Qwen2MoeForCausalLM", model_type: "qwen2_moe", spec, gguf: Some(GGUF) };

const GGUF: GgufDialect = GgufDialect::new("qwen2moe", gguf);

/// The names of tensors in Qwen's mixtures of experts.
pub(super) const NAMES: Names = Names { module: "mlp", gate: "gate_proj", up: "up_proj", down: "down_proj" };

/// The keys of Qwen's mixtures of experts without a shared expert.
pub(super) const KEYS: [&str; 6] = [
    "use_sliding_window",
    "sliding_window",
    "rope_scaling",
    "rope_parameters",
    "num_experts",
    "moe_intermediate_size",
];

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let own = ["layer_types", "shared_expert_intermediate_size"];
    keys::refuse_unknown(config, &[&KEYS[..], &own].concat())?;
    family::require(config, &["num_key_value_heads", "shared_expert_intermediate_size"])?;
    let options = Options {
        qkv_bias: config.bool_or("qkv_bias", true)?,
        windows: windows(config)?,
        default_eps: 1e-6,
        ..Options::default()
    };
    let mut spec = decoder(config, &options, &["num_experts"], false)?;
    add_shared(config, &mut spec)?;
    Ok(spec)
}

/// Adds an expert that every row goes to besides.
pub(super) fn add_shared(config: &ConfigFile, spec: &mut DecoderSpec) -> Result<(), ModelError> {
    let (hidden, inner) = (spec.hidden, family::positive(config, "shared_expert_intermediate_size")?);
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        if let FfnSpec::Experts(experts) = &mut layer.mlp {
            experts.shared = Some(SharedExpertSpec {
                gate: Some(LinearSpec::plain(format!("layers.{i}.mlp.shared_expert_gate"), hidden, 1)),
                mlp: experts::expert(&format!("layers.{i}.mlp.shared_expert"), hidden, inner, NAMES),
            });
        }
    }
    Ok(())
}

/// The decoder of a member of the family, with mixtures of experts in the layers that have them. One of the keys `experts` is their
/// number; `normalise`: whether their weights are divided by their sum if no key says it.
pub(super) fn decoder(
    config: &ConfigFile,
    options: &Options,
    experts: &[&str],
    normalise: bool,
) -> Result<DecoderSpec, ModelError> {
    // In the reference these default to the values of one model.
    family::require(config, &["num_experts_per_tok", "moe_intermediate_size"])?;
    let mut spec = family::decoder(config, options)?;
    let inner = family::positive(config, "moe_intermediate_size")?;
    let (counts, normalise) =
        (experts::counts(config, experts)?, config.bool_or("norm_topk_prob", normalise)?);
    let sparse = experts::sparse_layers(config)?;
    for (i, layer) in spec.layers.iter_mut().enumerate().filter(|(i, _)| sparse[*i]) {
        layer.mlp = experts::mixture(
            i,
            (spec.hidden, inner),
            counts,
            WeightingSpec::Softmax { normalise, factors: None },
            NAMES,
        );
    }
    Ok(spec)
}

/// The window applies only if `use_sliding_window` is set, to every other one of the first `max_window_layers` layers.
fn windows(config: &ConfigFile) -> Result<Vec<Option<usize>>, ModelError> {
    let in_use = config.bool_or("use_sliding_window", false)?;
    let window = if in_use { family::sliding_window(config)? } else { None };
    let first = config.usize_or("max_window_layers", 28)?;
    family::windows(config, window, |layer| layer % 2 == 0 && layer < first)
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_presence("qkv_bias", "blk.0.attn_q.bias");
    set_experts(keys, false)?;
    let shared = keys.count("expert_shared_feed_forward_length")?;
    keys.config().set("shared_expert_intermediate_size", shared);
    keys.set_common()
}

/// Sets the keys of mixtures of experts, which all layers are. Whether weights are normalised has no key: llama.cpp knows it of each
/// architecture.
pub(super) fn set_experts(keys: &mut Keys<'_>, normalise: bool) -> Result<(), ModelError> {
    keys.copy_counts(&[
        ("expert_count", "num_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
    ])?;
    keys.config().set("norm_topk_prob", normalise);
    Ok(())
}
