//! ColBERT as the library of its authors saves it (Khattab and Zaharia 2020): an encoder, and beside it a layer that makes a vector of each
//! state, which belongs to what the model makes of a text.

use redline_weights::ConfigFile;

use super::{Architecture, bert, distilbert, electra, roberta, xlm_roberta};
use crate::ModelError;
use crate::sentence::stanford;
use crate::spec::DecoderSpec;

/// In `config.json`: `HF_ColBERT`; `model_type` names the encoder.
pub const MODEL: Architecture =
    Architecture { name: stanford::ARCHITECTURE, model_type: "colbert", spec, gguf: None };

const ENCODERS: [Architecture; 5] =
    [bert::MODEL, distilbert::MODEL, electra::MODEL, roberta::MODEL, xlm_roberta::MODEL];

fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let kind = config.str("model_type")?;
    let Some(encoder) = ENCODERS.iter().find(|encoder| encoder.model_type == kind) else {
        let known: Vec<String> = ENCODERS.iter().map(|encoder| format!("`{}`", encoder.model_type)).collect();
        return Err(config.refuse("model_type", format!("one of {}", known.join(", "))).into());
    };
    let mut spec = (encoder.spec)(config)?;
    spec.unread.push(stanford::LAYER.to_owned());
    Ok(spec)
}
