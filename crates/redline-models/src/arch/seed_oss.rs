//! Seed-OSS (ByteDance 2025): Llama with biases on queries, keys and values.

use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::family::{self, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::spec::DecoderSpec;

/// In `config.json`: `SeedOssForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "SeedOssForCausalLM", model_type: "seed_oss", spec, gguf: Some(GGUF) };

const GGUF: GgufDialect =
    GgufDialect { mlp_norm: "post_attention_norm", ..GgufDialect::new("seed_oss", gguf) };

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &["attention_bias", "mlp_bias", "rope_scaling", "rope_parameters"])?;
    family::require(config, &["num_key_value_heads", "head_dim"])?;
    let options = Options {
        qkv_bias: config.bool_or("attention_bias", true)?,
        output_bias: config.bool_or("attention_out_bias", false)?,
        mlp_bias: config.bool_or("mlp_bias", false)?,
        default_eps: 1e-6,
        ..Options::default()
    };
    family::decoder(config, &options)
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_common()?;
    keys.set_presence("attention_bias", "blk.0.attn_q.bias");
    keys.set_presence("attention_out_bias", "blk.0.attn_output.bias");
    keys.set_presence("mlp_bias", "blk.0.ffn_gate.bias");
    Ok(())
}
