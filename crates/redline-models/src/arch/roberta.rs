//! RoBERTa (Liu et al. 2019): BERT whose positions begin after the padding token's id.

use redline_kernels::op::activation::ActivationFunction;
use redline_weights::ConfigFile;

use super::{Architecture, bert};
use crate::ModelError;
use crate::family::config_error;
use crate::gguf::dialect::GgufDialect;
use crate::gguf::keys::Keys;
use crate::spec::DecoderSpec;

/// In `config.json`: `RobertaModel`.
pub const MODEL: Architecture =
    Architecture { name: "RobertaModel", model_type: "roberta", spec, gguf: Some(GGUF) };
/// In `config.json`: `RobertaForMaskedLM`, an encoder too, whose head makes sparse vectors.
pub const MASKED: Architecture =
    Architecture { name: "RobertaForMaskedLM", spec: masked, gguf: None, ..MODEL };
/// In `config.json`: `RobertaForSequenceClassification`.
pub const CLASSIFIER: Architecture = Architecture {
    name: "RobertaForSequenceClassification",
    model_type: "roberta",
    spec: classifier,
    gguf: None,
};

const GGUF: GgufDialect =
    GgufDialect { tokenizer: Some("gpt2"), ..GgufDialect::new("bert", |keys| gguf_of(keys, &CLASSIFIER)) };

/// Those of BERT. Files leave out the positions that no token but padding has.
pub(super) fn gguf_of(keys: &mut Keys<'_>, classifier: &Architecture) -> Result<(), ModelError> {
    bert::gguf_of(keys, classifier)?;
    let (padding, positions) = (keys.padding()?, keys.count("context_length")?);
    let Some(rows) = positions.checked_add(padding + 1) else {
        return Err(keys.refuse("context_length", format!("less than 2^32 - {}", padding + 1)));
    };
    keys.config().set("pad_token_id", padding);
    keys.config().set("max_position_embeddings", rows);
    Ok(())
}

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

/// The encoder with what makes logits.
pub(super) fn masked(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    with_head(config, spec(config)?)
}

/// Adds what makes logits.
pub(super) fn with_head(config: &ConfigFile, mut spec: DecoderSpec) -> Result<DecoderSpec, ModelError> {
    let names = ["lm_head.dense", "lm_head.layer_norm", "lm_head.bias"];
    bert::add_logits(config, &mut spec, names, ActivationFunction::Gelu)?;
    spec.outside = &["lm_head."];
    spec.ignored = &[bert::POOLER[0], bert::POOLER[1], bert::POSITION_IDS, "lm_head.decoder."];
    Ok(spec)
}

/// The encoder with two layers on the state of the first token.
pub(super) fn classifier(config: &ConfigFile) -> Result<DecoderSpec, ModelError> {
    with_classes(config, spec(config)?)
}

/// Adds two layers on the state of the first token.
pub(super) fn with_classes(config: &ConfigFile, mut spec: DecoderSpec) -> Result<DecoderSpec, ModelError> {
    let names = ["classifier.dense", "classifier.out_proj"];
    bert::classify(config, &mut spec, names, ActivationFunction::Tanh)?;
    Ok(spec)
}
