//! Streamed answers: what the engine reports becomes events.

use redline_engine::{GeneratedPiece, TokenCounts};
use redline_wire::{ErrorBody, ErrorDetail, ServerEvent, StreamChunk, StreamEvent, Usage};

use super::AnswerHead;
use super::generation::StreamForm;
use crate::{ApiError, cost};

/// An answer that is sent in events, made from the pieces of the generations of its prompts.
pub trait StreamedAnswer: Send + Unpin + 'static {
    /// An event.
    type Event: ServerEvent + Send + Unpin;

    /// Whether the data `[DONE]` follows the last event.
    const HAS_END_MARK: bool;

    /// Appends the events before the first piece.
    fn begin(&mut self, _events: &mut Vec<Self::Event>) {}

    /// Appends the events of a piece. `prompt` is the index of its prompt.
    fn piece(
        &mut self,
        prompt: usize,
        piece: GeneratedPiece,
        events: &mut Vec<Self::Event>,
    ) -> Result<(), ApiError>;

    /// Takes the token counts of a prompt whose continuations have all ended.
    fn ended(&mut self, prompt: usize, counts: TokenCounts);

    /// Appends the events after the last piece.
    fn end(&mut self, events: &mut Vec<Self::Event>);

    /// Appends the events of an error, which ends the answer.
    fn fail(&mut self, error: ErrorDetail, events: &mut Vec<Self::Event>);

    /// The token counts so far.
    fn usage(&self) -> Usage;
}

/// Token counts of the prompts of a streamed answer.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamCounts(Vec<TokenCounts>);

impl StreamCounts {
    /// Counts for this number of prompts.
    pub(super) fn new(prompts: usize) -> Self {
        Self(vec![TokenCounts::default(); prompts])
    }

    /// Counts a piece.
    pub(super) fn add(&mut self, prompt: usize, piece: &GeneratedPiece) {
        let Some(counts) = self.0.get_mut(prompt) else { return };
        counts.completion_tokens += usize::from(piece.token_id.is_some());
        if let Some(prompt) = &piece.prompt {
            (counts.prompt_tokens, counts.cached_tokens) = (prompt.token_ids.len(), prompt.cached_tokens);
        }
    }

    /// Takes the final counts of a prompt.
    pub(super) fn set(&mut self, prompt: usize, counts: TokenCounts) {
        if let Some(own) = self.0.get_mut(prompt) {
            *own = counts;
        }
    }

    /// The counts of all prompts together.
    pub(super) fn total(&self) -> Usage {
        cost::usage(self.0.iter().fold(TokenCounts::default(), |sum, one| TokenCounts {
            prompt_tokens: sum.prompt_tokens + one.prompt_tokens,
            completion_tokens: sum.completion_tokens + one.completion_tokens,
            cached_tokens: sum.cached_tokens + one.cached_tokens,
        }))
    }
}

/// The chunks of an answer that consists of choices.
pub(super) struct Chunks {
    head: AnswerHead,
    /// The name of a chunk.
    object: &'static str,
    pub(super) form: StreamForm,
    pub(super) counts: StreamCounts,
}

impl Chunks {
    /// The chunks of the answer to this number of prompts.
    pub(super) fn new(
        head: AnswerHead,
        object: &'static str,
        form: Option<StreamForm>,
        prompts: usize,
    ) -> Self {
        Self { head, object, form: form.unwrap_or_default(), counts: StreamCounts::new(prompts) }
    }

    /// A chunk; the one with the token counts has no choices.
    pub(super) fn chunk<C>(&self, choices: Vec<C>, usage: impl FnOnce() -> Usage) -> StreamEvent<C> {
        let told = self.form.running_usage || choices.is_empty();
        StreamEvent::Chunk(StreamChunk {
            id: self.head.id.clone(),
            object: self.object,
            created: self.head.created,
            model: self.head.model.clone(),
            choices,
            usage: (self.form.usage || told).then(|| told.then(usage)),
        })
    }

    /// Appends the chunk with the token counts, if it was asked for.
    pub(super) fn end<C>(&self, usage: Usage, events: &mut Vec<StreamEvent<C>>) {
        if self.form.usage {
            events.push(self.chunk(Vec::new(), || usage));
        }
    }
}

/// Appends the event of an error.
pub(super) fn fail<C>(error: ErrorDetail, events: &mut Vec<StreamEvent<C>>) {
    events.push(StreamEvent::Failed(ErrorBody { error }));
}
