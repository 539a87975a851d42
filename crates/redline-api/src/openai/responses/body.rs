//! JSON types of `/v1/responses`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::chat::tools::{AgentKeys, Effort, FlatToolShape, MAX_TOOLS};
use crate::cost::Usage;
use crate::generation::GenerationParts;
use crate::generation::canvas::CanvasEvent;
use crate::generation::mode::GenerationMeta;
use crate::generation::restrict::restrict;
use crate::generation::stream::ServerEvent;
use crate::grammar::{FormatShape, TextFormat};
use crate::json::cases::{case, case_if_given, cases, given, streams, tools};
use crate::json::finite::Finite;
use crate::json::object::objects;
use crate::json::parts::with_parts;
use crate::json::shape::{self, one_of, schema, text_or_list_of};
use crate::json::text::JsonText;
use crate::openai::IgnoredFields;
use crate::receipt::document::ReceiptDocument;

/// Asks for an answer to a text or to a conversation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = request_cases)]
#[serde(deny_unknown_fields, remote = "ResponsesBody")]
pub struct ResponsesBody {
    /// The user's text, or messages.
    pub input: TextOrParts<ResponsesItem>,
    /// The system message.
    pub instructions: Option<String>,
    /// Maximum number of new tokens.
    #[schemars(range(min = 1))]
    pub max_output_tokens: Option<usize>,
    /// Further variables of the chat template by name.
    pub chat_template_kwargs: Option<BTreeMap<String, JsonText>>,
    /// Notes of the caller, which the answer repeats.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Whether to store the answer. Accepted; nothing is stored.
    pub store: Option<bool>,
    /// The form of the answer.
    pub text: Option<ResponsesText>,
    /// The tools that the model may call, with JSON schemas of their arguments.
    #[schemars(with = "Option<Vec<FlatToolShape>>", length(max = MAX_TOOLS))]
    pub tools: Option<Vec<JsonText>>,
    /// How the model reasons before it answers.
    pub reasoning: Option<ResponsesReasoning>,
    /// What to do with a long input. Only `disabled` is supported.
    #[schemars(with = "Option<shape::Disabled>")]
    pub truncation: Option<String>,
    /// Whether to answer later. Only `false` is supported.
    #[schemars(with = "Option<shape::False>")]
    pub background: Option<bool>,
    /// Further parts of the answer. Those that it never has are accepted; log-probabilities are not supported.
    #[schemars(with = "Option<Vec<Included>>")]
    pub include: Option<Vec<String>>,
    /// Number of most probable tokens at each position. Only 0 is supported.
    #[schemars(range(max = 0))]
    pub top_logprobs: Option<usize>,
    /// Not supported, because nothing is stored.
    #[schemars(with = "Option<shape::Unsupported>")]
    pub previous_response_id: Option<String>,
    /// Not supported, because nothing is stored.
    #[schemars(with = "Option<shape::Unsupported>")]
    pub conversation: Option<JsonText>,
    /// Not supported.
    #[schemars(with = "Option<shape::Unsupported>")]
    pub prompt: Option<JsonText>,
    /// Not supported.
    #[schemars(with = "Option<shape::Unsupported>")]
    pub context_management: Option<JsonText>,
    /// Not supported.
    #[schemars(with = "Option<shape::Unsupported>")]
    pub max_tool_calls: Option<usize>,
    /// Not supported.
    #[schemars(with = "Option<shape::Unsupported>")]
    pub moderation: Option<JsonText>,
    /// Which tools are called, and whether reasoning is shown.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub agent: AgentKeys,
    /// What is accepted and not used.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub ignored: IgnoredFields,
    /// How the answer is generated.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub parts: GenerationParts,
}

with_parts! {
    ResponsesBody { agent: AgentKeys, ignored: IgnoredFields, parts: GenerationParts }
}

/// How a model reasons.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "ResponsesReasoning")]
pub struct ResponsesReasoning {
    /// How much to reason. Not every chat template reads it.
    pub effort: Option<Effort>,
    /// Accepted and not used: reasoning is shown as it is.
    pub summary: Option<String>,
    /// Accepted and not used, by the older name of `summary`.
    pub generate_summary: Option<String>,
}

/// The form of an answer.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "ResponsesText")]
pub struct ResponsesText {
    /// The type of the text: `text`; `json_object`; or `json_schema`, with `schema`.
    #[schemars(with = "Option<FormatShape>")]
    pub format: Option<TextFormat>,
    /// Not supported.
    #[schemars(with = "Option<shape::Unsupported>")]
    pub verbosity: Option<String>,
}

/// A text, or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextOrParts<T> {
    /// A text.
    Text(String),
    /// A list.
    Parts(Vec<T>),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOrParts<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = TextOrParts<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of objects")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TextOrParts::Text(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(TextOrParts::Parts)
            }
        }
        from.deserialize_any(Either(std::marker::PhantomData))
    }
}

/// An item of an input: a message, a call of an earlier answer, its result, or the reasoning before them. Other keys are not read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(transform = item_cases)]
#[serde(remote = "ResponsesItem")]
pub struct ResponsesItem {
    /// `message`, which is the default; `function_call`, `function_call_output` or `reasoning`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The role.
    pub role: Option<String>,
    /// The text, or parts.
    pub content: Option<TextOrParts<ResponsesPart>>,
    /// Of a call and its result: identifies the call.
    pub call_id: Option<String>,
    /// Of a call: the name of the tool.
    pub name: Option<String>,
    /// Of a call: the arguments in JSON.
    pub arguments: Option<String>,
    /// Of a result: the text, or parts.
    pub output: Option<TextOrParts<ResponsesPart>>,
}

/// A part of a message. Only texts are supported; other keys of theirs are not read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(transform = part_cases)]
#[serde(remote = "ResponsesPart")]
pub struct ResponsesPart {
    /// `input_text`, `output_text`, or `reasoning_text` in reasoning.
    #[serde(rename = "type")]
    pub kind: String,
    /// The text.
    pub text: Option<String>,
}

impl ResponsesPart {
    /// The supported types.
    pub const KINDS: &[&str] = &["input_text", "output_text", "reasoning_text"];
}

objects!(ResponsesReasoning, ResponsesText, ResponsesItem, ResponsesPart);

/// Answer of `/v1/responses`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResponseObject {
    /// Identifies the answer.
    pub id: String,
    /// Always `response`.
    pub object: &'static str,
    /// When the request came, in seconds since 1970.
    pub created_at: u64,
    /// `in_progress`, `completed`, `incomplete` or `failed`.
    pub status: &'static str,
    /// Always `false`.
    pub background: bool,
    /// Why it failed.
    pub error: Option<ResponseFailure>,
    /// Why it is incomplete.
    pub incomplete_details: Option<IncompleteDetails>,
    /// The system message.
    pub instructions: Option<String>,
    /// Maximum number of new tokens, if the request had one.
    pub max_output_tokens: Option<usize>,
    /// The model's name.
    pub model: String,
    /// Reasoning, messages and calls, in their order.
    pub output: Vec<ResponseItem>,
    /// Whether it may call several tools.
    pub parallel_tool_calls: bool,
    /// Always `null`.
    pub previous_response_id: Option<String>,
    /// Always `false`: nothing is stored.
    pub store: bool,
    /// The temperature.
    pub temperature: Finite<f32>,
    /// The form of the answer.
    pub text: ResponseTextForm,
    /// Which tool it was to call.
    #[schemars(with = "serde_json::Value")]
    pub tool_choice: JsonText,
    /// The tools that it may call.
    #[schemars(with = "Vec<serde_json::Value>")]
    pub tools: Vec<JsonText>,
    /// Always 0.
    pub top_logprobs: usize,
    /// The probability up to which tokens were kept.
    pub top_p: Finite<f32>,
    /// Always `disabled`.
    pub truncation: &'static str,
    /// Token counts, once they are known.
    pub usage: Option<ResponseUsage>,
    /// The end user's name of the request.
    pub user: Option<String>,
    /// The notes of the request.
    pub metadata: BTreeMap<String, String>,
    /// Of a model that fills masks: how they were filled, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<GenerationMeta>,
    /// The receipt, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

/// Why an answer failed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResponseFailure {
    /// A short name of the error.
    pub code: String,
    /// The fact, and what to do about it.
    pub message: String,
}

/// Why an answer is incomplete.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct IncompleteDetails {
    /// `max_output_tokens`.
    pub reason: &'static str,
}

/// The form of the text of an answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResponseTextForm {
    /// The type of the text.
    pub format: ResponseTextFormat,
}

/// A format of text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResponseTextFormat {
    /// `text`, `json_object` or `json_schema`.
    #[serde(rename = "type")]
    pub kind: &'static str,
}

/// A part of an answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ResponseItem {
    /// A text.
    Message(ResponseMessage),
    /// A call of a tool.
    Call(ResponseCall),
    /// Reasoning.
    Reasoning(ResponseReasoning),
}

/// A call of a tool.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResponseCall {
    /// Identifies the item.
    pub id: String,
    /// Always `function_call`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `in_progress`, `completed` or `incomplete`.
    pub status: &'static str,
    /// Identifies the call: an item of type `function_call_output` with its result has it too.
    pub call_id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments in JSON.
    pub arguments: String,
}

/// Reasoning.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResponseReasoning {
    /// Identifies the item.
    pub id: String,
    /// Always `reasoning`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Always empty.
    pub summary: [(); 0],
    /// The text, once there is one.
    pub content: Vec<ResponseReasoningPart>,
}

/// A text of reasoning.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResponseReasoningPart {
    /// Always `reasoning_text`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The text.
    pub text: String,
}

/// The message of an answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResponseMessage {
    /// Identifies the message.
    pub id: String,
    /// Always `message`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `in_progress`, `completed` or `incomplete`.
    pub status: &'static str,
    /// Always `assistant`.
    pub role: &'static str,
    /// The text, once there is one.
    pub content: Vec<ResponseTextPart>,
}

/// A text of a message.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResponseTextPart {
    /// Always `output_text`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The text.
    pub text: String,
    /// Always empty.
    pub annotations: [(); 0],
    /// Always empty.
    pub logprobs: [(); 0],
}

impl ResponseTextPart {
    /// A text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { kind: "output_text", text: text.into(), annotations: [], logprobs: [] }
    }
}

/// Token counts of an answer.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ResponseUsage {
    /// Prompt tokens.
    pub input_tokens: usize,
    /// Details of the prompt tokens.
    pub input_tokens_details: InputTokensDetails,
    /// Generated tokens.
    pub output_tokens: usize,
    /// Details of the generated tokens.
    pub output_tokens_details: OutputTokensDetails,
    /// The sum of both.
    pub total_tokens: usize,
}

/// Where prompt tokens came from.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct InputTokensDetails {
    /// Prompt tokens taken from a cache filled by an earlier request.
    pub cached_tokens: usize,
    /// Always 0: nothing is charged for storing prefixes.
    pub cache_write_tokens: usize,
}

/// What generated tokens are for.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct OutputTokensDetails {
    /// Tokens of reasoning, with the mark of its end.
    pub reasoning_tokens: usize,
}

impl From<Usage> for ResponseUsage {
    fn from(usage: Usage) -> Self {
        let cached_tokens = usage.prompt_tokens_details.cached_tokens;
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputTokensDetails { cached_tokens, cache_write_tokens: 0 },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputTokensDetails {
                reasoning_tokens: usage.completion_tokens_details.unwrap_or_default().reasoning_tokens,
            },
            total_tokens: usage.total_tokens,
        }
    }
}

/// An event of a streamed answer of `/v1/responses`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResponseEvent {
    /// The name of the event.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Its place in the stream, from 0.
    pub sequence_number: u64,
    /// What it says.
    #[serde(flatten)]
    pub content: ResponseEventContent,
}

impl ServerEvent for ResponseEvent {
    fn name(&self) -> Option<&'static str> {
        Some(self.kind)
    }
}

/// What an event says.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ResponseEventContent {
    /// The state of the answer.
    Response {
        /// The answer so far.
        response: Box<ResponseObject>,
    },
    /// An item begins or ends.
    Item {
        /// Its index.
        output_index: usize,
        /// The item so far.
        item: ResponseItem,
    },
    /// More of the arguments of a call.
    ArgumentsDelta {
        /// The call.
        item_id: String,
        /// The index of the call.
        output_index: usize,
        /// The new text.
        delta: String,
    },
    /// The end of the arguments of a call.
    Arguments {
        /// The call.
        item_id: String,
        /// The index of the call.
        output_index: usize,
        /// The name of the tool.
        name: String,
        /// The arguments in JSON.
        arguments: String,
    },
    /// More of the reasoning.
    ReasoningDelta {
        /// The item.
        item_id: String,
        /// The index of the item.
        output_index: usize,
        /// The index of the part.
        content_index: usize,
        /// The new text.
        delta: String,
    },
    /// The end of the reasoning.
    Reasoning {
        /// The item.
        item_id: String,
        /// The index of the item.
        output_index: usize,
        /// The index of the part.
        content_index: usize,
        /// The whole text.
        text: String,
    },
    /// A part of a message begins or ends.
    Part {
        /// The message.
        item_id: String,
        /// The index of the message.
        output_index: usize,
        /// The index of the part.
        content_index: usize,
        /// The part so far.
        part: ResponseTextPart,
    },
    /// New text.
    Delta {
        /// The message.
        item_id: String,
        /// The index of the message.
        output_index: usize,
        /// The index of the part.
        content_index: usize,
        /// The new text.
        delta: String,
        /// Always empty.
        logprobs: [(); 0],
    },
    /// What is new of the canvas of a model that fills masks.
    Canvas {
        /// The message.
        item_id: String,
        /// The index of the message.
        output_index: usize,
        /// The index of the part.
        content_index: usize,
        /// The canvas before its first pass, or a pass.
        canvas: CanvasEvent,
    },
    /// The end of a text.
    Text {
        /// The message.
        item_id: String,
        /// The index of the message.
        output_index: usize,
        /// The index of the part.
        content_index: usize,
        /// The whole text.
        text: String,
        /// Always empty.
        logprobs: [(); 0],
    },
}

impl<T: JsonSchema> JsonSchema for TextOrParts<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Owned(format!("TextOrParts_for_{}", T::schema_name()))
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        schema(text_or_list_of(generator.subschema_for::<T>()))
    }
}

/// Parts that an answer never has: reasoning is not encrypted, and no tools of the server are called.
pub(crate) const NEVER_INCLUDED: &[&str] = &[
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
];

/// A further part of an answer.
struct Included;

shape::schemas! {
    Included: |_g| shape::one_of(NEVER_INCLUDED);
}

/// Streams end with the token counts, and there is an input or a system message.
fn request_cases(schema: &mut Schema) {
    streams(schema);
    tools(schema);
    let one = [json!(1), json!(null)];
    restrict(schema, &[("n", &one), ("best_of", &one)]);
    let options = case([], &["include_usage", "continuous_usage_stats"]);
    cases(schema, [case_if_given([("stream_options", options)])]);
    let some = json!({ "type": ["string", "array"], "minItems": 1 });
    cases(schema, [case_if_given([("input", some)]), case([("instructions", given())], &[])]);
}

/// Messages have a role and a content, calls a name and arguments, and results an output.
fn item_cases(schema: &mut Schema) {
    let mut message = case([("role", given()), ("content", given())], &[]);
    message["properties"]["type"] = json!({ "type": ["string", "null"], "enum": ["message", null] });
    let of_kind = |kind: &str| ("type", one_of(&[kind]));
    let call = case(
        [of_kind("function_call"), ("call_id", given()), ("name", given()), ("arguments", given())],
        &[],
    );
    let output = case([of_kind("function_call_output"), ("call_id", given()), ("output", given())], &[]);
    cases(schema, [message, call, output, case([of_kind("reasoning")], &[])]);
}

/// Parts are texts.
fn part_cases(schema: &mut Schema) {
    cases(schema, [case([("type", one_of(ResponsesPart::KINDS)), ("text", given())], &[])]);
}
