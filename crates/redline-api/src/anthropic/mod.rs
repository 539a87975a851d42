//! `/v1/messages` and `/v1/messages/count_tokens`: answers to conversations in Anthropic's form.

mod input;
mod stream;

use std::collections::BTreeMap;

use redline_engine::{FinishReason, Grammar, Prompt};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::stream::{MessageEvent, MessagesStream};
use crate::anthropic::input::ClientMessage;
use crate::chat::keys::ChatKeys;
use crate::chat::template::Chat;
use crate::chat::tools::{AgentKeys, Effort, MAX_BUDGET, MAX_TOOLS, ToolForm, ToolUse};
use crate::conversation::reading::{AnswerPart, Reading};
use crate::conversation::request::ChatRequest;
use crate::cost::{self, Usage};
use crate::error::ApiError;
use crate::generation::mode::{GenerationMode, GenerationOutcome};
use crate::generation::restrict::one_text;
use crate::generation::{GenerationFields, GenerationParts, StreamForm, generation_request};
use crate::grammar::{FormatShape, TextFormat};
use crate::head::AnswerHead;
use crate::json::cases::{case, case_if_given, cases};
use crate::json::fields::{refused, stops as check_stops, within};
use crate::json::input::Strings;
use crate::json::limits::{MAX_STOP, MAX_STOPS};
use crate::json::object::objects;
use crate::json::parts::{part, with_parts};
use crate::json::shape::{self, schemas};
use crate::json::text::JsonText;
use crate::openai::responses::body::TextOrParts;
use crate::options::RequestOptions;
use crate::receipt;
use crate::receipt::document::ReceiptDocument;
use crate::sampling::SamplingParameters;

/// Asks for the answer to a conversation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = request_cases)]
#[serde(deny_unknown_fields, remote = "MessagesBody")]
pub struct MessagesBody {
    /// The model's name.
    pub model: Option<String>,
    /// Maximum number of new tokens.
    #[schemars(range(min = 1))]
    pub max_tokens: usize,
    /// The messages.
    #[schemars(length(min = 1))]
    pub messages: Vec<ClientMessage>,
    /// Texts before which the answer ends.
    #[schemars(with = "Option<StopShape>")]
    pub stop_sequences: Option<Vec<String>>,
    /// Whether to send the answer as events while it is generated.
    pub stream: Option<bool>,
    /// Accepted and not used.
    pub metadata: Option<BTreeMap<String, Option<String>>>,
    /// Accepted and not used.
    pub service_tier: Option<String>,
    /// What else says how the conversation goes on.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub conversation: ConversationKeys,
    /// How tokens are chosen.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub sampling: SamplingParameters,
    /// Adapters, time limit, receipt.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub options: RequestOptions,
}

with_parts! {
    MessagesBody { conversation: ConversationKeys, sampling: SamplingParameters, options: RequestOptions }
    CountTokensBody { conversation: ConversationKeys }
}

part! {
    /// What a request says about its conversation, beside the messages.
    pub struct ConversationKeys {
        /// The system message: a text, or parts.
        pub system: TextOrParts<SystemPart>,
        /// The tools that the model may call, with JSON schemas of their arguments.
        #[schemars(with = "Option<Vec<ToolShape>>", length(max = MAX_TOOLS))]
        pub tools: Vec<JsonText>,
        /// Which tool to call: an object with the type `auto`, `any`, `none`, or `tool` and a name.
        #[schemars(with = "Option<ChoiceShape>")]
        pub tool_choice: JsonText,
        /// Whether the model reasons. Without it, the answer shows no reasoning, and templates that know how do not ask for any.
        pub thinking: Thinking,
        /// The form of the answer.
        pub output_config: OutputConfig,
    }
}

/// Whether a model reasons.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Thinking")]
pub struct Thinking {
    /// `enabled`, `disabled`, or `adaptive`: as the model does.
    #[serde(rename = "type")]
    pub kind: ThinkingKind,
    /// Number of tokens after which reasoning ends.
    #[schemars(range(min = 1, max = MAX_BUDGET))]
    pub budget_tokens: Option<usize>,
    /// Whether reasoning is shown: `omitted` hides it.
    pub display: Option<String>,
}

/// Whether a model reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ThinkingKind {
    /// It does.
    Enabled,
    /// It does not.
    Disabled,
    /// As it does without being asked.
    Adaptive,
}

/// The form of an answer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "OutputConfig")]
pub struct OutputConfig {
    /// The type of the text: `json_schema`, with `schema`.
    #[schemars(with = "Option<FormatShape>")]
    pub format: Option<TextFormat>,
    /// How much to reason. Not every chat template reads it.
    pub effort: Option<Effort>,
}

/// Asks for the number of tokens of a conversation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = choice_cases)]
#[serde(deny_unknown_fields, remote = "CountTokensBody")]
pub struct CountTokensBody {
    /// The model's name.
    pub model: Option<String>,
    /// The messages.
    #[schemars(length(min = 1))]
    pub messages: Vec<ClientMessage>,
    /// What else says how the conversation goes on.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub conversation: ConversationKeys,
}

/// A part of the system message.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(remote = "SystemPart")]
pub struct SystemPart {
    /// The text; other keys are not read.
    pub text: String,
}

objects!(Thinking, OutputConfig, SystemPart);

/// A message is one answer, and a call requires tools.
fn request_cases(schema: &mut Schema) {
    one_text(schema);
    choice_cases(schema);
    let absent = case([], &["stop"]);
    cases(schema, [absent, case([], &["stop_sequences"])]);
}

/// A call requires tools.
fn choice_cases(schema: &mut Schema) {
    let none = json!({ "type": ["object", "null"], "properties": { "type": { "enum": ["auto", "none"] } } });
    let some = json!({ "type": "array", "minItems": 1 });
    cases(schema, [case_if_given([("tool_choice", none)]), case([("tools", some)], &[])]);
}

/// A tool.
struct ToolShape;
/// Texts before which an answer ends.
struct StopShape;
/// Which tool to call.
struct ChoiceShape;

schemas! {
    StopShape: |_g| {
        let stop = json!({ "type": "string", "minLength": 1, "maxLength": MAX_STOP });
        shape::list_of(stop, [0, MAX_STOPS])
    };
    ToolShape: |_g| json!({
        "type": "object",
        "properties": {
            "type": { "enum": ["custom"] },
            "name": { "type": "string", "pattern": "^[a-zA-Z0-9_.-]{1,64}$" },
            "description": { "type": ["string", "null"] },
            "input_schema": { "type": ["object", "null"] }
        },
        "required": ["name"]
    });
    ChoiceShape: |_g| json!({
        "type": "object", "properties": { "type": { "enum": ["auto", "any", "none", "tool"] } }, "required": ["type"]
    });
}

/// The number of tokens.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct CountTokensAnswer {
    /// The tokens of the conversation as the chat template formats it, up to where the answer begins.
    pub input_tokens: usize,
}

/// Answer of `/v1/messages`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MessageAnswer {
    /// Identifies the answer.
    pub id: String,
    /// Always `message`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Always `assistant`.
    pub role: &'static str,
    /// The model's name.
    pub model: String,
    /// Reasoning, texts and calls, in their order.
    pub content: Vec<ContentBlock>,
    /// Why it ended: `end_turn`, `max_tokens`, `stop_sequence` or `tool_use`; `null` while it is generated.
    pub stop_reason: Option<&'static str>,
    /// The text before which it ended.
    pub stop_sequence: Option<String>,
    /// Token counts.
    pub usage: MessageUsage,
    /// The receipt, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

/// A block of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// A text.
    Text {
        /// The text.
        text: String,
    },
    /// A call of a tool.
    ToolUse {
        /// Identifies it: the block with its result has it as `tool_use_id`.
        id: String,
        /// The name of the tool.
        name: String,
        /// The arguments, an object.
        input: Value,
    },
    /// Reasoning.
    Thinking {
        /// The text.
        thinking: String,
        /// Always empty.
        signature: &'static str,
    },
}

/// Token counts of an answer.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct MessageUsage {
    /// Prompt tokens that were computed.
    pub input_tokens: usize,
    /// Generated tokens.
    pub output_tokens: usize,
    /// Prompt tokens taken from a cache filled by an earlier request.
    pub cache_read_input_tokens: usize,
    /// Always 0: nothing is charged for storing prefixes.
    pub cache_creation_input_tokens: usize,
}

impl From<Usage> for MessageUsage {
    fn from(usage: Usage) -> Self {
        let cached = usage.prompt_tokens_details.cached_tokens;
        Self {
            input_tokens: usage.prompt_tokens.saturating_sub(cached),
            output_tokens: usage.completion_tokens,
            cache_read_input_tokens: cached,
            cache_creation_input_tokens: 0,
        }
    }
}

/// The parts of a request that shape its answer.
#[derive(Clone, Debug)]
pub struct MessagesForm {
    stops: Vec<String>,
    /// Whether the answer is streamed.
    pub streams: bool,
}

/// The field that holds the number of tokens after which reasoning ends.
const BUDGET: &str = "thinking.budget_tokens";

/// What a body says about the prompt and the answer.
struct Conversation {
    messages: Vec<JsonText>,
    format: Option<TextFormat>,
    keys: ChatKeys,
    tools: ToolUse,
    agent: AgentKeys,
}

impl Conversation {
    fn of(messages: Vec<ClientMessage>, given: ConversationKeys) -> Result<Self, ApiError> {
        let ConversationKeys { system, tools, tool_choice, thinking, output_config } = given;
        let OutputConfig { format, effort } = output_config.unwrap_or_default();
        let system = system.map(|system| match system {
            TextOrParts::Text(text) => vec![text],
            TextOrParts::Parts(parts) => parts.into_iter().map(|part| part.text).collect(),
        });
        let system =
            system.filter(|texts| !texts.is_empty()).map(|texts| JsonText::message("system", &texts));
        let messages = system.into_iter().chain(input::messages(messages)?).collect();
        let kind = thinking.as_ref().map_or(ThinkingKind::Disabled, |thinking| thinking.kind);
        let mut keys = ChatKeys::default();
        if kind != ThinkingKind::Adaptive && effort.is_none() {
            let variables = keys.chat_template_kwargs.get_or_insert_default();
            variables.insert("enable_thinking".to_owned(), JsonText::boolean(kind == ThinkingKind::Enabled));
        }
        keys.reason(effort);
        let hides = |thinking: &Thinking| thinking.display.as_deref() == Some("omitted");
        let agent = AgentKeys {
            include_reasoning: Some(kind != ThinkingKind::Disabled && !thinking.as_ref().is_some_and(hides)),
            thinking_token_budget: within(
                BUDGET,
                thinking.and_then(|thinking| thinking.budget_tokens),
                1..=MAX_BUDGET,
            )?,
            ..AgentKeys::default()
        };
        let tools = ToolUse::of(ToolForm::Anthropic, tools, tool_choice.as_ref(), None)?;
        Ok(Self { messages, format, keys, tools, agent })
    }
}

/// Builds the engine's request, but for its prompt.
pub fn request(mode: GenerationMode, body: MessagesBody) -> Result<(ChatRequest, MessagesForm), ApiError> {
    if body.max_tokens == 0 {
        return Err(refused("max_tokens", "`max_tokens` is 0", "give at least 1"));
    }
    let mut sampling = body.sampling;
    sampling.check_one_text(false)?;
    if let Some(stops) = &body.stop_sequences {
        if sampling.stop.is_some() {
            let fact = "`stop` and `stop_sequences` are both given";
            return Err(refused("stop_sequences", fact, "give one of them"));
        }
        check_stops(stops).map_err(|error| match error {
            ApiError::Field { param, fact, hint } => ApiError::Field {
                param: param.replacen("stop", "stop_sequences", 1),
                fact: fact.replacen("`stop[", "`stop_sequences[", 1),
                hint,
            },
            error => error,
        })?;
        sampling.stop = Some(Strings(stops.clone()));
    }
    let stops = sampling.stop.as_ref().map(|stops| stops.0.clone()).unwrap_or_default();
    let Conversation { messages, format, keys, tools, agent } =
        Conversation::of(body.messages, body.conversation)?;
    let streams = body.stream == Some(true);
    let fields = GenerationFields { stream: body.stream, ..GenerationFields::default() };
    let parts = GenerationParts { fields, sampling, options: body.options, ..GenerationParts::default() };
    let stream = StreamForm::of(&parts, mode)?;
    let mut request = generation_request(mode, parts, Some(body.max_tokens), None, stream)?;
    let mut grammar_param = None;
    if let Some((param, grammar)) = format.map(grammar_of).transpose()?.flatten() {
        request.restrict(param, grammar)?;
        grammar_param = Some(param);
    }
    let request = ChatRequest::new(request, "messages", messages, keys, tools, &agent);
    let tells_stop = !stops.is_empty();
    Ok((
        ChatRequest { grammar_param, budget_param: BUDGET, tells_stop, ..request },
        MessagesForm { stops, streams },
    ))
}

/// The grammar of a format, and the field that gives it.
fn grammar_of(format: TextFormat) -> Result<Option<(&'static str, Grammar)>, ApiError> {
    format.grammar("output_config.format", "output_config.format.schema")
}

/// The conversation as the prompt of a request for an answer. The date, such as `2026-07-26`, is for the template.
pub fn prompt(body: CountTokensBody, date: String, chat: &Chat) -> Result<Prompt, ApiError> {
    let Conversation { messages, format, mut keys, tools, .. } =
        Conversation::of(body.messages, body.conversation)?;
    format.map(grammar_of).transpose()?;
    keys.date = Some(date);
    keys.tools = Some(tools.shown).filter(|tools| !tools.is_empty());
    chat.of_messages("messages", messages, keys)
}

/// Builds the answer, and its token counts in the form of other routes.
pub fn answer(
    head: AnswerHead,
    form: &MessagesForm,
    reading: &Reading,
    mut outcome: GenerationOutcome,
) -> Result<(MessageAnswer, Usage), ApiError> {
    let usage = cost::usage(outcome.end.counts);
    let mut answer = begun(head, usage);
    let one = outcome.take_one();
    let (parts, reader) = reading.read(0, &one)?;
    let stopped = reader.stopped_by(&form.stops);
    let was_cut = one.finish_reason != FinishReason::Stop;
    answer.content = parts.into_iter().filter_map(|part| block(part, was_cut)).collect();
    let calls = answer.content.iter().any(|block| matches!(block, ContentBlock::ToolUse { .. }));
    (answer.stop_reason, answer.stop_sequence) = ended(one.finish_reason, calls, stopped);
    answer.receipt = receipt::attached(outcome.receipt.take());
    Ok((answer, usage))
}

/// An answer without content.
fn begun(head: AnswerHead, usage: Usage) -> MessageAnswer {
    MessageAnswer {
        id: head.id,
        kind: "message",
        role: "assistant",
        model: head.model,
        content: Vec::new(),
        stop_reason: None,
        stop_sequence: None,
        usage: usage.into(),
        receipt: None,
    }
}

/// A part of an answer as a block. Arguments that are no object cannot be shown: of an answer that was cut they are left out, and otherwise
/// they are a text.
fn block(part: AnswerPart, was_cut: bool) -> Option<ContentBlock> {
    Some(match part {
        AnswerPart::Text(text) => ContentBlock::Text { text },
        AnswerPart::Reasoning(thinking) => ContentBlock::Thinking { thinking, signature: "" },
        AnswerPart::Call(call) => match call.object() {
            Some(input) => ContentBlock::ToolUse { id: call_id(&call.id), name: call.name, input },
            None if was_cut => return None,
            None => ContentBlock::Text { text: call.as_text() },
        },
    })
}

/// The id of a call.
fn call_id(id: &str) -> String {
    format!("toolu_{id}")
}

/// The name of the reason for which an answer ended, and the text before which it did.
fn ended(why: FinishReason, calls: bool, stopped: Option<String>) -> (Option<&'static str>, Option<String>) {
    match (why, stopped) {
        (FinishReason::Length | FinishReason::Cancelled, _) => (Some("max_tokens"), None),
        (FinishReason::Stop, _) if calls => (Some("tool_use"), None),
        (FinishReason::Stop, Some(text)) => (Some("stop_sequence"), Some(text)),
        (FinishReason::Stop, None) => (Some("end_turn"), None),
    }
}
