//! `/v1/messages/count_tokens`: the number of tokens of a conversation, in Anthropic's form.

use redline_engine::Prompt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chat::keys::{ChatKeys, JsonText};
use crate::chat::template::Chat;
use crate::error::ApiError;
use crate::generation::unsupported;
use crate::json::fields::refused;
use crate::json::object::objects;
use crate::json::shape;
use crate::openai::chat_completions::ChatMessageShape;
use crate::openai::responses::body::TextOrParts;

/// Asks for the number of tokens of a conversation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CountTokensBody {
    /// The model's name.
    pub model: Option<String>,
    /// The messages, objects with `role` and `content`.
    #[schemars(with = "Vec<ChatMessageShape>", length(min = 1))]
    pub messages: Vec<JsonText>,
    /// The system message: a text, or parts.
    pub system: Option<TextOrParts<SystemPart>>,
    /// Functions that the model may call. Only an empty list is supported.
    #[schemars(with = "Option<shape::EmptyList>")]
    pub tools: Option<Vec<JsonText>>,
}

/// A part of the system message.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(remote = "SystemPart")]
pub struct SystemPart {
    /// The text; other keys are not read.
    pub text: String,
}

objects!(SystemPart);

/// The number of tokens.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct CountTokensAnswer {
    /// The tokens of the conversation as the chat template formats it, up to where the answer begins.
    pub input_tokens: usize,
}

/// The conversation as the prompt of a request for an answer. The date, such as `2026-07-26`, is for the template.
pub fn prompt(body: CountTokensBody, date: String, chat: &Chat) -> Result<Prompt, ApiError> {
    if body.messages.is_empty() {
        return Err(refused("messages", "`messages` is empty", "give at least one"));
    }
    unsupported("tools", body.tools.is_some_and(|tools| !tools.is_empty()), "leave it out")?;
    let system = body.system.map(|system| match system {
        TextOrParts::Text(text) => vec![text],
        TextOrParts::Parts(parts) => parts.into_iter().map(|part| part.text).collect(),
    });
    let system = system.filter(|texts| !texts.is_empty()).map(|texts| JsonText::message("system", &texts));
    let messages = system.into_iter().chain(body.messages).collect();
    chat.of_messages("messages", messages, ChatKeys { date: Some(date), ..ChatKeys::default() })
}
