//! Dream and DiffuCoder (Ye et al. 2025; Gong et al. 2025): Qwen2.5 with bidirectional attention and an untied head. Row j of
//! the logits predicts token j + 1, as in the autoregressive model it was trained from.

use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::family::{self, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::spec::{DecoderSpec, Objective};

/// In `config.json`: `DreamModel`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "DreamModel", model_type: "Dream", spec, gguf: Some(GGUF) };

const GGUF: GgufDialect = GgufDialect::new("dream", gguf);

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    // The checkpoints include the reference's code (`auto_map`).
    keys::refuse_unknown(config, &["auto_map", "rope_scaling"])?;
    // No published checkpoint uses the defaults of the reference's configuration.
    let keys = ["num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "rope_theta"];
    family::require(config, &keys)?;
    let options = Options { qkv_bias: true, ..Options::default() };
    let objective = Objective { shift: 1, ..Objective::MASKED };
    Ok(DecoderSpec { objective, ..family::decoder(config, &options)? })
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.sees_both_sides();
    keys.set_common()
}
