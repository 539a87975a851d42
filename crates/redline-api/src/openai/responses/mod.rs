//! `/v1/responses`: an answer to a text or a conversation, in OpenAI's form.

pub mod body;
mod input;
mod stream;

pub use stream::ResponsesStream;

use std::collections::BTreeMap;

use redline_engine::FinishReason;

use crate::chat::keys::ChatKeys;
use crate::chat::tools::{ToolForm, ToolUse};
use crate::conversation::reading::{AnswerPart, Call, Reading};
use crate::conversation::request::ChatRequest;
use crate::cost::{self, Usage};
use crate::error::ApiError;
use crate::generation::mode::{GenerationMode, GenerationOutcome};
use crate::generation::{StreamForm, generation_request, max_tokens, unsupported};
use crate::head::AnswerHead;
use crate::json::fields::refused;
use crate::json::finite::Finite;
use crate::json::text::JsonText;
use crate::openai::responses::body::{
    IncompleteDetails, NEVER_INCLUDED, ResponseCall, ResponseItem, ResponseMessage, ResponseObject,
    ResponseReasoning, ResponseReasoningPart, ResponseTextForm, ResponseTextFormat, ResponseTextPart,
    ResponsesBody,
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
    tools: Vec<JsonText>,
    tool_choice: JsonText,
    parallel: bool,
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
    parts.sampling.check_one_text(false)?;
    let most = max_tokens("max_output_tokens", body.max_output_tokens)?;
    let messages = input::messages(body.instructions.as_deref(), body.input)?;
    let agent = body.agent;
    let tool_choice = agent.tool_choice.clone().unwrap_or_else(|| JsonText::text("auto"));
    let told_tools = body.tools.clone().unwrap_or_default();
    let (choice, parallel) = (agent.tool_choice.as_ref(), agent.parallel_tool_calls);
    let tools = ToolUse::of(ToolForm::Flat, body.tools, choice, parallel)?;
    let mut grammar_param = parts.grammar.param();
    let format = body.text.and_then(|text| text.format);
    let format_kind = format.as_ref().map_or("text", |format| format.known_kind());
    let own = format.map(|format| format.grammar("text.format", "text.format.schema")).transpose()?.flatten();
    if let (Some((param, _)), Some(other)) = (&own, parts.grammar.given()) {
        let fact = format!("`{param}` and `{other}` both say what the text has to be");
        return Err(refused(param, fact, "give one of them"));
    }
    let mut keys = ChatKeys { chat_template_kwargs: body.chat_template_kwargs, ..ChatKeys::default() };
    keys.reason(body.reasoning.and_then(|reasoning| reasoning.effort));
    let user = parts.fields.user.clone();
    let mut request = generation_request(mode, parts, most, None, stream)?;
    if let Some((param, grammar)) = own {
        request.restrict(param, grammar)?;
        grammar_param = Some(param);
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
        tools: told_tools,
        tool_choice,
        parallel: parallel.unwrap_or(true),
        stream,
    };
    let request = ChatRequest::new(request, "input", messages, keys, tools, &agent);
    Ok((ChatRequest { grammar_param, ..request }, form))
}

/// Refuses fields that are known and not supported.
fn check_supported(body: &ResponsesBody) -> Result<(), ApiError> {
    let truncation = body.truncation.as_deref().is_some_and(|truncation| truncation != "disabled");
    let verbosity = body.text.as_ref().is_some_and(|text| text.verbosity.is_some());
    let mut include = body.include.iter().flatten();
    if let Some(part) = include.find(|part| !NEVER_INCLUDED.contains(&part.as_str())) {
        let hint = format!("leave it out, or give some of {}", NEVER_INCLUDED.join(", "));
        return Err(refused("include", format!("`include` has {part:?}, which is not supported"), hint));
    }
    let whole = "nothing is stored; give the whole conversation as `input`";
    let template = "`chat_template_kwargs` gives variables to the chat template";
    for (param, given, hint) in [
        ("previous_response_id", body.previous_response_id.is_some(), whole),
        ("conversation", body.conversation.is_some(), whole),
        ("background", body.background == Some(true), "leave it out, or `stream` the answer"),
        ("prompt", body.prompt.is_some(), "give the text as `input`"),
        ("text.verbosity", verbosity, template),
        ("truncation", truncation, "give a shorter `input`"),
        ("top_logprobs", body.top_logprobs.is_some_and(|top| top > 0), "leave it out"),
        ("context_management", body.context_management.is_some(), "leave it out"),
        ("max_tool_calls", body.max_tool_calls.is_some(), "leave it out"),
        ("moderation", body.moderation.is_some(), "leave it out"),
    ] {
        unsupported(param, given, hint)?;
    }
    Ok(())
}

/// Builds the answer, and its token counts in the form of other routes.
pub fn answer(
    head: AnswerHead,
    form: ResponsesForm,
    reading: &Reading,
    mut outcome: GenerationOutcome,
) -> Result<(ResponseObject, Usage), ApiError> {
    let mut answer = begun(&head, &form);
    let one = outcome.take_one();
    let (mut parts, reasoning_tokens) = reading.parts(0, &one)?;
    if parts.iter().all(|part| matches!(part, AnswerPart::Reasoning(_))) {
        parts.push(AnswerPart::Text(String::new()));
    }
    // Only the last one may have been cut.
    let last = parts.len() - 1;
    let status = |index| if index == last { status(one.finish_reason) } else { "completed" };
    let items = parts.into_iter().enumerate();
    let output = items.map(|(index, part)| item((&head, index), reading, part, status(index))).collect();
    answer.meta = outcome.end.meta;
    answer.receipt = receipt::attached(outcome.receipt.take());
    let usage = cost::usage(outcome.end.counts).reasoned(reasoning_tokens);
    finish(&mut answer, output, one.finish_reason, usage);
    Ok((answer, usage))
}

/// An answer without items.
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
        parallel_tool_calls: form.parallel,
        previous_response_id: None,
        store: false,
        temperature: Finite(form.temperature),
        text: ResponseTextForm { format: ResponseTextFormat { kind: form.format } },
        tool_choice: form.tool_choice.clone(),
        tools: form.tools.clone(),
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

/// The id of the part of an answer with this index.
fn part_id(head: &AnswerHead, kind: &str, index: usize) -> String {
    let id = head.id.strip_prefix("resp_").unwrap_or(&head.id);
    if index == 0 { format!("{kind}_{id}") } else { format!("{kind}_{id}_{index}") }
}

/// A part of an answer, with its index, as an item with a status.
fn item(
    (head, index): (&AnswerHead, usize),
    reading: &Reading,
    part: AnswerPart,
    status: &'static str,
) -> ResponseItem {
    match part {
        AnswerPart::Text(text) => ResponseItem::Message(ResponseMessage {
            id: part_id(head, "msg", index),
            kind: "message",
            status,
            role: "assistant",
            content: vec![ResponseTextPart::new(text)],
        }),
        AnswerPart::Reasoning(text) => ResponseItem::Reasoning(ResponseReasoning {
            id: part_id(head, "rs", index),
            kind: "reasoning",
            summary: [],
            content: vec![ResponseReasoningPart { kind: "reasoning_text", text }],
        }),
        AnswerPart::Call(Call { id, name, arguments }) => {
            let call_id = if reading.has_plain_ids() { id.clone() } else { format!("call_{id}") };
            ResponseItem::Call(ResponseCall {
                id: format!("fc_{id}"),
                kind: "function_call",
                status,
                call_id,
                name,
                arguments,
            })
        }
    }
}

/// Ends an answer.
fn finish(answer: &mut ResponseObject, output: Vec<ResponseItem>, reason: FinishReason, usage: Usage) {
    answer.status = status(reason);
    answer.incomplete_details =
        (answer.status == "incomplete").then_some(IncompleteDetails { reason: "max_output_tokens" });
    answer.output = output;
    answer.usage = Some(usage.into());
}
