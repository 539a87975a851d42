//! Why a request cannot be converted or run.

use redline_engine::EngineError;
use redline_settings::{Hint, Setting, hint};
use redline_tokenizer::TokenizerError;

/// The error of a request.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Neither the request nor the defaults name a label.
    #[error("no label given")]
    NoLabel,
    /// Neither the request nor the defaults have a query.
    #[error("no query given")]
    NoQuery,
    /// The model of this name has no chat template.
    #[error("`{0}` has no chat template")]
    NoChatTemplate(String),
    /// A chat template cannot be applied to a prompt of token ids.
    #[error("a chat template and a prompt of token ids")]
    ChatOfIds,
    /// The chat template cannot be read or applied, or its text cannot be tokenised.
    #[error(transparent)]
    Chat(#[from] TokenizerError),
    /// The engine refused the request.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl ApiError {
    /// What the caller can do about the error.
    pub fn hint(&self) -> Option<Hint> {
        match self {
            Self::NoLabel => Some(hint![
                "`labels` or `label_token_ids` of the request, or ",
                Setting::Labels,
                " for all requests"
            ]),
            Self::NoQuery => Some(hint!["`query` of the request, or ", Setting::Query, " for all requests"]),
            Self::NoChatTemplate(_) => Some(hint![
                "`chat_template.jinja`, or `chat_template` in `tokenizer_config.json`; models that continue text have none"
            ]),
            Self::ChatOfIds => Some(hint!["a chat template takes text"]),
            Self::Chat(_) => Some(hint![Setting::Chat.unset(), " and write the whole prompt"]),
            Self::Engine(error) => error.hint(),
        }
    }

    /// Whether this is a usage error, which the caller avoids by changing the request.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::NoLabel | Self::NoQuery | Self::NoChatTemplate(_) | Self::ChatOfIds)
    }
}
