//! LFM2-MoE (Liquid AI 2025), such as LFM2-8B-A1B: LFM2 with mixtures of experts in all but the first layers.

use redline_weights::ConfigFile;

use super::Architecture;
use super::lfm2::{self, NAMES};
use super::qwen2_moe::set_experts;
use crate::ModelError;
use crate::experts;
use crate::family;
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::spec::{DecoderSpec, Role, TensorSpec, WeightingSpec};

/// In `config.json`: `Lfm2MoeForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "Lfm2MoeForCausalLM", model_type: "lfm2_moe", spec, gguf: Some(GGUF) };

const GGUF: GgufDialect = GgufDialect { final_norm: "token_embd_norm", ..GgufDialect::new("lfm2moe", gguf) };

/// Added to the sum of the weights of a row's experts.
const EPSILON: f32 = 1e-6;

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let own = ["num_experts", "moe_intermediate_size", "routed_scaling_factor"];
    keys::refuse_unknown(config, &[&lfm2::KEYS[..], &own].concat())?;
    let mut spec = lfm2::decoder(config, family::positive(config, "intermediate_size")?)?;
    let inner = family::positive(config, "moe_intermediate_size")?;
    let counts = experts::counts(config, &["num_experts"])?;
    let normalises = config.bool_or("norm_topk_prob", true)?;
    let is_corrected = config.bool_or("use_expert_bias", true)?;
    let scale = config.f32_or("routed_scaling_factor", 1.0)?;
    let dense = config.usize("num_dense_layers")?;
    for (i, layer) in spec.layers.iter_mut().enumerate().skip(dense) {
        let name = format!("layers.{i}.{}.expert_bias", NAMES.module);
        let weighting = WeightingSpec::Sigmoid {
            correction: is_corrected.then(|| TensorSpec::new(name, [counts.0], Role::Bias)),
            epsilon: normalises.then_some(EPSILON),
            scale,
        };
        layer.mlp = experts::mixture(i, (spec.hidden, inner), counts, weighting, NAMES);
    }
    Ok(spec)
}

/// llama.cpp divides weights by their sum, and does not scale them.
fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    const GATING: &str = "expert_gating_func";
    const SIGMOID: u32 = 2;
    if keys.count(GATING)? != SIGMOID {
        return Err(keys.refuse(GATING, format!("`{SIGMOID}` (sigmoid)")));
    }
    set_experts(keys, true)?;
    let dense = keys.opt_count("leading_dense_block_count")?.unwrap_or(0);
    keys.config().set("num_dense_layers", dense);
    keys.set_presence("use_expert_bias", &format!("blk.{dense}.exp_probs_b.bias"));
    lfm2::gguf(keys)
}
