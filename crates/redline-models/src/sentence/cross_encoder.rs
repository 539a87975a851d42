//! Models that judge pairs of texts by the logits of two tokens.

use std::path::Path;

use redline_weights::ConfigFile;

use super::{CONFIG, MODULES, file_of, folder, library, read_prompts};
use crate::ModelError;

/// Whether the modules judge pairs of texts, and embed none.
pub(super) fn is_in(dir: &Path) -> Result<bool, ModelError> {
    let kind = library(dir)?
        .map(|config| Ok::<_, ModelError>(config.opt_str("model_type")? == Some("CrossEncoder")));
    Ok(kind.transpose()?.unwrap_or(false))
}

/// What a cross-encoder compares: the logits of two tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogitScore {
    /// Id of the token that the model writes for a relevant document.
    pub yes: u32,
    /// Id of the one that it writes for an irrelevant document.
    pub no: u32,
    /// The default prompt.
    pub prompt: Option<String>,
}

/// Reads what the cross-encoder in a model directory compares; `None` if it is none, or one with a classifier.
pub fn logit_score(dir: &Path) -> Result<Option<LogitScore>, ModelError> {
    if !dir.join(MODULES).is_file() || !is_in(dir)? {
        return Ok(None);
    }
    for module in ConfigFile::open_list(&dir.join(MODULES))? {
        if module.str("type")?.rsplit('.').next() != Some("LogitScore") {
            continue;
        }
        let config = ConfigFile::open(&file_of(dir, folder(&module)?, CONFIG))?;
        let id = |key: &str| match config.ids(key)?[..] {
            [id] => Ok(id),
            _ => Err(config.refuse(key, "one id")),
        };
        let (mut prompts, default) = read_prompts(dir)?;
        let prompt = default.and_then(|name| prompts.remove(&name));
        return Ok(Some(LogitScore { yes: id("true_token_id")?, no: id("false_token_id")?, prompt }));
    }
    Ok(None)
}
