//! `/v1/responses`: an answer to a text or a conversation, in OpenAI's form.

pub mod body;

use std::collections::BTreeMap;
use std::sync::Arc;

use redline_engine::FinishReason;

use crate::chat::keys::{ChatKeys, JsonText};
use crate::cost::{self, Usage};
use crate::error::ApiError;
use crate::error_body::ErrorDetail;
use crate::generation::canvas::Canvases;
use crate::generation::mode::{GenerationMode, GenerationOutcome, GenerationPiece, PromptEnd};
use crate::generation::stream::{StreamCounts, StreamedAnswer};
use crate::generation::{StreamForm, generation_request, max_tokens, no_tools, unsupported};
use crate::head::AnswerHead;
use crate::json::fields::refused;
use crate::json::finite::Finite;
use crate::model::LoadedModel;
use crate::openai::chat_completions::ChatRequest;
use crate::openai::responses::body::{
    IncompleteDetails, ResponseEvent, ResponseEventContent, ResponseFailure, ResponseMessage, ResponseObject,
    ResponseTextForm, ResponseTextFormat, ResponseTextPart, ResponsesBody, ResponsesItem, ResponsesPart,
    TextOrParts,
};
use crate::receipt;

/// The parts of a request that its answer repeats, or that shape it.
#[derive(Clone, Debug)]
pub struct ResponsesForm {
    instructions: Option<String>,
    max_output_tokens: Option<usize>,
    temperature: f32,
    top_p: f32,
    user: Option<String>,
    metadata: BTreeMap<String, String>,
    /// The type of the text.
    format: &'static str,
    stream: Option<StreamForm>,
}

impl ResponsesForm {
    /// How the answer is streamed, if it is.
    pub fn stream(&self) -> Option<StreamForm> {
        self.stream
    }
}

/// Builds the engine's request, but for its prompt.
pub fn request(mode: GenerationMode, body: ResponsesBody) -> Result<(ChatRequest, ResponsesForm), ApiError> {
    check_supported(&body)?;
    let parts = body.parts;
    let stream = StreamForm::of(&parts, mode)?;
    if let Some(options) = parts.fields.stream_options {
        let hint = "leave it out: the last event has the token counts";
        unsupported("stream_options.include_usage", options.include_usage.is_some(), hint)?;
        unsupported("stream_options.continuous_usage_stats", options.continuous_usage_stats.is_some(), hint)?;
    }
    for (param, count) in [("n", parts.sampling.n), ("best_of", parts.sampling.best_of)] {
        if let Some(count) = count.filter(|&count| count > 1) {
            let fact = format!("`{param}` is {count}, and a response is one answer");
            return Err(refused(param, fact, "leave it out"));
        }
    }
    let most = max_tokens("max_output_tokens", body.max_output_tokens)?;
    let messages = messages(body.instructions.as_deref(), body.input)?;
    let format = body.text.and_then(|text| text.format);
    let format_kind = format.as_ref().map_or("text", |format| format.known_kind());
    let own = format.map(|format| format.grammar("text.format", "text.format.schema")).transpose()?.flatten();
    if let (Some((param, _)), Some(other)) = (&own, parts.grammar.given()) {
        let fact = format!("`{param}` and `{other}` both say what the text has to be");
        return Err(refused(param, fact, "give one of them"));
    }
    let keys = ChatKeys { chat_template_kwargs: body.chat_template_kwargs, ..ChatKeys::default() };
    let user = parts.fields.user.clone();
    let mut request = generation_request(mode, parts, most, None, stream)?;
    if let Some((param, grammar)) = own {
        request.restrict(param, grammar)?;
    }
    let sampling = request.sampling();
    let form = ResponsesForm {
        instructions: body.instructions,
        max_output_tokens: body.max_output_tokens,
        temperature: sampling.temperature,
        top_p: sampling.top_p,
        user,
        metadata: body.metadata.unwrap_or_default(),
        format: format_kind,
        stream,
    };
    Ok((ChatRequest { request, messages, keys, param: "input" }, form))
}

/// The messages of the chat template.
fn messages(
    instructions: Option<&str>,
    input: TextOrParts<ResponsesItem>,
) -> Result<Vec<JsonText>, ApiError> {
    let system = instructions.map(|text| JsonText::message("system", &[text.to_owned()]));
    let mut messages: Vec<_> = system.into_iter().collect();
    match input {
        TextOrParts::Text(text) => messages.push(JsonText::message("user", &[text])),
        TextOrParts::Parts(items) => {
            for (at, item) in items.into_iter().enumerate() {
                messages.push(message(&format!("input[{at}]"), item)?);
            }
        }
    }
    Ok(messages)
}

/// A message of the input; `place` is its field.
fn message(place: &str, item: ResponsesItem) -> Result<JsonText, ApiError> {
    let missing = |name: &str| {
        let param = format!("{place}.{name}");
        let fact = format!("`{param}` is missing");
        refused(&param, fact, "a message has `role` and `content`")
    };
    if let Some(kind) = item.kind.filter(|kind| kind != "message") {
        let param = format!("{place}.type");
        let fact = format!("`{param}` is {kind:?}, and only messages are supported");
        return Err(refused(&param, fact, "give items of type \"message\""));
    }
    let role = item.role.ok_or_else(|| missing("role"))?;
    let texts = match item.content.ok_or_else(|| missing("content"))? {
        TextOrParts::Text(text) => vec![text],
        TextOrParts::Parts(parts) => {
            let text = |(at, part): (usize, ResponsesPart)| {
                let param = format!("{place}.content[{at}]");
                if !ResponsesPart::KINDS.contains(&part.kind.as_str()) {
                    let fact = format!("`{param}` is of type {:?}, and only texts are supported", part.kind);
                    return Err(refused(&format!("{param}.type"), fact, "give parts of type \"input_text\""));
                }
                let missing =
                    || refused(&format!("{param}.text"), format!("`{param}` has no text"), "give it");
                part.text.ok_or_else(missing)
            };
            parts.into_iter().enumerate().map(text).collect::<Result<_, _>>()?
        }
    };
    Ok(JsonText::message(&role, &texts))
}

/// Refuses fields that are known and not supported.
fn check_supported(body: &ResponsesBody) -> Result<(), ApiError> {
    no_tools(body.tools.as_deref(), body.tool_choice.as_ref())?;
    let truncation = body.truncation.as_deref().is_some_and(|truncation| truncation != "disabled");
    let verbosity = body.text.as_ref().is_some_and(|text| text.verbosity.is_some());
    let include = body.include.as_ref().is_some_and(|include| !include.is_empty());
    let whole = "nothing is stored; give the whole conversation as `input`";
    let template = "`chat_template_kwargs` gives variables to the chat template";
    for (param, given, hint) in [
        ("previous_response_id", body.previous_response_id.is_some(), whole),
        ("conversation", body.conversation.is_some(), whole),
        ("background", body.background == Some(true), "leave it out, or `stream` the answer"),
        ("prompt", body.prompt.is_some(), "give the text as `input`"),
        ("reasoning", body.reasoning.is_some(), template),
        ("text.verbosity", verbosity, template),
        ("truncation", truncation, "give a shorter `input`"),
        ("include", include, "leave it out"),
        ("top_logprobs", body.top_logprobs.is_some_and(|top| top > 0), "leave it out"),
        ("context_management", body.context_management.is_some(), "leave it out"),
        ("max_tool_calls", body.max_tool_calls.is_some(), "leave it out"),
        ("moderation", body.moderation.is_some(), "leave it out"),
    ] {
        unsupported(param, given, hint)?;
    }
    Ok(())
}

/// The token counts of an outcome.
pub fn usage(outcome: &GenerationOutcome) -> Usage {
    cost::usage(outcome.end.counts)
}

/// Builds the answer.
pub fn answer(head: AnswerHead, form: ResponsesForm, mut outcome: GenerationOutcome) -> ResponseObject {
    let mut answer = begun(&head, &form);
    let one = outcome.take_one();
    let message = message_of(&head, one.text, one.finish_reason);
    answer.meta = outcome.end.meta;
    answer.receipt = receipt::attached(outcome.receipt.take());
    finish(&mut answer, message, one.finish_reason, usage(&outcome));
    answer
}

/// An answer without a message.
fn begun(head: &AnswerHead, form: &ResponsesForm) -> ResponseObject {
    ResponseObject {
        id: head.id.clone(),
        object: "response",
        created_at: head.created,
        status: "in_progress",
        background: false,
        error: None,
        incomplete_details: None,
        instructions: form.instructions.clone(),
        max_output_tokens: form.max_output_tokens,
        model: head.model.clone(),
        output: Vec::new(),
        parallel_tool_calls: true,
        previous_response_id: None,
        store: false,
        temperature: Finite(form.temperature),
        text: ResponseTextForm { format: ResponseTextFormat { kind: form.format } },
        tool_choice: "auto",
        tools: [],
        top_logprobs: 0,
        top_p: Finite(form.top_p),
        truncation: "disabled",
        usage: None,
        user: form.user.clone(),
        metadata: form.metadata.clone(),
        meta: None,
        receipt: None,
    }
}

/// The status of an answer that ended for this reason.
fn status(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "completed",
        FinishReason::Length | FinishReason::Cancelled => "incomplete",
    }
}

/// The id of the message of an answer.
fn message_id(head: &AnswerHead) -> String {
    format!("msg_{}", head.id.strip_prefix("resp_").unwrap_or(&head.id))
}

/// The message of an answer, which has ended.
fn message_of(head: &AnswerHead, text: String, reason: FinishReason) -> ResponseMessage {
    let content = vec![ResponseTextPart::new(text)];
    ResponseMessage {
        id: message_id(head),
        kind: "message",
        status: status(reason),
        role: "assistant",
        content,
    }
}

/// Ends an answer.
fn finish(answer: &mut ResponseObject, message: ResponseMessage, reason: FinishReason, usage: Usage) {
    answer.status = status(reason);
    answer.incomplete_details =
        (answer.status == "incomplete").then_some(IncompleteDetails { reason: "max_output_tokens" });
    answer.output = vec![message];
    answer.usage = Some(usage.into());
}

/// An answer that is sent in events.
pub struct ResponsesStream {
    model: Arc<LoadedModel>,
    head: AnswerHead,
    answer: ResponseObject,
    /// The text so far, once the message has begun.
    text: Option<String>,
    reason: FinishReason,
    counts: StreamCounts,
    /// The canvas, if its events are sent.
    canvases: Option<Canvases>,
    /// Number of events.
    events: u64,
}

impl ResponsesStream {
    /// The stream of the answer to a request that [`request`] built.
    pub fn new(model: Arc<LoadedModel>, head: AnswerHead, form: &ResponsesForm) -> Self {
        let sends_canvas = form.stream.is_some_and(|stream| stream.canvas);
        Self {
            model,
            answer: begun(&head, form),
            head,
            text: None,
            reason: FinishReason::Length,
            counts: StreamCounts::new(1),
            canvases: sends_canvas.then(|| Canvases::new(1)),
            events: 0,
        }
    }

    fn event(&mut self, kind: &'static str, content: ResponseEventContent) -> ResponseEvent {
        let sequence_number = self.events;
        self.events += 1;
        ResponseEvent { kind, sequence_number, content }
    }

    /// An event with the answer so far.
    fn state(&mut self, kind: &'static str) -> ResponseEvent {
        let response = Box::new(self.answer.clone());
        self.event(kind, ResponseEventContent::Response { response })
    }

    fn part(&mut self, kind: &'static str, text: String) -> ResponseEvent {
        let part = ResponseTextPart::new(text);
        let item_id = message_id(&self.head);
        self.event(kind, ResponseEventContent::Part { item_id, output_index: 0, content_index: 0, part })
    }

    /// Begins the message.
    fn open(&mut self, events: &mut Vec<ResponseEvent>) {
        if self.text.is_some() {
            return;
        }
        self.text = Some(String::new());
        let item = ResponseMessage {
            id: message_id(&self.head),
            kind: "message",
            status: "in_progress",
            role: "assistant",
            content: Vec::new(),
        };
        let added = ResponseEventContent::Item { output_index: 0, item };
        events.push(self.event("response.output_item.added", added));
        events.push(self.part("response.content_part.added", String::new()));
    }
}

impl StreamedAnswer for ResponsesStream {
    type Event = ResponseEvent;

    const HAS_END_MARK: bool = false;

    fn begin(&mut self, events: &mut Vec<ResponseEvent>) {
        events.push(self.state("response.created"));
        events.push(self.state("response.in_progress"));
    }

    fn piece(
        &mut self,
        prompt: usize,
        mut piece: GenerationPiece,
        events: &mut Vec<ResponseEvent>,
    ) -> Result<(), ApiError> {
        self.counts.add(prompt, &piece);
        self.open(events);
        if let (Some(canvases), Some(canvas)) = (&mut self.canvases, piece.canvas.take()) {
            let content = ResponseEventContent::Canvas {
                item_id: message_id(&self.head),
                output_index: 0,
                content_index: 0,
                canvas: canvases.event(&self.model, prompt, canvas)?,
            };
            events.push(self.event("response.canvas", content));
        }
        if let Some(reason) = piece.finish_reason {
            self.reason = reason;
        }
        if piece.text.is_empty() {
            return Ok(());
        }
        self.text.get_or_insert_default().push_str(&piece.text);
        let delta = ResponseEventContent::Delta {
            item_id: message_id(&self.head),
            output_index: 0,
            content_index: 0,
            delta: piece.text,
            logprobs: [],
        };
        events.push(self.event("response.output_text.delta", delta));
        Ok(())
    }

    fn sends_canvas(&self) -> bool {
        self.canvases.is_some()
    }

    fn ended(&mut self, prompt: usize, end: PromptEnd) {
        self.counts.set(prompt, end);
    }

    fn end(&mut self, events: &mut Vec<ResponseEvent>) {
        self.open(events);
        let text = self.text.clone().unwrap_or_default();
        let done = ResponseEventContent::Text {
            item_id: message_id(&self.head),
            output_index: 0,
            content_index: 0,
            text: text.clone(),
            logprobs: [],
        };
        events.push(self.event("response.output_text.done", done));
        events.push(self.part("response.content_part.done", text.clone()));
        let message = message_of(&self.head, text, self.reason);
        let done = ResponseEventContent::Item { output_index: 0, item: message.clone() };
        events.push(self.event("response.output_item.done", done));
        let usage = self.usage();
        self.answer.meta = self.counts.meta();
        finish(&mut self.answer, message, self.reason, usage);
        let kind =
            if self.answer.status == "completed" { "response.completed" } else { "response.incomplete" };
        events.push(self.state(kind));
    }

    fn fail(&mut self, error: ErrorDetail, events: &mut Vec<ResponseEvent>) {
        self.answer.status = "failed";
        self.answer.error = Some(ResponseFailure { code: error.code, message: error.message });
        self.answer.usage = Some(self.usage().into());
        events.push(self.state("response.failed"));
    }

    fn usage(&self) -> Usage {
        self.counts.total()
    }
}
