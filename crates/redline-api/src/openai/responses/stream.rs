//! A response that is sent in events.

use std::sync::Arc;

use redline_chat::Delta;
use redline_engine::FinishReason;

use crate::conversation::reading::{AnswerPart, AnswerReader, Call, Reading};
use crate::cost::Usage;
use crate::error::ApiError;
use crate::error_body::ErrorDetail;
use crate::generation::canvas::Canvases;
use crate::generation::mode::{GenerationPiece, PromptEnd};
use crate::generation::stream::{StreamCounts, StreamFormat, StreamedAnswer};
use crate::head::AnswerHead;
use crate::model::LoadedModel;
use crate::openai::responses::body::{
    ResponseEvent, ResponseEventContent, ResponseFailure, ResponseItem, ResponseObject, ResponseTextPart,
};
use crate::openai::responses::{ResponsesForm, begun, finish, item, part_id, status};

/// An answer that is sent in events.
pub struct ResponsesStream {
    model: Arc<LoadedModel>,
    head: AnswerHead,
    answer: ResponseObject,
    reading: Arc<Reading>,
    reader: AnswerReader,
    /// The items that have ended.
    ended: Vec<ResponseItem>,
    /// The item that is being written, with what there is of it.
    open: Option<AnswerPart>,
    /// Number of calls.
    calls: usize,
    reason: FinishReason,
    counts: StreamCounts,
    /// The canvas, if its events are sent.
    canvases: Option<Canvases>,
    /// Number of events.
    events: u64,
}

impl ResponsesStream {
    /// The stream of the answer to a request that [`request`](super::request) built.
    pub fn new(
        model: Arc<LoadedModel>,
        head: AnswerHead,
        form: &ResponsesForm,
        reading: Arc<Reading>,
    ) -> Self {
        let sends_canvas = form.stream.is_some_and(|stream| stream.canvas);
        Self {
            model,
            answer: begun(&head, form),
            head,
            reader: reading.reader(),
            reading,
            ended: Vec::new(),
            open: None,
            calls: 0,
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

    /// The index and the id of the item that is being written.
    fn place(&self) -> (usize, String) {
        let kind = match &self.open {
            Some(AnswerPart::Call(call)) => return (self.ended.len(), format!("fc_{}", call.id)),
            Some(AnswerPart::Reasoning(_)) => "rs",
            _ => "msg",
        };
        (self.ended.len(), part_id(&self.head, kind, self.ended.len()))
    }

    fn part(&mut self, kind: &'static str, text: String) -> ResponseEvent {
        let part = ResponseTextPart::new(text);
        let (output_index, item_id) = self.place();
        self.event(kind, ResponseEventContent::Part { item_id, output_index, content_index: 0, part })
    }

    /// Begins an item, and ends the one before.
    fn begin_item(&mut self, open: AnswerPart, events: &mut Vec<ResponseEvent>) {
        self.end_item("completed", events);
        let mut item = item((&self.head, self.ended.len()), &self.reading, open.clone(), "in_progress");
        match &mut item {
            ResponseItem::Message(message) => message.content.clear(),
            ResponseItem::Reasoning(reasoning) => reasoning.content.clear(),
            ResponseItem::Call(_) => {}
        }
        let is_message = matches!(open, AnswerPart::Text(_));
        self.open = Some(open);
        let added = ResponseEventContent::Item { output_index: self.ended.len(), item };
        events.push(self.event("response.output_item.added", added));
        if is_message {
            events.push(self.part("response.content_part.added", String::new()));
        }
    }

    /// Ends the item that is being written, if there is one.
    fn end_item(&mut self, status: &'static str, events: &mut Vec<ResponseEvent>) {
        let (output_index, item_id) = self.place();
        let Some(open) = self.open.take() else { return };
        let content_index = 0;
        match &open {
            AnswerPart::Text(text) => {
                let text = text.clone();
                let done = ResponseEventContent::Text {
                    item_id,
                    output_index,
                    content_index,
                    text: text.clone(),
                    logprobs: [],
                };
                events.push(self.event("response.output_text.done", done));
                events.push(self.part("response.content_part.done", text));
            }
            AnswerPart::Reasoning(text) => {
                let text = text.clone();
                let done = ResponseEventContent::Reasoning { item_id, output_index, content_index, text };
                events.push(self.event("response.reasoning_text.done", done));
            }
            AnswerPart::Call(Call { name, arguments, .. }) => {
                let (name, arguments) = (name.clone(), arguments.clone());
                let done = ResponseEventContent::Arguments { item_id, output_index, name, arguments };
                events.push(self.event("response.function_call_arguments.done", done));
            }
        }
        let item = item((&self.head, self.ended.len()), &self.reading, open, status);
        let done = ResponseEventContent::Item { output_index, item: item.clone() };
        events.push(self.event("response.output_item.done", done));
        self.ended.push(item);
    }

    /// Reports what is new.
    fn add(&mut self, delta: Delta, events: &mut Vec<ResponseEvent>) {
        let content_index = 0;
        match delta {
            Delta::Content(delta) => {
                if !matches!(self.open, Some(AnswerPart::Text(_))) {
                    self.begin_item(AnswerPart::Text(String::new()), events);
                }
                if let Some(AnswerPart::Text(text)) = &mut self.open {
                    text.push_str(&delta);
                }
                let (output_index, item_id) = self.place();
                let content =
                    ResponseEventContent::Delta { item_id, output_index, content_index, delta, logprobs: [] };
                events.push(self.event("response.output_text.delta", content));
            }
            Delta::Reasoning(delta) => {
                if !matches!(self.open, Some(AnswerPart::Reasoning(_))) {
                    self.begin_item(AnswerPart::Reasoning(String::new()), events);
                }
                if let Some(AnswerPart::Reasoning(text)) = &mut self.open {
                    text.push_str(&delta);
                }
                let (output_index, item_id) = self.place();
                let content =
                    ResponseEventContent::ReasoningDelta { item_id, output_index, content_index, delta };
                events.push(self.event("response.reasoning_text.delta", content));
            }
            Delta::Call(name) => {
                let call = self.reading.call(0, self.calls, name);
                self.calls += 1;
                self.begin_item(AnswerPart::Call(call), events);
            }
            Delta::Arguments(delta) => {
                if let Some(AnswerPart::Call(call)) = &mut self.open {
                    call.arguments.push_str(&delta);
                }
                let (output_index, item_id) = self.place();
                let content = ResponseEventContent::ArgumentsDelta { item_id, output_index, delta };
                events.push(self.event("response.function_call_arguments.delta", content));
            }
        }
    }
}

impl StreamedAnswer for ResponsesStream {
    type Event = ResponseEvent;

    const FORMAT: StreamFormat = StreamFormat::Events;

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
        if let (Some(canvases), Some(canvas)) = (&mut self.canvases, piece.canvas.take()) {
            let canvas = canvases.event(&self.model, prompt, canvas)?;
            if self.open.is_none() {
                self.begin_item(AnswerPart::Text(String::new()), events);
            }
            let (output_index, item_id) = self.place();
            let content = ResponseEventContent::Canvas { item_id, output_index, content_index: 0, canvas };
            events.push(self.event("response.canvas", content));
        }
        let reasoned = self.reader.reasoning_tokens;
        let deltas = self.reader.piece(&piece)?;
        self.reason = piece.finish_reason.unwrap_or(self.reason);
        self.counts.reasoned(self.reader.reasoning_tokens - reasoned);
        for delta in deltas {
            self.add(delta, events);
        }
        Ok(())
    }

    fn sends_canvas(&self) -> bool {
        self.canvases.is_some()
    }

    fn ended(&mut self, prompt: usize, end: PromptEnd) {
        self.counts.set(prompt, end);
    }

    fn end(&mut self, events: &mut Vec<ResponseEvent>) {
        let has_message = matches!(self.open, Some(AnswerPart::Text(_)))
            || self.ended.iter().any(|item| matches!(item, ResponseItem::Message(_)));
        if self.calls == 0 && !has_message {
            self.begin_item(AnswerPart::Text(String::new()), events);
        }
        self.end_item(status(self.reason), events);
        let usage = self.usage();
        self.answer.meta = self.counts.meta();
        finish(&mut self.answer, std::mem::take(&mut self.ended), self.reason, usage);
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
