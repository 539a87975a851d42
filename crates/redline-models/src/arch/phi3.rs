//! Phi-3, Phi-3.5 and Phi-4 (Microsoft 2024): Llama with fused projections, LongRoPE, and in some models a rotation of a part of each
//! head.

use redline_weights::ConfigFile;

use super::Architecture;
use crate::ModelError;
use crate::family::{self, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::rotary::Rules;
use crate::spec::DecoderSpec;

/// In `config.json`: `Phi3ForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "Phi3ForCausalLM", model_type: "phi3", spec, gguf: Some(GGUF) };

const GGUF: GgufDialect = GgufDialect::new("phi3", gguf);

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    // The checkpoints include the reference's code (`auto_map`).
    let honoured = ["auto_map", "sliding_window", "rope_scaling", "rope_parameters", "partial_rotary_factor"];
    keys::refuse_unknown(config, &honoured)?;
    let options = Options {
        windows: family::windows(config, family::sliding_window(config)?, |_| true)?,
        fused_qkv: true,
        fused_gate: true,
        rotary: Rules { partial: Some(1.0), ..Rules::default() },
        default_eps: 1e-5,
        ..Options::default()
    };
    family::decoder(config, &options)
}

/// llama.cpp does not use the window; here it is that of the model.
fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    if let Some(window) = keys.opt_count("attention.sliding_window")?.filter(|window| *window > 0) {
        keys.config().set("sliding_window", window);
    }
    keys.set_common()
}
