//! Dense models of Hunyuan (Tencent 2025): norms of every query and key head after their rotation, whose base a factor enlarges.

use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::family::{self, HeadNorms, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::rotary::Rules;
use crate::spec::DecoderSpec;

/// In `config.json`: `HunYuanDenseV1ForCausalLM`.
pub const ARCHITECTURE: Architecture = Architecture {
    name: "HunYuanDenseV1ForCausalLM",
    model_type: "hunyuan_v1_dense",
    spec,
    gguf: Some(GGUF),
};

const GGUF: GgufDialect = GgufDialect::new("hunyuan-dense", gguf);

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &["attention_bias", "use_qk_norm", "rope_scaling", "rope_parameters"])?;
    family::require(config, &["num_key_value_heads", "head_dim"])?;
    if !config.bool_or("use_qk_norm", true)? {
        return Err(config.refuse("use_qk_norm", "`true`").into());
    }
    let bias = config.bool_or("attention_bias", false)?;
    let options = Options {
        qkv_bias: bias,
        output_bias: bias,
        head_norms: HeadNorms::Each,
        rotary: Rules { alpha: true, ..Rules::default() },
        default_eps: 1e-5,
        ..Options::default()
    };
    let mut spec = family::decoder(config, &options)?;
    for (i, attention) in spec.attentions_mut().enumerate() {
        attention.norms_after_rotation = true;
        for (norm, of) in [(&mut attention.query_norm, "query"), (&mut attention.key_norm, "key")] {
            if let Some(norm) = norm {
                norm.name = format!("layers.{i}.self_attn.{of}_layernorm");
            }
        }
    }
    Ok(spec)
}

/// The base of the rotation is the enlarged one.
fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_common()?;
    keys.set_presence("attention_bias", "blk.0.attn_q.bias");
    Ok(())
}
