//! Dense models of ERNIE 4.5 (Baidu 2025): Llama with rotations of neighbouring dimensions.

use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::family::{self, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::rotary::Rules;
use crate::spec::{DecoderSpec, RotatedPairs};

/// In `config.json`: `Ernie4_5ForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "Ernie4_5ForCausalLM", model_type: "ernie4_5", spec, gguf: Some(GGUF) };
const GGUF: GgufDialect = GgufDialect::new("ernie4_5", gguf);

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &["use_bias", "rope_scaling", "rope_parameters"])?;
    family::require(config, &["num_key_value_heads", "head_dim"])?;
    let bias = config.bool_or("use_bias", false)?;
    let options = Options {
        qkv_bias: bias,
        output_bias: bias,
        mlp_bias: bias,
        default_tied: true,
        rotary: Rules { default_theta: 500_000.0, pairs: RotatedPairs::Neighbours, ..Rules::default() },
        default_eps: 1e-5,
        ..Options::default()
    };
    family::decoder(config, &options)
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_common()?;
    keys.set_presence("use_bias", "blk.0.attn_q.bias");
    Ok(())
}
