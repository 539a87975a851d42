//! OLMo 3 (OLMo Team 2025): OLMo 2 with a window in three of four layers; the scaling of the rotation applies to the others only.

use redline_weights::ConfigFile;

use super::{Architecture, olmo2};
use crate::ModelError;
use crate::family::{self, Options};
use crate::keys;
use crate::rotary::Rules;
use crate::spec::DecoderSpec;

/// In `config.json`: `Olmo3ForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "Olmo3ForCausalLM", model_type: "olmo3", spec, gguf: None };

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let honoured = ["attention_bias", "sliding_window", "layer_types", "rope_scaling", "rope_parameters"];
    keys::refuse_unknown(config, &honoured)?;
    family::require(config, &["sliding_window"])?;
    let slides = |layer: usize| !(layer + 1).is_multiple_of(4);
    let options = Options {
        windows: family::windows(config, family::sliding_window(config)?, slides)?,
        rotary: Rules { default_theta: 500_000.0, ..Rules::default() },
        ..olmo2::options(config)?
    };
    let mut spec = family::decoder_with_two_rotations(config, &options, None)?;
    olmo2::norm_outputs(&mut spec);
    Ok(spec)
}
