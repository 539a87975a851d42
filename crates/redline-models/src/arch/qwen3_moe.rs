//! Qwen3-30B-A3B and Qwen3-235B-A22B (Yang et al. 2025): Qwen3 with mixtures of experts.

use redline_weights::ConfigFile;

use super::Architecture;
use super::qwen2_moe::{KEYS, decoder, set_experts};
use crate::ModelError;
use crate::family::{self, HeadNorms, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::spec::DecoderSpec;

/// In `config.json`: `Qwen3MoeForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "Qwen3MoeForCausalLM", model_type: "qwen3_moe", spec, gguf: Some(GGUF) };

const GGUF: GgufDialect = GgufDialect::new("qwen3moe", gguf);

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let own = ["attention_bias", "num_local_experts", "use_qk_norm"];
    keys::refuse_unknown(config, &[&KEYS[..], &own].concat())?;
    if !config.bool_or("use_qk_norm", true)? {
        return Err(config.refuse("use_qk_norm", "`true` (for this architecture)").into());
    }
    family::require(config, &["num_key_value_heads", "head_dim"])?;
    let bias = config.bool_or("attention_bias", false)?;
    let in_use = config.bool_or("use_sliding_window", false)?;
    let window = if in_use { family::sliding_window(config)? } else { None };
    let options = Options {
        qkv_bias: bias,
        output_bias: bias,
        head_norms: HeadNorms::Each,
        windows: family::windows(config, window, |_| true)?,
        default_eps: 1e-6,
        ..Options::default()
    };
    // The second is what transformers 5 writes.
    decoder(config, &options, &["num_experts", "num_local_experts"], false)
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_presence("attention_bias", "blk.0.attn_q.bias");
    set_experts(keys, true)?;
    keys.set_common()
}
