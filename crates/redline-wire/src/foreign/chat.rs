//! `/v1/chat/completions`, as OpenAI and vLLM have it.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::generation::generation_body;
use crate::cases::{at_most, case, case_if_given, cases, continuations, given, only_true, streams, tools};
use crate::limits::{MAX_CONTINUATIONS, MAX_PENALTY, MAX_TOP_LOGPROBS};
use crate::shape::{self, one_of, schemas, text};
use crate::{
    CanvasEvent, ChatKeys, Finite, GenerationMeta, JsonText, LogitBias, ReceiptDocument, StreamEvent,
    Strings, TypedObject, Usage,
};

generation_body! {
    /// Asks for answers to a conversation.
    #[derive(Clone, Debug, Deserialize, JsonSchema)]
    #[schemars(transform = request_cases)]
    #[serde(deny_unknown_fields)]
    pub struct ChatCompletionBody {
        /// The messages, objects with `role` and `content`.
        #[schemars(with = "Vec<ChatMessageShape>", length(min = 1))]
        pub messages: Vec<JsonText>,
        /// Maximum number of new tokens per answer.
        #[schemars(range(min = 1))]
        pub max_completion_tokens: Option<usize>,
        /// The older name of `max_completion_tokens`.
        #[schemars(range(min = 1))]
        pub max_tokens: Option<usize>,
        /// Locally typical sampling up to this probability.
        #[schemars(with = "Option<shape::ShareAboveZero>")]
        pub typical_p: Option<f32>,
        /// Number of answers.
        #[schemars(range(min = 1, max = MAX_CONTINUATIONS))]
        pub n: Option<usize>,
        /// Texts before which an answer stops.
        #[schemars(with = "Option<shape::Stops>")]
        pub stop: Option<Strings>,
        /// Whether to return log-probabilities of the tokens.
        pub logprobs: Option<bool>,
        /// Number of most probable tokens to return at each position.
        #[schemars(range(max = MAX_TOP_LOGPROBS))]
        pub top_logprobs: Option<usize>,
        /// Numbers that are added to logits.
        pub logit_bias: Option<LogitBias>,
        /// Subtracted once from the logits of generated tokens.
        #[schemars(range(min = -MAX_PENALTY, max = MAX_PENALTY))]
        pub presence_penalty: Option<f32>,
        /// Subtracted from the logit of a token for each time it was generated.
        #[schemars(range(min = -MAX_PENALTY, max = MAX_PENALTY))]
        pub frequency_penalty: Option<f32>,
        /// Divides positive logits of tokens that occurred.
        #[schemars(with = "Option<shape::Repetition>")]
        pub repetition_penalty: Option<f32>,
        /// Further variables of the chat template by name.
        pub chat_template_kwargs: Option<BTreeMap<String, JsonText>>,
        /// Documents that the model may use, objects.
        #[schemars(with = "Option<Vec<shape::AnyObject>>")]
        pub documents: Option<Vec<JsonText>>,
        /// The date that the chat template may print, such as `2026-07-26`.
        #[schemars(with = "Option<shape::Day>")]
        pub date: Option<String>,
        /// End the prompt where the assistant's answer begins.
        pub add_generation_prompt: Option<bool>,
        /// End the prompt with the content of the final message, so that the model continues it.
        pub continue_final_message: Option<bool>,
        /// Functions that the model may call. Supported only if it may call none.
        pub tools: Option<Vec<JsonText>>,
        /// Which function to call: `none`, or `auto` without functions.
        #[schemars(with = "Option<shape::NoCall>")]
        pub tool_choice: Option<JsonText>,
        /// Accepted and not used.
        pub parallel_tool_calls: Option<bool>,
        /// The older name of `tools`.
        #[schemars(with = "Option<shape::EmptyList>")]
        pub functions: Option<Vec<JsonText>>,
        /// The older name of `tool_choice`.
        #[schemars(with = "Option<shape::NoCall>")]
        pub function_call: Option<JsonText>,
        /// The form of the answer. Only `text` is supported.
        #[schemars(with = "Option<shape::PlainText>")]
        pub response_format: Option<TypedObject>,
        /// The kinds of output. Only `text` is supported.
        #[schemars(with = "Option<Vec<shape::TextName>>")]
        pub modalities: Option<Vec<String>>,
        /// Not supported.
        #[schemars(with = "Option<shape::Unsupported>")]
        pub audio: Option<JsonText>,
        /// Not supported.
        #[schemars(with = "Option<shape::Unsupported>")]
        pub prediction: Option<JsonText>,
        /// Not supported.
        #[schemars(with = "Option<shape::Unsupported>")]
        pub reasoning_effort: Option<JsonText>,
        /// Not supported.
        #[schemars(with = "Option<shape::Unsupported>")]
        pub verbosity: Option<JsonText>,
        /// Not supported.
        #[schemars(with = "Option<shape::Unsupported>")]
        pub web_search_options: Option<JsonText>,
        /// Not supported.
        #[schemars(with = "Option<shape::Unsupported>")]
        pub moderation: Option<JsonText>,
        /// Notes of the caller. Accepted and not used.
        pub metadata: Option<BTreeMap<String, String>>,
        /// Whether to store the answer. Accepted; nothing is stored.
        pub store: Option<bool>,
        /// Accepted and not used.
        pub service_tier: Option<String>,
        /// Accepted and not used.
        pub prompt_cache_key: Option<String>,
        /// Accepted and not used.
        pub prompt_cache_retention: Option<String>,
        /// Accepted and not used.
        pub safety_identifier: Option<String>,
    }
}

impl ChatCompletionBody {
    /// Moves the fields that concern the chat template out of the request.
    pub fn take_chat_keys(&mut self) -> ChatKeys {
        ChatKeys {
            messages: Some(std::mem::take(&mut self.messages)),
            tools: None,
            documents: self.documents.take(),
            chat_template_kwargs: self.chat_template_kwargs.take(),
            date: self.date.take(),
            add_generation_prompt: self.add_generation_prompt.take(),
            continue_final_message: self.continue_final_message.take(),
        }
    }
}

/// A message as chat templates read it. They may read further fields.
struct ChatMessageShape;

schemas! {
    ChatMessageShape: |_g| {
        let part = json!({
            "type": "object",
            "properties": { "type": one_of(&["text"]), "text": text() },
            "required": ["type", "text"]
        });
        json!({
            "type": "object",
            "properties": {
                "role": text(),
                "content": { "anyOf": [text(), { "type": "array", "items": part }, { "type": "null" }] },
                "tool_calls": { "type": ["array", "null"], "items": { "type": "object" } }
            },
            "required": ["role"],
            "anyOf": [
                case([("content", given())], &[]),
                case([("role", one_of(&["assistant"]))], &[])
            ]
        })
    };
}

/// Answer of `/v1/chat/completions`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChatCompletion {
    /// Identifies the answer.
    pub id: String,
    /// Always `chat.completion`.
    pub object: &'static str,
    /// When the request came, in seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// The answers.
    pub choices: Vec<ChatCompletionChoice>,
    /// Token counts of all answers together.
    pub usage: Usage,
    /// Of a model that fills masks: how they were filled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<GenerationMeta>,
    /// The receipt, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

/// An answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChatCompletionChoice {
    /// Its index.
    pub index: usize,
    /// The message.
    pub message: AssistantMessage,
    /// Log-probabilities of its tokens.
    pub logprobs: Option<ChatLogprobs>,
    /// Why it ended: `stop` or `length`.
    pub finish_reason: &'static str,
}

/// A message of the model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AssistantMessage {
    /// Always `assistant`.
    pub role: &'static str,
    /// The text.
    pub content: String,
    /// Always `null`.
    pub refusal: Option<String>,
}

/// Log-probabilities of the tokens of an answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChatLogprobs {
    /// One entry per token.
    pub content: Vec<ChatPosition>,
    /// Always `null`.
    pub refusal: Option<String>,
}

/// Log-probabilities at a position.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChatPosition {
    /// The token.
    #[serde(flatten)]
    pub chosen: ChatToken,
    /// The most probable tokens, most probable first.
    pub top_logprobs: Vec<ChatToken>,
}

/// A token and its log-probability.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChatToken {
    /// Its text; incomplete characters are U+FFFD.
    pub token: String,
    /// Its log-probability.
    pub logprob: Finite<f32>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// An event of a streamed answer of `/v1/chat/completions`.
pub type ChatCompletionEvent = StreamEvent<ChatCompletionDelta>;

/// What is new of an answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChatCompletionDelta {
    /// The index of the answer.
    pub index: usize,
    /// The new parts of the message.
    pub delta: MessageDelta,
    /// Log-probabilities of the new tokens.
    pub logprobs: Option<ChatLogprobs>,
    /// In the last chunk of the answer: `stop` or `length`.
    pub finish_reason: Option<&'static str>,
    /// What is new of the canvas, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canvas: Option<CanvasEvent>,
}

/// New parts of a message.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct MessageDelta {
    /// In the first chunk: `assistant`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// The new text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

/// The rules between fields: `stream_options` require `stream`, functions require `tool_choice` `none`, several answers a temperature, and
/// `top_logprobs` `logprobs`.
fn request_cases(schema: &mut Schema) {
    streams(schema);
    tools(schema);
    continuations(schema, &["n"]);
    cases(schema, [case_if_given([("top_logprobs", at_most(0))]), case([("logprobs", only_true())], &[])]);
}
