//! A message that is sent in events.

use std::sync::Arc;

use redline_chat::Delta;
use redline_engine::FinishReason;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::anthropic::{ContentBlock, MessageAnswer, MessageUsage, MessagesForm, begun, call_id, ended};
use crate::conversation::reading::{AnswerReader, Reading};
use crate::cost::Usage;
use crate::error::ApiError;
use crate::error_body::{AnthropicErrorBody, ErrorDetail};
use crate::generation::mode::{GenerationPiece, PromptEnd};
use crate::generation::stream::{ServerEvent, StreamCounts, StreamFormat, StreamedAnswer};
use crate::head::AnswerHead;

/// An event of a streamed answer of `/v1/messages`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MessageEvent {
    /// The answer begins.
    MessageStart {
        /// The answer, without content.
        message: Box<MessageAnswer>,
    },
    /// A block begins.
    ContentBlockStart {
        /// Its index.
        index: usize,
        /// The block, which is empty.
        content_block: ContentBlock,
    },
    /// More of a block.
    ContentBlockDelta {
        /// Its index.
        index: usize,
        /// What is new.
        delta: BlockDelta,
    },
    /// A block ends.
    ContentBlockStop {
        /// Its index.
        index: usize,
    },
    /// The answer ends.
    MessageDelta {
        /// Why.
        delta: MessageEnd,
        /// Token counts.
        usage: MessageUsage,
    },
    /// The last event.
    MessageStop,
    /// Why the answer ends before its time.
    #[serde(untagged)]
    Error(AnthropicErrorBody),
}

impl ServerEvent for MessageEvent {
    fn name(&self) -> Option<&'static str> {
        Some(match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
            Self::Error(_) => "error",
        })
    }
}

/// What is new of a block.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "type")]
pub enum BlockDelta {
    /// Text.
    #[serde(rename = "text_delta")]
    Text {
        /// The new text.
        text: String,
    },
    /// Arguments of a call.
    #[serde(rename = "input_json_delta")]
    InputJson {
        /// More of their JSON.
        partial_json: String,
    },
    /// Reasoning.
    #[serde(rename = "thinking_delta")]
    Thinking {
        /// The new text.
        thinking: String,
    },
}

/// Why an answer ended.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MessageEnd {
    /// `end_turn`, `max_tokens`, `stop_sequence` or `tool_use`.
    pub stop_reason: Option<&'static str>,
    /// The text before which it ended.
    pub stop_sequence: Option<String>,
}

/// An answer that is sent in events.
pub struct MessagesStream {
    /// Until the first event.
    head: Option<AnswerHead>,
    form: MessagesForm,
    reading: Arc<Reading>,
    reader: AnswerReader,
    counts: StreamCounts,
    /// What the block that is being written is, and its index.
    open: Option<(Kind, usize)>,
    /// Number of blocks, and of calls among them.
    blocks: usize,
    calls: usize,
    reason: FinishReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Call,
}

impl MessagesStream {
    /// The stream of the answer to a request that [`request`](super::request) built.
    pub fn new(head: AnswerHead, form: MessagesForm, reading: Arc<Reading>) -> Self {
        Self {
            head: Some(head),
            form,
            reader: reading.reader(),
            reading,
            counts: StreamCounts::new(1),
            open: None,
            blocks: 0,
            calls: 0,
            reason: FinishReason::Length,
        }
    }

    /// The index of a block of this kind: the one that is being written, or a new one.
    fn block(&mut self, kind: Kind, content_block: ContentBlock, events: &mut Vec<MessageEvent>) -> usize {
        if let Some((open, index)) = self.open
            && open == kind
            && kind != Kind::Call
        {
            return index;
        }
        self.end_block(events);
        let index = self.blocks;
        self.blocks += 1;
        self.open = Some((kind, index));
        events.push(MessageEvent::ContentBlockStart { index, content_block });
        index
    }

    fn end_block(&mut self, events: &mut Vec<MessageEvent>) {
        if let Some((_, index)) = self.open.take() {
            events.push(MessageEvent::ContentBlockStop { index });
        }
    }

    fn add(&mut self, delta: Delta, events: &mut Vec<MessageEvent>) {
        let (index, delta) = match delta {
            Delta::Content(text) => {
                let empty = ContentBlock::Text { text: String::new() };
                (self.block(Kind::Text, empty, events), BlockDelta::Text { text })
            }
            Delta::Reasoning(thinking) => {
                let empty = ContentBlock::Thinking { thinking: String::new(), signature: "" };
                (self.block(Kind::Thinking, empty, events), BlockDelta::Thinking { thinking })
            }
            Delta::Call(name) => {
                let id = call_id(&self.reading.call_id(0, self.calls));
                self.calls += 1;
                self.block(Kind::Call, ContentBlock::ToolUse { id, name, input: json!({}) }, events);
                return;
            }
            Delta::Arguments(partial_json) => match self.open {
                Some((Kind::Call, index)) => (index, BlockDelta::InputJson { partial_json }),
                _ => return,
            },
        };
        events.push(MessageEvent::ContentBlockDelta { index, delta });
    }
}

impl StreamedAnswer for MessagesStream {
    type Event = MessageEvent;

    const FORMAT: StreamFormat = StreamFormat::Events;

    fn piece(
        &mut self,
        prompt: usize,
        piece: GenerationPiece,
        events: &mut Vec<MessageEvent>,
    ) -> Result<(), ApiError> {
        self.counts.add(prompt, &piece);
        if let Some(head) = self.head.take() {
            // The first event has the tokens of the prompt, and none of the answer.
            let usage = Usage { completion_tokens: 0, ..self.usage() };
            events.push(MessageEvent::MessageStart { message: Box::new(begun(head, usage)) });
        }
        let deltas = self.reader.piece(&piece)?;
        self.reason = piece.finish_reason.unwrap_or(self.reason);
        for delta in deltas {
            self.add(delta, events);
        }
        Ok(())
    }

    fn ended(&mut self, prompt: usize, end: PromptEnd) {
        self.counts.set(prompt, end);
    }

    fn end(&mut self, events: &mut Vec<MessageEvent>) {
        self.end_block(events);
        let stopped = self.reader.stopped_by(&self.form.stops);
        let (stop_reason, stop_sequence) = ended(self.reason, self.calls > 0, stopped);
        let delta = MessageEnd { stop_reason, stop_sequence };
        events.push(MessageEvent::MessageDelta { delta, usage: self.usage().into() });
        events.push(MessageEvent::MessageStop);
    }

    fn fail(&mut self, error: ErrorDetail, events: &mut Vec<MessageEvent>) {
        events.push(MessageEvent::Error(AnthropicErrorBody::of(500, error)));
    }

    fn usage(&self) -> Usage {
        self.counts.total()
    }
}
