//! EXAONE 4 (LG AI Research 2025): norms of outputs as in OLMo 2, norms of every query and key head; in models with windows, layers
//! without one are not rotated.

use redline_weights::ConfigFile;

use super::{Architecture, olmo2};
use crate::ModelError;
use crate::family::{self, HeadNorms, Options};
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::keys;
use crate::spec::DecoderSpec;

/// In `config.json`: `Exaone4ForCausalLM`.
pub const ARCHITECTURE: Architecture =
    Architecture { name: "Exaone4ForCausalLM", model_type: "exaone4", spec, gguf: Some(GGUF) };

const GGUF: GgufDialect = GgufDialect::new("exaone4", gguf);

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    keys::refuse_unknown(config, &["sliding_window", "layer_types", "rope_scaling", "rope_parameters"])?;
    family::require(config, &["num_key_value_heads"])?;
    let window = family::sliding_window(config)?;
    let options = Options {
        head_norms: HeadNorms::Each,
        windows: windows(config, window)?,
        default_eps: 1e-5,
        ..Options::default()
    };
    let mut spec = family::decoder(config, &options)?;
    olmo2::norm_outputs(&mut spec);
    for attention in spec.attentions_mut() {
        attention.rotation = (window.is_none() || attention.window.is_some()).then_some(0);
    }
    Ok(spec)
}

/// From `layer_types`; if the key is absent, every `sliding_window_pattern`th layer has no window.
fn windows(config: &ConfigFile, window: Option<usize>) -> Result<Vec<Option<usize>>, ModelError> {
    const PATTERN: &str = "sliding_window_pattern";
    if window.is_none() || !config.strings("layer_types")?.is_empty() {
        return family::windows(config, window, |_| false);
    }
    // A text such as `LLLG` has the same meaning in the reference only beside `layer_types`.
    match config.usize_or(PATTERN, 4)? {
        0 => Err(config.refuse(PATTERN, "a number of at least 1").into()),
        every => family::windows(config, window, |layer| !(layer + 1).is_multiple_of(every)),
    }
}

/// llama.cpp uses the windows of the largest model only; here they are those of the file.
fn gguf(keys: &mut Keys<'_>) -> Result<(), ModelError> {
    keys.set_common()?;
    if let Some(window) = keys.opt_count("attention.sliding_window")?.filter(|window| *window > 0) {
        let slides = keys.slides(4)?;
        keys.config().set("sliding_window", window);
        keys.set_layer_types(&slides);
    }
    Ok(())
}
