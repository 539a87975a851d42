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
    /// Neither the request nor the defaults have a query.
    #[error("no query given")]
    NoQuery,
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
    /// A field of a request is invalid.
    #[error("{fact}")]
    Field {
        /// The field, such as `stop[2]`.
        param: String,
        /// The fact with its numbers.
        fact: String,
        /// What to do instead.
        hint: Option<Hint>,
    },
    /// The chat template cannot be read or compiled.
    #[error("{0}")]
    InvalidTemplate(Arc<EngineError>),
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
            Self::NoQuery => Some(hint!["`query` of the request, or ", Setting::Query, " for all requests"]),
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
            Self::Field { hint, .. } => hint.clone(),
            Self::Engine(error) => error.hint(),
        }
    }

    /// Whether this is a usage error, which the caller avoids by changing the request.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::NoLabel | Self::NoQuery | Self::NoChatTemplate(_) | Self::ChatOfIds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_caller_can_change_is_a_usage_error_and_has_a_hint() {
        let told = |error: &ApiError| {
            let hint = error.hint().map(|hint| hint.to_string());
            (error.to_string(), hint.unwrap_or_default(), error.is_usage())
        };
        let (fact, hint, usage) = told(&ApiError::NoLabel);
        assert_eq!((fact.as_str(), usage), ("no label given", true));
        assert_eq!(hint, "`labels` or `label_token_ids` of the request, or `labels` for all requests");
        let (fact, hint, usage) = told(&ApiError::NoChatTemplate("demo".to_owned()));
        assert!(fact == "`demo` has no chat template" && usage, "{fact}");
        assert!(hint.starts_with("a template is `chat_template.jinja`, or `chat_template` in"), "{hint}");
        let (_, hint, usage) = told(&ApiError::ChatOfIds);
        assert_eq!((hint.as_str(), usage), ("a chat template takes text", true));
        let failed = TokenizerError::Form { place: "p".to_owned(), reason: "no questions".to_owned() };
        let (_, hint, usage) = told(&failed.into());
        assert_eq!(
            (hint.as_str(), usage),
            (
                "`chat_template` = FILE takes another template; or leave out `chat` and write the whole prompt",
                false
            )
        );
        let (_, hint, usage) = told(&EngineError::NoTokenizer("m".to_owned()).into());
        assert!(hint.starts_with("give token ids instead of text") && !usage, "{hint}");
    }
}
