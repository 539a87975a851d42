//! `/api/...`: chats, texts and embeddings in Ollama's form.

pub mod chat;
pub mod embed;
pub mod generate;
pub mod models;
mod stream;

use std::sync::Arc;

use redline_engine::{FinishReason, Grammar};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::stream::{OllamaEvent, OllamaStream};
use crate::chat::keys::ChatKeys;
use crate::chat::tools::{AgentKeys, Effort};
use crate::conversation::reading::{AnswerPart, Call, Reading};
use crate::cost::Usage;
use crate::error::ApiError;
use crate::generation::mode::{GenerationMode, GenerationOutcome, GenerationRequest, PromptEnd};
use crate::generation::restrict::one_text;
use crate::generation::{GenerationFields, GenerationParts, StreamForm, generation_request};
use crate::grammar::of_schema;
use crate::json::fields::refused;
use crate::json::limits::MAX_TOP_LOGPROBS;
use crate::json::parts::{part, with_parts};
use crate::json::shape::{one_of, schemas};
use crate::json::text::JsonText;
use crate::model::LoadedModel;
use crate::openai::chat_completions::{ChatPosition, asked_logprobs, logprobs};
use crate::sampling::SamplingParameters;

part! {
    /// What the requests for an answer have in common, beside the prompt.
    pub struct OllamaFields {
        /// The model's name.
        pub model: String,
        /// Whether to send the answer in lines while it is generated, which is `true` unless it is given.
        pub stream: bool,
        /// What the text has to be: `json`, or a JSON schema.
        #[schemars(with = "Option<FormatOfText>")]
        pub format: JsonText,
        /// How tokens are chosen.
        pub options: OllamaOptions,
        /// Whether the model reasons, or how much: `low`, `medium` or `high`.
        #[schemars(with = "Option<Think>")]
        pub think: JsonText,
        /// Accepted and not used: the server says how long models stay in memory.
        #[schemars(with = "Option<KeepAlive>")]
        pub keep_alive: JsonText,
        /// Accepted and not used: no part of a prompt is left out.
        pub truncate: bool,
        /// Accepted and not used: a text ends with the context.
        pub shift: bool,
        /// Whether to return log-probabilities of the tokens.
        pub logprobs: bool,
        /// Number of most probable tokens to return at each position.
        #[schemars(range(max = MAX_TOP_LOGPROBS))]
        pub top_logprobs: usize,
    }
}

/// How tokens are chosen.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[schemars(transform = one_text)]
#[serde(deny_unknown_fields, remote = "OllamaOptions")]
pub struct OllamaOptions {
    /// Maximum number of new tokens; 0 or less: as many as fit. Default: -1.
    pub num_predict: Option<i64>,
    /// The same as `repetition_penalty`.
    pub repeat_penalty: Option<f32>,
    /// Over how many tokens repetitions are counted. -1 counts them over all, and 0 not at all; other numbers are accepted if no
    /// repetition is penalised.
    pub repeat_last_n: Option<i64>,
    /// Whether line feeds count as repetitions, as all tokens do: `true`.
    #[schemars(extend("const" = true))]
    pub penalize_newline: Option<bool>,
    /// Accepted and not used: the model has the context that the server was started with.
    pub num_ctx: Option<i64>,
    /// Accepted and not used: no part of a prompt is left out.
    pub num_keep: Option<i64>,
    /// Accepted and not used.
    pub num_batch: Option<i64>,
    /// Accepted and not used.
    pub num_gpu: Option<i64>,
    /// Accepted and not used.
    pub main_gpu: Option<i64>,
    /// Accepted and not used: the server was started with a number of threads.
    pub num_thread: Option<i64>,
    /// Accepted and not used.
    pub numa: Option<bool>,
    /// Accepted and not used.
    pub use_mmap: Option<bool>,
    /// Accepted and not used.
    pub use_mlock: Option<bool>,
    /// Accepted and not used.
    pub low_vram: Option<bool>,
    /// How tokens are chosen.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub sampling: SamplingParameters,
}

with_parts! {
    OllamaOptions { sampling: SamplingParameters }
}

/// What a text has to be.
struct FormatOfText;
/// Whether the model reasons.
struct Think;
/// How long a model stays loaded.
struct KeepAlive;

schemas! {
    FormatOfText: |_g| json!({ "anyOf": [one_of(&["", "json"]), { "type": "object" }] });
    Think: |_g| json!({ "anyOf": [{ "type": "boolean" }, one_of(&["low", "medium", "high"])] });
    KeepAlive: |_g| json!({ "type": ["string", "number"] });
}

/// An answer, or a line of it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OllamaAnswer {
    /// The model's name.
    pub model: String,
    /// When the request came.
    pub created_at: String,
    /// Of a chat: the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<OllamaReply>,
    /// Of a text: the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// Of a text: the reasoning before it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub thinking: String,
    /// Log-probabilities of its tokens, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<ChatPosition>>,
    /// Whether the answer has ended.
    pub done: bool,
    /// At the end: what there is to know of the whole.
    #[serde(flatten)]
    pub end: Option<OllamaEnd>,
}

/// A message of the model, or what is new of it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OllamaReply {
    /// Always `assistant`.
    pub role: &'static str,
    /// The text.
    pub content: String,
    /// The reasoning before it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub thinking: String,
    /// The tools that it calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<OllamaCall>,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OllamaCall {
    /// Identifies it: a message of role `tool` with its result may have it as `tool_call_id`.
    pub id: String,
    /// What is called.
    pub function: OllamaFunction,
}

/// A function and its arguments.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OllamaFunction {
    /// The index of the call.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its arguments, an object.
    #[schemars(with = "Value")]
    pub arguments: JsonText,
}

/// The end of an answer. Durations are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OllamaEnd {
    /// `stop` or `length`; `load` if the request had no prompt.
    pub done_reason: &'static str,
    /// From the request reaching the engine to the last token.
    pub total_duration: u64,
    /// Always 0: the model is loaded before the request reaches the engine.
    pub load_duration: u64,
    /// Number of tokens of the prompt.
    pub prompt_eval_count: usize,
    /// To the first new token, the wait for the first pass excluded.
    pub prompt_eval_duration: u64,
    /// Number of new tokens.
    pub eval_count: usize,
    /// For the further tokens.
    pub eval_duration: u64,
}

/// A number of seconds in nanoseconds.
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

impl OllamaEnd {
    fn new(reason: &'static str, end: PromptEnd) -> Self {
        let seconds = end.seconds;
        Self {
            done_reason: reason,
            total_duration: nanoseconds(seconds.queue + seconds.prompt + seconds.text),
            load_duration: 0,
            prompt_eval_count: end.counts.prompt_tokens,
            prompt_eval_duration: nanoseconds(seconds.prompt),
            eval_count: end.counts.completion_tokens,
            eval_duration: nanoseconds(seconds.text),
        }
    }
}

/// The parts of a request that shape its answer.
#[derive(Clone)]
pub struct OllamaForm {
    model: Arc<LoadedModel>,
    /// The name by which the request asks for the model.
    pub name: String,
    created_at: String,
    /// Whether the answer is a message.
    is_chat: bool,
    logprobs: bool,
    /// Whether the answer is sent in lines.
    pub streams: bool,
}

/// Builds the engine's request, but for its prompt, and the field that gives its grammar.
fn request(
    mode: GenerationMode,
    fields: OllamaFields,
    form: &mut OllamaForm,
) -> Result<(GenerationRequest, Option<&'static str>), ApiError> {
    check_kept(fields.keep_alive.as_ref())?;
    let OllamaOptions { num_predict, repeat_penalty, repeat_last_n, penalize_newline, mut sampling, .. } =
        fields.options.unwrap_or_default();
    if penalize_newline == Some(false) {
        let fact = "`penalize_newline` is false, and repetitions are counted over all tokens";
        return Err(refused("options.penalize_newline", fact.to_owned(), "leave it out"));
    }
    sampling.check_one_text(false)?;
    sampling.repetition_penalty = repeat_penalty.or(sampling.repetition_penalty);
    match (repeat_last_n, sampling.repetition_penalty) {
        (None | Some(-1), _) | (_, None | Some(1.0)) => {}
        (Some(0), _) => sampling.repetition_penalty = None,
        (Some(count), _) => {
            let fact = format!("`repeat_last_n` is {count}, and repetitions are counted over all tokens");
            return Err(refused("options.repeat_last_n", fact, "give -1, or 0 to penalise none"));
        }
    }
    let most = num_predict.and_then(|count| usize::try_from(count).ok()).filter(|&count| count > 0);
    form.streams = fields.stream.unwrap_or(true);
    let logprobs = asked_logprobs(fields.logprobs, fields.top_logprobs)?;
    form.logprobs = logprobs.is_some();
    let own = GenerationFields { stream: Some(form.streams), ..GenerationFields::default() };
    let parts = GenerationParts { fields: own, sampling, ..GenerationParts::default() };
    let stream = StreamForm::of(&parts, mode)?;
    let mut request = generation_request(mode, parts, most, logprobs, stream)?;
    let grammar = fields.format.as_ref().map(grammar).transpose()?.flatten();
    let param = grammar.map(|grammar| request.restrict("format", grammar)).transpose()?.map(|()| "format");
    Ok((request, param))
}

/// Refuses what says nothing about how long a model stays loaded.
fn check_kept(keep_alive: Option<&JsonText>) -> Result<(), ApiError> {
    let is_kept = |json: &JsonText| {
        let value: Option<Value> = serde_json::from_str(json.as_str()).ok();
        value.is_some_and(|value| value.is_string() || value.is_number())
    };
    match keep_alive {
        Some(json) if !is_kept(json) => {
            let fact = format!("`keep_alive` is {}", shortened(json.as_str()));
            Err(refused("keep_alive", fact, "give seconds, or a text such as \"5m\""))
        }
        _ => Ok(()),
    }
}

/// The grammar of a format.
fn grammar(format: &JsonText) -> Result<Option<Grammar>, ApiError> {
    match format.content().as_deref() {
        Some("") if format.as_str() == r#""""# => Ok(None),
        Some("json") => Ok(Some(Grammar::json_object())),
        Some(_) if format.as_str().starts_with('{') => Ok(Some(of_schema(format, false))),
        _ => {
            let fact = format!("`format` is {}", shortened(format.as_str()));
            Err(refused("format", fact, "give \"json\" or a JSON schema, an object"))
        }
    }
}

/// A value for a message.
fn shortened(json: &str) -> String {
    const MOST: usize = 40;
    if json.chars().count() <= MOST {
        json.to_owned()
    } else {
        json.chars().take(MOST).chain("...".chars()).collect()
    }
}

/// Says in the variables of the template whether the model reasons, and whether the answer shows it.
fn reasons(think: Option<&JsonText>, keys: &mut ChatKeys) -> Result<AgentKeys, ApiError> {
    let mut agent = AgentKeys::default();
    let effort = match think.map(JsonText::as_str) {
        None => return Ok(agent),
        Some("true") => {
            let variables = keys.chat_template_kwargs.get_or_insert_default();
            variables.insert("enable_thinking".to_owned(), JsonText::boolean(true));
            return Ok(agent);
        }
        Some("false") => {
            agent.include_reasoning = Some(false);
            Effort::None
        }
        Some(r#""low""#) => Effort::Low,
        Some(r#""medium""#) => Effort::Medium,
        Some(r#""high""#) => Effort::High,
        Some(other) => {
            let fact = format!("`think` is {}", shortened(other));
            return Err(refused("think", fact, "give true, false, \"low\", \"medium\" or \"high\""));
        }
    };
    keys.reason(Some(effort));
    Ok(agent)
}

impl OllamaForm {
    /// The answer to a request without a prompt, which elsewhere loads the model.
    pub fn loaded(&self) -> OllamaAnswer {
        let end = OllamaEnd::new("load", PromptEnd::default());
        self.answer(String::new(), String::new(), Vec::new(), Some(end))
    }

    /// Of the answer of a model, which the request asks for by this name. The request came at this time, as RFC 3339 writes it.
    pub fn new(model: Arc<LoadedModel>, name: String, created_at: String) -> Self {
        Self { model, name, created_at, is_chat: false, logprobs: false, streams: true }
    }

    /// An answer, or a line of it.
    fn answer(
        &self,
        text: String,
        thinking: String,
        tool_calls: Vec<OllamaCall>,
        end: Option<OllamaEnd>,
    ) -> OllamaAnswer {
        let (message, response, thinking) = if self.is_chat {
            let reply = OllamaReply { role: "assistant", content: text, thinking, tool_calls };
            (Some(reply), None, String::new())
        } else {
            (None, Some(text), thinking)
        };
        OllamaAnswer {
            model: self.name.clone(),
            created_at: self.created_at.clone(),
            message,
            response,
            thinking,
            logprobs: None,
            done: end.is_some(),
            end,
        }
    }
}

/// Builds the answer, and its token counts in the form of other routes.
pub fn answer(
    form: &OllamaForm,
    reading: &Reading,
    mut outcome: GenerationOutcome,
) -> Result<(OllamaAnswer, Usage), ApiError> {
    let mut one = outcome.take_one();
    let (parts, _) = reading.parts(0, &one)?;
    let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
    for part in parts {
        match part {
            AnswerPart::Text(more) => text.push_str(&more),
            AnswerPart::Reasoning(more) => thinking.push_str(&more),
            AnswerPart::Call(of) => match call(calls.len(), of) {
                Ok(call) => calls.push(call),
                Err(_) if one.finish_reason != FinishReason::Stop => {}
                Err(written) => text.push_str(&written),
            },
        }
    }
    let end = OllamaEnd::new(crate::generation::reason(one.finish_reason), outcome.end);
    let mut answer = form.answer(text, thinking, calls, Some(end));
    if form.logprobs {
        answer.logprobs = Some(logprobs(&form.model, &one.logprobs.take().unwrap_or_default())?.content);
    }
    Ok((answer, crate::cost::usage(outcome.end.counts)))
}

/// A call; what the model wrote, if its arguments are no object.
fn call(index: usize, of: Call) -> Result<OllamaCall, String> {
    if of.object().is_none() {
        return Err(of.as_text());
    }
    let arguments = JsonText::object(&of.arguments);
    let function = OllamaFunction { index, name: of.name, arguments };
    Ok(OllamaCall { id: format!("call_{}", of.id), function })
}
