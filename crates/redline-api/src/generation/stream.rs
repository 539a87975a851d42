//! What streamed answers have in common.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cost::{self, Usage};
use crate::error::ApiError;
use crate::error_body::{ErrorBody, ErrorDetail};
use crate::generation::StreamForm;
use crate::generation::canvas::{CanvasEvent, Canvases};
use crate::generation::mode::{CanvasPiece, GenerationMeta, GenerationPiece, PromptEnd};
use crate::head::AnswerHead;
use crate::json::object::objects;
use crate::json::shape;
use crate::model::LoadedModel;

/// An event of a streamed answer: a server-sent event whose data is JSON, or a line.
pub trait ServerEvent: Serialize {
    /// The name of the event, if it has one.
    fn name(&self) -> Option<&'static str> {
        None
    }
}

/// How the events of a stream are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFormat {
    /// As server-sent events.
    Events,
    /// As server-sent events, the last of which has the data `[DONE]`.
    EventsWithEndMark,
    /// As lines of JSON.
    Lines,
}

/// What the events of a stream contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "StreamOptions")]
pub struct StreamOptions {
    /// Whether the last event has the token counts.
    pub include_usage: Option<bool>,
    /// Whether every event has the token counts so far.
    pub continuous_usage_stats: Option<bool>,
    /// Whether events contain what is new of a canvas.
    pub include_canvas: Option<bool>,
    /// Whether events are padded to hide their lengths. Only `false` is supported.
    #[schemars(with = "Option<shape::False>")]
    pub include_obfuscation: Option<bool>,
}

objects!(StreamOptions);

/// An event of a streamed answer that consists of choices.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum StreamEvent<C> {
    /// New text.
    Chunk(StreamChunk<C>),
    /// Why the answer ends before its time.
    Failed(ErrorBody),
}

impl<C: Serialize> ServerEvent for StreamEvent<C> {}

/// A part of a streamed answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StreamChunk<C> {
    /// Identifies the answer.
    pub id: String,
    /// `text_completion` or `chat.completion.chunk`.
    pub object: &'static str,
    /// When the request came, in seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// What is new of a choice; none in the chunk with the token counts.
    pub choices: Vec<C>,
    /// Token counts so far; absent unless they were asked for, and `null` in chunks without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Option<Usage>>,
    /// In the chunk with the token counts, of a model that fills masks: how they were filled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<GenerationMeta>,
}

/// An answer that is sent in events, made from the pieces of the generations of its prompts.
pub trait StreamedAnswer: Send + Unpin + 'static {
    /// An event.
    type Event: ServerEvent + Send + Unpin;

    /// How events are written.
    const FORMAT: StreamFormat;

    /// Appends the events before the first piece.
    fn begin(&mut self, _events: &mut Vec<Self::Event>) {}

    /// Appends the events of a piece. `prompt` is the index of its prompt.
    fn piece(
        &mut self,
        prompt: usize,
        piece: GenerationPiece,
        events: &mut Vec<Self::Event>,
    ) -> Result<(), ApiError>;

    /// Whether events contain what is new of a canvas, so that pieces need it.
    fn sends_canvas(&self) -> bool {
        false
    }

    /// Takes the end of a prompt, whose texts have all ended.
    fn ended(&mut self, prompt: usize, end: PromptEnd);

    /// Appends the events after the last piece.
    fn end(&mut self, events: &mut Vec<Self::Event>);

    /// Appends the events of an error, which ends the answer.
    fn fail(&mut self, error: ErrorDetail, events: &mut Vec<Self::Event>);

    /// The token counts so far.
    fn usage(&self) -> Usage;
}

/// Token counts of the prompts of a streamed answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamCounts {
    ends: Vec<PromptEnd>,
    /// Tokens of reasoning.
    reasoning_tokens: usize,
}

impl StreamCounts {
    /// Counts for this number of prompts.
    pub(crate) fn new(prompts: usize) -> Self {
        Self { ends: vec![PromptEnd::default(); prompts], reasoning_tokens: 0 }
    }

    /// Counts a piece.
    pub(crate) fn add(&mut self, prompt: usize, piece: &GenerationPiece) {
        let Some(PromptEnd { counts, .. }) = self.ends.get_mut(prompt) else { return };
        counts.completion_tokens += piece.new_tokens;
        if let Some(prompt) = &piece.prompt {
            (counts.prompt_tokens, counts.cached_tokens) = (prompt.token_ids.len(), prompt.cached_tokens);
        }
    }

    /// Counts tokens of reasoning.
    pub(crate) fn reasoned(&mut self, tokens: usize) {
        self.reasoning_tokens += tokens;
    }

    /// Takes the final counts of a prompt.
    pub(crate) fn set(&mut self, prompt: usize, end: PromptEnd) {
        if let Some(own) = self.ends.get_mut(prompt) {
            *own = end;
        }
    }

    /// The counts of all prompts together.
    pub(crate) fn total(&self) -> Usage {
        cost::usage(self.sum().counts).reasoned(self.reasoning_tokens)
    }

    /// How the masks of all prompts were filled, if masks are filled.
    pub(crate) fn meta(&self) -> Option<GenerationMeta> {
        self.sum().meta
    }

    /// The ends of all prompts together.
    pub(crate) fn sum(&self) -> PromptEnd {
        self.ends.iter().fold(PromptEnd::default(), |sum, one| sum.and(*one))
    }
}

/// The chunks of an answer that consists of choices.
pub(crate) struct Chunks {
    head: AnswerHead,
    /// The name of a chunk.
    object: &'static str,
    pub(crate) form: StreamForm,
    pub(crate) counts: StreamCounts,
    canvases: Canvases,
}

impl Chunks {
    /// The chunks of the answer to this number of prompts.
    pub(crate) fn new(
        head: AnswerHead,
        object: &'static str,
        form: Option<StreamForm>,
        prompts: usize,
    ) -> Self {
        Self {
            head,
            object,
            form: form.unwrap_or_default(),
            counts: StreamCounts::new(prompts),
            canvases: Canvases::new(prompts),
        }
    }

    /// The event of what is new of the canvas of a prompt.
    pub(crate) fn canvas(
        &mut self,
        model: &LoadedModel,
        prompt: usize,
        piece: Option<CanvasPiece>,
    ) -> Result<Option<CanvasEvent>, ApiError> {
        piece.map(|piece| self.canvases.event(model, prompt, piece)).transpose()
    }

    /// A chunk; the one with the token counts has no choices.
    pub(crate) fn chunk<C>(&self, choices: Vec<C>, usage: impl FnOnce() -> Usage) -> StreamEvent<C> {
        let counted = self.form.running_usage || choices.is_empty();
        StreamEvent::Chunk(StreamChunk {
            id: self.head.id.clone(),
            object: self.object,
            created: self.head.created,
            model: self.head.model.clone(),
            choices,
            usage: (self.form.usage || counted).then(|| counted.then(usage)),
            meta: None,
        })
    }

    /// Appends the chunk with the token counts, if it was asked for.
    pub(crate) fn end<C>(&self, usage: Usage, events: &mut Vec<StreamEvent<C>>) {
        if self.form.usage {
            let mut last = self.chunk(Vec::new(), || usage);
            if let StreamEvent::Chunk(chunk) = &mut last {
                chunk.meta = self.counts.meta();
            }
            events.push(last);
        }
    }
}

/// Appends the event of an error.
pub(crate) fn fail<C>(error: ErrorDetail, events: &mut Vec<StreamEvent<C>>) {
    events.push(StreamEvent::Failed(ErrorBody { error }));
}
