//! `/v1/chat/completions`: answers to a conversation, in OpenAI's form.

use std::sync::Arc;

use redline_engine::{Engine, PositionLogprobs, TokenLogprob};
use redline_settings::Hint;
use redline_wire::limits::MAX_TOP_LOGPROBS;
use redline_wire::{
    AssistantMessage, ChatCompletion, ChatCompletionBody, ChatCompletionChoice, ChatCompletionDelta,
    ChatCompletionEvent, ChatKeys, ChatLogprobs, ChatPosition, ChatToken, ErrorDetail, Finite, MessageDelta,
    Usage,
};

use super::AnswerHead;
use super::fields::{refused, within};
use super::generation::{
    GenerationFields, StreamForm, generation_request, max_tokens, no_tools, plain_text, reason, unsupported,
};
use super::mode::{
    GenerationMode, GenerationOutcome, GenerationPiece, GenerationRequest, PromptEnd, SharedFields,
};
use super::stream::{Chunks, StreamedAnswer, fail};
use crate::{ApiError, Chat, LoadedModel, cost, receipt};

/// A request whose conversation is not formatted yet.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// The request without its prompt.
    pub request: GenerationRequest,
    pub(super) keys: ChatKeys,
    /// The field that holds the messages.
    pub(super) param: &'static str,
}

impl ChatRequest {
    /// Gives the template a date to print, such as `2026-07-26`, unless the request has one.
    #[must_use]
    pub fn dated(mut self, date: String) -> Self {
        self.keys.date.get_or_insert(date);
        self
    }

    /// Formats the conversation. The answer ends where the template ends answers.
    pub fn formatted(self, chat: &Chat, engine: &Engine) -> Result<GenerationRequest, ApiError> {
        let Self { mut request, keys, param } = self;
        *request.shared().prompt = chat.prompt(param, None, keys).map_err(|error| match error {
            // The template, or what it refuses, depends on the messages.
            ApiError::Chat(error) => ApiError::Field {
                param: param.to_owned(),
                fact: error.to_string(),
                hint: error.hint().map(Hint::from),
            },
            error => error,
        })?;
        let SharedFields { prompt, ignore_eos, stop_ids, .. } = request.shared();
        stop_ids.extend(chat.stop_id(prompt, ignore_eos, engine));
        Ok(request)
    }
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
pub fn request(
    mode: GenerationMode,
    mut body: ChatCompletionBody,
) -> Result<(ChatRequest, ChatForm), ApiError> {
    check_supported(&body)?;
    let receipt = receipt::options(body.receipt.take());
    let stream = StreamForm::of(body.stream, body.stream_options, mode, receipt.as_ref())?;
    let most = match (body.max_completion_tokens, body.max_tokens) {
        (Some(new), Some(old)) if new != old => {
            let fact = format!("`max_completion_tokens` is {new}, and `max_tokens` is {old}");
            return Err(refused("max_tokens", fact, "leave it out: it is the older name of the other"));
        }
        (Some(new), _) => max_tokens("max_completion_tokens", Some(new))?,
        (None, old) => max_tokens("max_tokens", old)?,
    };
    let logprobs = body.logprobs.unwrap_or(false);
    let top = within("top_logprobs", body.top_logprobs, 0..=MAX_TOP_LOGPROBS)?.unwrap_or(0);
    if top > 0 && !logprobs {
        let fact = "`top_logprobs` is given without `logprobs`";
        return Err(refused("top_logprobs", fact, "give `logprobs` = true, or leave it out"));
    }
    let (keys, diffusion) = (body.take_chat_keys(), body.diffusion_keys());
    let fields = GenerationFields {
        temperature: body.temperature,
        top_p: body.top_p,
        top_k: body.top_k,
        min_p: body.min_p,
        typical_p: body.typical_p,
        seed: body.seed,
        n: body.n,
        best_of: None,
        stop: body.stop,
        logit_bias: body.logit_bias,
        presence_penalty: body.presence_penalty,
        frequency_penalty: body.frequency_penalty,
        repetition_penalty: body.repetition_penalty,
        ignore_eos: body.ignore_eos,
        cache_salt: body.cache_salt,
        timeout_s: body.timeout_s,
        receipt,
        diffusion,
    };
    let request = generation_request(mode, fields, most, logprobs.then_some(top))?;
    Ok((ChatRequest { request, keys, param: "messages" }, ChatForm { logprobs, stream }))
}

/// Refuses fields that are known and not supported.
fn check_supported(body: &ChatCompletionBody) -> Result<(), ApiError> {
    no_tools(body.tools.as_deref(), body.tool_choice.as_ref())?;
    let functions = body.functions.as_ref().is_some_and(|functions| !functions.is_empty());
    unsupported("functions", functions, "leave it out")?;
    let calls = body.function_call.as_ref().map_or("\"auto\"", |call| call.as_str());
    unsupported("function_call", !["\"auto\"", "\"none\""].contains(&calls), "leave it out")?;
    plain_text("response_format.type", body.response_format.as_ref().map(|format| format.kind.as_str()))?;
    let modalities = body.modalities.iter().flatten();
    plain_text("modalities", modalities.map(String::as_str).find(|kind| *kind != "text"))?;
    let template = "`chat_template_kwargs` gives variables to the chat template";
    for (param, given, hint) in [
        ("audio", body.audio.is_some(), "leave it out"),
        ("prediction", body.prediction.is_some(), "leave it out"),
        ("reasoning_effort", body.reasoning_effort.is_some(), template),
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
    outcome: GenerationOutcome,
) -> Result<ChatCompletion, ApiError> {
    let choices = outcome.choices.into_iter().enumerate().map(|(index, one)| {
        let positions = one.logprobs.unwrap_or_default();
        Ok(ChatCompletionChoice {
            index,
            message: AssistantMessage { role: "assistant", content: one.text, refusal: None },
            logprobs: form.logprobs.then(|| logprobs(model, &positions)).transpose()?,
            finish_reason: reason(one.finish_reason),
        })
    });
    Ok(ChatCompletion {
        id: head.id,
        object: "chat.completion",
        created: head.created,
        model: head.model,
        choices: choices.collect::<Result<_, ApiError>>()?,
        usage: cost::usage(outcome.end.counts),
        meta: outcome.end.meta,
        receipt: receipt::attached(outcome.receipt),
    })
}

/// Log-probabilities in the form of the answer.
fn logprobs(model: &LoadedModel, positions: &[PositionLogprobs]) -> Result<ChatLogprobs, ApiError> {
    let token = |from: &TokenLogprob| {
        let known = model.engine.tokenizer().filter(|tokenizer| tokenizer.token(from.id).is_some());
        let bytes = known.map(|tokenizer| tokenizer.token_bytes(from.id)).transpose()?.unwrap_or_default();
        Ok(ChatToken { token: from.text.clone(), logprob: Finite(from.logprob), bytes })
    };
    let position = |from: &PositionLogprobs| {
        let top_logprobs = from.top.iter().map(token).collect::<Result<_, ApiError>>()?;
        Ok(ChatPosition { chosen: token(&from.chosen)?, top_logprobs })
    };
    let content = positions.iter().map(position).collect::<Result<_, ApiError>>()?;
    Ok(ChatLogprobs { content, refusal: None })
}

/// Answers that are sent in events.
pub struct ChatStream {
    model: Arc<LoadedModel>,
    form: ChatForm,
    chunks: Chunks,
    /// Of each answer: whether its role was sent.
    begun: Vec<bool>,
}

impl ChatStream {
    /// The stream of the answers to a request that [`request`] built.
    pub fn new(model: Arc<LoadedModel>, head: AnswerHead, form: ChatForm, request: &ChatRequest) -> Self {
        Self {
            model,
            form,
            chunks: Chunks::new(head, "chat.completion.chunk", form.stream, 1),
            begun: vec![false; request.request.choices()],
        }
    }
}

impl StreamedAnswer for ChatStream {
    type Event = ChatCompletionEvent;

    const HAS_END_MARK: bool = true;

    fn piece(
        &mut self,
        prompt: usize,
        piece: GenerationPiece,
        events: &mut Vec<ChatCompletionEvent>,
    ) -> Result<(), ApiError> {
        self.chunks.counts.add(prompt, &piece);
        let canvas = self.chunks.canvas(&self.model, prompt, piece.canvas)?;
        let index = piece.choice;
        let Some(begun) = self.begun.get_mut(index) else { return Ok(()) };
        let delta = |delta, logprobs, finish_reason, canvas| {
            vec![ChatCompletionDelta { index, delta, logprobs, finish_reason, canvas }]
        };
        if !std::mem::replace(begun, true) {
            let role = MessageDelta { role: Some("assistant"), content: Some(String::new()) };
            events.push(self.chunks.chunk(delta(role, None, None, None), || self.usage()));
        }
        let positions = piece.logprobs.as_slice();
        let logprobs = self.form.logprobs.then(|| logprobs(&self.model, positions)).transpose()?;
        if !piece.text.is_empty() || logprobs.is_some() || canvas.is_some() || self.chunks.form.running_usage
        {
            let text = MessageDelta { role: None, content: Some(piece.text) };
            events.push(self.chunks.chunk(delta(text, logprobs, None, canvas), || self.usage()));
        }
        if let Some(why) = piece.finish_reason {
            let last = delta(MessageDelta::default(), None, Some(reason(why)), None);
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
