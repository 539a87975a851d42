//! Gemma 3 (Gemma Team 2025), text only: as Gemma 2 without soft caps, with norms of every query and key head, and with rotations of
//! their own for layers that have a window. EmbeddingGemma is an encoder of this form.

use redline_weights::ConfigFile;

use super::{Architecture, gemma2};
use crate::ModelError;
use crate::family::{self, HeadNorms, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::rotary::Rules;
use crate::spec::{DecoderSpec, Objective};

/// In `config.json`: `Gemma3ForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "Gemma3ForCausalLM", model_type: "gemma3_text", spec, gguf: Some(GGUF) };
/// In `config.json`: `Gemma3TextForSequenceClassification`.
pub const CLASSIFIER: Architecture = Architecture {
    name: "Gemma3TextForSequenceClassification",
    model_type: "gemma3_text",
    spec: |config| family::classifier(config, spec(config)?),
    gguf: None,
};

/// In `config.json`: `Gemma3TextModel`, an encoder without a head.
pub const ENCODER: Architecture =
    Architecture { name: "Gemma3TextModel", model_type: "gemma3_text", spec: encoder, gguf: None };

const GGUF: GgufDialect = GgufDialect::new("gemma3", gguf);

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, gemma2::KEYS)?;
    layers(config, family::sliding_window(config)?)
}

/// A window reaches half as far on each side.
fn encoder(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &[gemma2::KEYS, &["use_bidirectional_attention"]].concat())?;
    if !config.bool_or("use_bidirectional_attention", false)? {
        return Err(config
            .refuse("use_bidirectional_attention", "`true` (for a model without a head)")
            .into());
    }
    let window = family::sliding_window(config)?.map(|window| window / 2 + 1);
    let spec = layers(config, window)?;
    Ok(DecoderSpec { tied: true, objective: Objective::STATES, ..spec })
}

fn layers(config: &ConfigFile, window: Option<usize>) -> Result<DecoderSpec, ModelError> {
    family::require(config, gemma2::NEEDED)?;
    let pattern = match config.usize_or("sliding_window_pattern", 6)? {
        0 => return Err(config.refuse("sliding_window_pattern", "a number of at least 1").into()),
        pattern => pattern,
    };
    let slides = |layer: usize| !(layer + 1).is_multiple_of(pattern);
    let windows = family::windows(config, window, slides)?;
    let options = Options {
        head_norms: HeadNorms::Each,
        rotary: Rules { default_theta: 1_000_000.0, ..Rules::default() },
        ..gemma2::options(config, windows)?
    };
    let local = ("rope_local_base_freq", 10_000.0);
    let mut spec = family::decoder_with_two_rotations(config, &options, Some(local))?;
    gemma2::finish(config, &mut spec, (None, None))?;
    Ok(spec)
}

fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    gemma2::set_keys(keys, 62)?;
    keys.set_local_rotation(Some(10_000.0))?;
    let window = keys.opt_count("attention.sliding_window")?.filter(|window| *window > 0);
    let slides = keys.slides(6)?;
    keys.set_layer_types(&if window.is_some() { slides } else { vec![false; slides.len()] });
    keys.config().set("sliding_window", window);
    Ok(())
}
