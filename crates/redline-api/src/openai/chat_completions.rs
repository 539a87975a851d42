//! `/v1/chat/completions`, as OpenAI and vLLM have it.

use std::collections::BTreeMap;
use std::sync::Arc;

use redline_chat::Delta;
use redline_engine::{FinishReason, PositionLogprobs, TokenLogprob};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::chat::keys::ChatKeys;
use crate::chat::tools::{AgentKeys, Effort, ToolForm, ToolUse};
use crate::conversation::reading::{AnswerPart, AnswerReader, Call, Reading};
use crate::conversation::request::ChatRequest;
use crate::cost::Usage;
use crate::error::ApiError;
use crate::error_body::ErrorDetail;
use crate::generation::canvas::CanvasEvent;
use crate::generation::mode::{GenerationMode, GenerationOutcome, GenerationPiece, PromptEnd};
use crate::generation::stream::{Chunks, StreamEvent, StreamFormat, StreamedAnswer, fail};
use crate::generation::{
    GeneratedAnswer, GenerationParts, StreamForm, generation_request, max_tokens, plain_text, reason,
    unsupported,
};
use crate::head::AnswerHead;
use crate::json::cases::{case, continuations, given, streams, tools, top_logprobs};
use crate::json::fields::{refused, within};
use crate::json::finite::Finite;
use crate::json::limits::MAX_TOP_LOGPROBS;
use crate::json::parts::with_parts;
use crate::json::shape::{self, one_of, schemas, text};
use crate::json::text::JsonText;
use crate::model::LoadedModel;
use crate::openai::IgnoredFields;

/// Asks for answers to a conversation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = request_cases)]
#[serde(deny_unknown_fields, remote = "ChatCompletionBody")]
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
    /// Whether to return log-probabilities of the tokens.
    pub logprobs: Option<bool>,
    /// Number of most probable tokens to return at each position.
    #[schemars(range(max = MAX_TOP_LOGPROBS))]
    pub top_logprobs: Option<usize>,
    /// The older name of `tools`.
    #[schemars(with = "Option<shape::EmptyList>")]
    pub functions: Option<Vec<JsonText>>,
    /// The older name of `tool_choice`.
    #[schemars(with = "Option<shape::NoCall>")]
    pub function_call: Option<JsonText>,
    /// The kinds of output. Only `text` is supported.
    #[schemars(with = "Option<Vec<shape::TextName>>")]
    pub modalities: Option<Vec<String>>,
    /// Not supported.
    #[schemars(with = "Option<shape::Unsupported>")]
    pub audio: Option<JsonText>,
    /// Not supported.
    #[schemars(with = "Option<shape::Unsupported>")]
    pub prediction: Option<JsonText>,
    /// How much to reason before the answer. Not every chat template reads it.
    pub reasoning_effort: Option<Effort>,
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
    /// What concerns the conversation, beside the messages.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub chat: ChatKeys,
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
    ChatCompletionBody { chat: ChatKeys, agent: AgentKeys, ignored: IgnoredFields, parts: GenerationParts }
}

/// A message as chat templates read it. They may read further fields.
pub(crate) struct ChatMessageShape;

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
pub type ChatCompletion = GeneratedAnswer<ChatCompletionChoice>;

/// An answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChatCompletionChoice {
    /// Its index.
    pub index: usize,
    /// The message.
    pub message: AssistantMessage,
    /// Log-probabilities of its tokens.
    pub logprobs: Option<ChatLogprobs>,
    /// Why it ended: `stop`, `length` or `tool_calls`.
    pub finish_reason: &'static str,
}

/// A message of the model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AssistantMessage {
    /// Always `assistant`.
    pub role: &'static str,
    /// The text; `null` if the answer only calls tools.
    pub content: Option<String>,
    /// Always `null`.
    pub refusal: Option<String>,
    /// The reasoning before the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The tools that it calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
}

/// A call of a tool.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ToolCall {
    /// Identifies it: a message of role `tool` with its result has it as `tool_call_id`.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What is called.
    pub function: CalledFunction,
}

/// A function and its arguments.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CalledFunction {
    /// Its name.
    pub name: String,
    /// Its arguments in JSON.
    pub arguments: String,
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
    /// The probability of all tokens that the grammar did not allow here, if there is one: log-probabilities are the model's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<f32>")]
    pub masked_mass: Option<Finite<f32>>,
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
    /// In the last chunk of the answer: `stop`, `length` or `tool_calls`.
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
    /// The new reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// What is new of a call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallDelta>,
}

/// What is new of a call: its id and name in the first chunk, and then more of its arguments.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ToolCallDelta {
    /// The index of the call.
    pub index: usize,
    /// Identifies the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// In the first chunk: `function`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// What is called.
    pub function: FunctionDelta,
}

/// What is new of a called function.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FunctionDelta {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// More of its arguments.
    pub arguments: String,
}

/// The rules between fields: `stream_options` require `stream`, a call requires tools, several answers a temperature, and `top_logprobs`
/// `logprobs`.
fn request_cases(schema: &mut Schema) {
    streams(schema);
    tools(schema);
    continuations(schema, &["n", "best_of"]);
    top_logprobs(schema);
}

/// The parts of a request that shape its answer.
#[derive(Clone, Copy, Debug)]
pub struct ChatForm {
    logprobs: bool,
    stream: Option<StreamForm>,
}

impl ChatForm {
    /// How the answer is streamed, if it is.
    pub fn stream(&self) -> Option<StreamForm> {
        self.stream
    }
}

/// Builds the engine's request, but for its prompt.
pub fn request(mode: GenerationMode, body: ChatCompletionBody) -> Result<(ChatRequest, ChatForm), ApiError> {
    check_supported(&body)?;
    let ChatCompletionBody { messages, mut chat, agent, parts, .. } = body;
    let (choice, parallel) = (agent.tool_choice.as_ref(), agent.parallel_tool_calls);
    let tools = ToolUse::of(ToolForm::Nested, chat.tools.take(), choice, parallel)?;
    chat.reason(body.reasoning_effort);
    let grammar_param = parts.grammar.param();
    let stream = StreamForm::of(&parts, mode)?;
    let most = match (body.max_completion_tokens, body.max_tokens) {
        (Some(new), Some(old)) if new != old => {
            let fact = format!("`max_completion_tokens` is {new}, and `max_tokens` is {old}");
            return Err(refused("max_tokens", fact, "leave it out: it is the older name of the other"));
        }
        (Some(new), _) => max_tokens("max_completion_tokens", Some(new))?,
        (None, old) => max_tokens("max_tokens", old)?,
    };
    let logprobs = asked_logprobs(body.logprobs, body.top_logprobs)?;
    let request = generation_request(mode, parts, most, logprobs, stream)?;
    let request = ChatRequest::new(request, "messages", messages, chat, tools, &agent);
    Ok((ChatRequest { grammar_param, ..request }, ChatForm { logprobs: logprobs.is_some(), stream }))
}

/// Refuses fields that are known and not supported.
fn check_supported(body: &ChatCompletionBody) -> Result<(), ApiError> {
    let functions = body.functions.as_ref().is_some_and(|functions| !functions.is_empty());
    unsupported("functions", functions, "leave it out")?;
    let calls = body.function_call.as_ref().map_or("\"auto\"", |call| call.as_str());
    unsupported("function_call", !["\"auto\"", "\"none\""].contains(&calls), "leave it out")?;
    let modalities = body.modalities.iter().flatten();
    plain_text("modalities", modalities.map(String::as_str).find(|kind| *kind != "text"))?;
    let template = "`chat_template_kwargs` gives variables to the chat template";
    for (param, given, hint) in [
        ("audio", body.audio.is_some(), "leave it out"),
        ("prediction", body.prediction.is_some(), "leave it out"),
        ("verbosity", body.verbosity.is_some(), template),
        ("web_search_options", body.web_search_options.is_some(), "leave it out"),
        ("moderation", body.moderation.is_some(), "leave it out"),
    ] {
        unsupported(param, given, hint)?;
    }
    Ok(())
}

/// Builds the answer.
pub fn answer(
    model: &LoadedModel,
    head: AnswerHead,
    form: ChatForm,
    reading: &Reading,
    outcome: GenerationOutcome,
) -> Result<ChatCompletion, ApiError> {
    let mut reasoning_tokens = 0;
    let choices = outcome.choices.into_iter().enumerate().map(|(index, mut one)| {
        let (parts, tokens) = reading.parts(index, &one)?;
        reasoning_tokens += tokens;
        let positions = one.logprobs.take().unwrap_or_default();
        let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
        for part in parts {
            match part {
                AnswerPart::Text(more) => text.push_str(&more),
                AnswerPart::Reasoning(more) => reasoning.push_str(&more),
                AnswerPart::Call(Call { id, name, arguments }) => calls.push(ToolCall {
                    id: tool_call_id(reading, id),
                    kind: "function",
                    function: CalledFunction { name, arguments },
                }),
            }
        }
        let finish_reason = ended(reading, one.finish_reason, calls.len());
        let message = AssistantMessage {
            role: "assistant",
            content: (calls.is_empty() || !text.is_empty()).then_some(text),
            refusal: None,
            reasoning_content: Some(reasoning).filter(|text| !text.is_empty()),
            tool_calls: calls,
        };
        Ok(ChatCompletionChoice {
            index,
            message,
            logprobs: form.logprobs.then(|| logprobs(model, &positions)).transpose()?,
            finish_reason,
        })
    });
    let choices = choices.collect::<Result<_, ApiError>>()?;
    let mut answer = GeneratedAnswer::new(head, "chat.completion", choices, outcome.end, outcome.receipt);
    answer.usage = answer.usage.reasoned(reasoning_tokens);
    Ok(answer)
}

/// The id of a call, in the form that templates of the model take.
fn tool_call_id(reading: &Reading, id: String) -> String {
    if reading.has_plain_ids() { id } else { format!("call_{id}") }
}

/// The name of the reason for which an answer with this number of calls ended.
fn ended(reading: &Reading, why: FinishReason, calls: usize) -> &'static str {
    let calls = calls > 0 && !reading.is_named;
    if calls && why == FinishReason::Stop { "tool_calls" } else { reason(why) }
}

/// Number of most probable tokens to report at each position; `None` if no log-probabilities are asked for.
pub(crate) fn asked_logprobs(logprobs: Option<bool>, top: Option<usize>) -> Result<Option<usize>, ApiError> {
    let logprobs = logprobs.unwrap_or(false);
    let top = within("top_logprobs", top, 0..=MAX_TOP_LOGPROBS)?.unwrap_or(0);
    if top > 0 && !logprobs {
        let fact = "`top_logprobs` is given without `logprobs`";
        return Err(refused("top_logprobs", fact, "give `logprobs` = true, or leave it out"));
    }
    Ok(logprobs.then_some(top))
}

/// Log-probabilities in the form of the answer.
pub(crate) fn logprobs(
    model: &LoadedModel,
    positions: &[PositionLogprobs],
) -> Result<ChatLogprobs, ApiError> {
    let token = |from: &TokenLogprob| {
        let known = model.engine.tokenizer().filter(|tokenizer| tokenizer.token(from.id).is_some());
        let bytes = known.map(|tokenizer| tokenizer.token_bytes(from.id)).transpose()?.unwrap_or_default();
        Ok(ChatToken { token: from.text.clone(), logprob: Finite(from.logprob), bytes })
    };
    let position = |from: &PositionLogprobs| {
        let top_logprobs = from.top.iter().map(token).collect::<Result<_, ApiError>>()?;
        let masked_mass = from.masked_mass.map(Finite);
        Ok(ChatPosition { chosen: token(&from.chosen)?, top_logprobs, masked_mass })
    };
    let content = positions.iter().map(position).collect::<Result<_, ApiError>>()?;
    Ok(ChatLogprobs { content, refusal: None })
}

/// Answers that are sent in events.
pub struct ChatStream {
    model: Arc<LoadedModel>,
    form: ChatForm,
    reading: Arc<Reading>,
    chunks: Chunks,
    /// Of each answer: what reads it, and whether its role was sent.
    answers: Vec<(AnswerReader, bool)>,
}

impl ChatStream {
    /// The stream of this number of answers to a request that [`request`] built.
    pub fn new(
        model: Arc<LoadedModel>,
        head: AnswerHead,
        form: ChatForm,
        reading: Arc<Reading>,
        answers: usize,
    ) -> Self {
        Self {
            model,
            form,
            chunks: Chunks::new(head, "chat.completion.chunk", form.stream, 1),
            answers: (0..answers).map(|_| (reading.reader(), false)).collect(),
            reading,
        }
    }

    /// The parts of a message that are new.
    fn message(&self, answer: usize, delta: Delta, call: &mut usize) -> MessageDelta {
        let new = |index, id, name: Option<String>, arguments| {
            let function = FunctionDelta { name, arguments };
            let kind = function.name.is_some().then_some("function");
            MessageDelta {
                tool_calls: vec![ToolCallDelta { index, id, kind, function }],
                ..MessageDelta::default()
            }
        };
        match delta {
            Delta::Content(text) => MessageDelta { content: Some(text), ..MessageDelta::default() },
            Delta::Reasoning(text) => {
                MessageDelta { reasoning_content: Some(text), ..MessageDelta::default() }
            }
            Delta::Call(name) => {
                let id = tool_call_id(&self.reading, self.reading.call_id(answer, *call));
                *call += 1;
                new(*call - 1, Some(id), Some(name), String::new())
            }
            Delta::Arguments(json) => new(call.saturating_sub(1), None, None, json),
        }
    }
}

impl StreamedAnswer for ChatStream {
    type Event = ChatCompletionEvent;

    const FORMAT: StreamFormat = StreamFormat::EventsWithEndMark;

    fn piece(
        &mut self,
        prompt: usize,
        piece: GenerationPiece,
        events: &mut Vec<ChatCompletionEvent>,
    ) -> Result<(), ApiError> {
        self.chunks.counts.add(prompt, &piece);
        let mut piece = piece;
        let canvas = self.chunks.canvas(&self.model, prompt, piece.canvas.take())?;
        let index = piece.choice;
        let Some((reader, begun)) = self.answers.get_mut(index) else { return Ok(()) };
        let delta = |delta, logprobs, finish_reason, canvas| {
            vec![ChatCompletionDelta { index, delta, logprobs, finish_reason, canvas }]
        };
        let is_first = !std::mem::replace(begun, true);
        let (mut call, reasoned) = (reader.calls(), reader.reasoning_tokens);
        let mut deltas = reader.piece(&piece)?;
        let (calls, reasoned) = (reader.calls(), reader.reasoning_tokens - reasoned);
        self.chunks.counts.reasoned(reasoned);
        if is_first {
            let role = MessageDelta {
                role: Some("assistant"),
                content: Some(String::new()),
                ..MessageDelta::default()
            };
            events.push(self.chunks.chunk(delta(role, None, None, None), || self.usage()));
        }
        let positions = piece.logprobs.as_slice();
        let mut logprobs = self.form.logprobs.then(|| logprobs(&self.model, positions)).transpose()?;
        let mut canvas = canvas;
        if deltas.is_empty() && (logprobs.is_some() || canvas.is_some() || self.chunks.form.running_usage) {
            deltas.push(Delta::Content(String::new()));
        }
        for one in deltas {
            let message = self.message(index, one, &mut call);
            let choices = delta(message, logprobs.take(), None, canvas.take());
            events.push(self.chunks.chunk(choices, || self.usage()));
        }
        if let Some(why) = piece.finish_reason {
            let last = delta(MessageDelta::default(), None, Some(ended(&self.reading, why, calls)), None);
            events.push(self.chunks.chunk(last, || self.usage()));
        }
        Ok(())
    }

    fn sends_canvas(&self) -> bool {
        self.chunks.form.canvas
    }

    fn ended(&mut self, prompt: usize, end: PromptEnd) {
        self.chunks.counts.set(prompt, end);
    }

    fn end(&mut self, events: &mut Vec<ChatCompletionEvent>) {
        self.chunks.end(self.usage(), events);
    }

    fn fail(&mut self, error: ErrorDetail, events: &mut Vec<ChatCompletionEvent>) {
        fail(error, events);
    }

    fn usage(&self) -> Usage {
        self.chunks.counts.total()
    }
}
