//! RoBERTa (Liu et al. 2019): BERT whose positions begin after the padding token's id.

use redline_weights::ConfigFile;

use super::{Architecture, bert};
use crate::ModelError;
use crate::family::config_error;
use crate::spec::DecoderSpec;

/// In `config.json`: `RobertaModel`.
pub const MODEL: Architecture =
    Architecture { name: "RobertaModel", model_type: "roberta", spec, gguf: None };
/// In `config.json`: `RobertaForSequenceClassification`.
pub const CLASSIFIER: Architecture = Architecture {
    name: "RobertaForSequenceClassification",
    model_type: "roberta",
    spec: classifier,
    gguf: None,
};

/// The encoder without a head.
pub(super) fn spec(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    // Position p has the row p + 1 after that of the padding token.
    let padding = config.ids("pad_token_id")?;
    let unused = match padding[..] {
        [] => 2,
        [id] => id as usize + 1,
        _ => return Err(config_error(config, "`pad_token_id` has several ids".into())),
    };
    bert::encoder(config, "roberta.", unused)
}

/// The encoder with two layers on the state of the first token.
pub(super) fn classifier(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    let mut spec = spec(config)?;
    bert::classify(config, &mut spec, ["classifier.dense", "classifier.out_proj"])?;
    Ok(spec)
}
