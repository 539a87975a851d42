//! Why a request cannot be converted or run.

use std::sync::Arc;

use redline_engine::EngineError;
use redline_settings::{Hint, Setting, hint};
use redline_tokenizer::TokenizerError;

/// The error of a request.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Neither the request nor the defaults name a label.
    #[error("no label given")]
    NoLabel,
    /// The model of this name has no chat template.
    #[error("`{0}` has no chat template")]
    NoChatTemplate(String),
    /// A chat template cannot be applied to a prompt of token ids.
    #[error("a chat template and a prompt of token ids")]
    ChatOfIds,
    /// A request has neither a text, whose key this is, nor messages.
    #[error("neither `{0}` nor `messages` is given")]
    NoPrompt(&'static str),
    /// A request has both a text, whose key this is, and messages.
    #[error("both `{0}` and `messages` are given")]
    TwoPrompts(&'static str),
    /// A request has this key, which concerns messages, and none.
    #[error("`{0}` is given without `messages`")]
    NoMessages(&'static str),
    /// The chat template cannot be read or compiled.
    #[error("{0}")]
    InvalidTemplate(Arc<TokenizerError>),
    /// The chat template cannot be applied to a conversation.
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
            Self::NoChatTemplate(_) => Some(hint![
                "a template is `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`; models that continue text have \
                 none; ",
                Setting::ChatTemplate.to("FILE"),
                " takes one from a file"
            ]),
            Self::ChatOfIds => Some(hint!["a chat template takes text"]),
            Self::NoPrompt(_) => Some(hint!["give one of them"]),
            Self::TwoPrompts(_) => {
                Some(hint!["give one of them; a conversation is formatted by the chat template"])
            }
            Self::NoMessages(_) => Some(hint![
                "it concerns the chat template: give `messages`, or format prompts with ",
                Setting::Chat
            ]),
            Self::Chat(error @ TokenizerError::Conversation { .. }) => error.hint().map(Hint::from),
            Self::Chat(_) | Self::InvalidTemplate(_) => Some(hint![
                Setting::ChatTemplate.to("FILE"),
                " takes another template; or ",
                Setting::Chat.unset(),
                " and write the whole prompt"
            ]),
            Self::Engine(error) => error.hint(),
        }
    }

    /// Whether this is a usage error, which the caller avoids by changing the request.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::NoLabel | Self::NoChatTemplate(_) | Self::ChatOfIds)
    }
}
