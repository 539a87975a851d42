//! A bounded pipe from the engine to the body of a streamed answer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use redline_api::foreign::{CanvasPiece, GenerationEvent, GenerationPiece, GenerationTicket, PromptEnd};
use redline_engine::{Cancel, EngineError, Event, FilledMask, PositionLogprobs};

/// Bytes of a log-probability with its text, at most or nearly so.
const LOGPROB: usize = 64;

/// What comes out of a pipe.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A piece of the continuations of this prompt.
    Piece(usize, GenerationPiece),
    /// This prompt has ended.
    Ended(usize, Result<PromptEnd, EngineError>),
    /// More bytes waited to be read than the pipe holds. Nothing else follows.
    Overflow,
}

/// The end of a pipe that is read. Dropping it cancels the requests.
pub(crate) struct PipeReader(Arc<Pipe>);

/// What both ends share.
struct Pipe {
    waiting: Mutex<Waiting>,
    /// Most bytes that may wait when a piece comes.
    most: usize,
    /// Whether canvases are told.
    canvases: bool,
    cancels: Vec<Cancel>,
}

/// What waits to be read.
#[derive(Default)]
struct Waiting {
    heard: VecDeque<Heard>,
    bytes: usize,
    overflowed: bool,
    waker: Option<Waker>,
}

impl PipeReader {
    /// Connects tickets with a pipe that holds this number of bytes, and one piece more.
    /// Unless `canvases` is set, pieces say nothing about canvases.
    pub(crate) fn of(tickets: Vec<GenerationTicket>, most: usize, canvases: bool) -> Self {
        let cancels = tickets.iter().map(GenerationTicket::canceller).collect();
        let reader = Self::new(most, canvases, cancels);
        for (prompt, ticket) in tickets.into_iter().enumerate() {
            let pipe = reader.0.clone();
            ticket.send_to(move |event| pipe.put(prompt, event));
        }
        reader
    }

    fn new(most: usize, canvases: bool, cancels: Vec<Cancel>) -> Self {
        Self(Arc::new(Pipe { waiting: Mutex::default(), most, canvases, cancels }))
    }

    /// What comes next.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Heard> {
        let mut waiting = self.0.lock();
        if waiting.overflowed {
            return Poll::Ready(Heard::Overflow);
        }
        let Some(heard) = waiting.heard.pop_front() else {
            waiting.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        waiting.bytes = waiting.bytes.saturating_sub(weight(&heard));
        Poll::Ready(heard)
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Pipe {
    /// Takes an event in, on the engine's thread.
    fn put(&self, prompt: usize, event: GenerationEvent) {
        let heard = match event {
            Event::Progress(mut piece) => {
                piece.canvas = piece.canvas.filter(|_| self.canvases);
                Heard::Piece(prompt, piece)
            }
            Event::Done(outcome) => Heard::Ended(prompt, outcome.map(|outcome| outcome.end)),
        };
        let mut waiting = self.lock();
        if waiting.bytes > self.most && !waiting.overflowed {
            waiting.overflowed = true;
            waiting.heard.clear();
            self.cancel();
        }
        if !waiting.overflowed {
            waiting.bytes += weight(&heard);
            waiting.heard.push_back(heard);
        }
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn cancel(&self) {
        self.cancels.iter().for_each(Cancel::cancel);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while the lock is held.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that something takes until it is read. Prompts, and canvases before their first pass, do not count: each is told once, and the
/// memory for the answer contains it.
fn weight(of: &Heard) -> usize {
    let logprobs = |position: &PositionLogprobs| (1 + position.top.len()) * LOGPROB;
    let own = size_of::<Heard>();
    let Heard::Piece(_, piece) = of else { return own };
    let filled = match &piece.canvas {
        Some(CanvasPiece::Passed(pass)) => pass.filled.len() * size_of::<FilledMask>(),
        Some(CanvasPiece::Begun(_)) | None => 0,
    };
    own + piece.text.len() + piece.logprobs.as_ref().map_or(0, logprobs) + filled
}

#[cfg(test)]
mod tests {
    use redline_engine::DiffusionPass;

    use super::*;

    fn piece(text: &str) -> GenerationEvent {
        Event::Progress(GenerationPiece { text: text.to_owned(), ..GenerationPiece::default() })
    }

    fn next(reader: &PipeReader) -> Poll<Heard> {
        reader.poll(&Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_reader_that_keeps_up_gets_everything_in_order() {
        let cancel = Cancel::new();
        let reader = PipeReader::new(1000, false, vec![cancel.clone()]);
        assert!(next(&reader).is_pending());
        for round in 0..100 {
            reader.0.put(round, piece(&"x".repeat(600)));
            assert!(matches!(next(&reader), Poll::Ready(Heard::Piece(at, _)) if at == round));
        }
        reader.0.put(7, Event::Done(Err(EngineError::Stopped)));
        assert!(matches!(next(&reader), Poll::Ready(Heard::Ended(7, Err(EngineError::Stopped)))));
        assert!(next(&reader).is_pending() && !cancel.is_cancelled());
        drop(reader);
        assert!(cancel.is_cancelled(), "a reader that leaves cancels");
    }

    #[test]
    fn a_reader_that_does_not_read_cancels_and_takes_no_more_memory() {
        let cancel = Cancel::new();
        let reader = PipeReader::new(1000, false, vec![cancel.clone()]);
        reader.0.put(0, piece(&"x".repeat(5000)));
        assert!(!cancel.is_cancelled(), "one piece may be larger");
        for _ in 0..10 {
            reader.0.put(0, piece("x"));
        }
        assert!(cancel.is_cancelled());
        assert!(reader.0.lock().heard.is_empty());
        assert!(matches!(next(&reader), Poll::Ready(Heard::Overflow)));
    }

    #[test]
    fn what_canvases_are_filled_with_counts_and_is_told_only_where_it_is_read() {
        let pass = || {
            let filled = vec![FilledMask { position: 1, token: 2, confidence: 0.5 }; 100];
            let pass = DiffusionPass { step: 0, rows: 0..4, outputs: 2, filled };
            let canvas = Some(CanvasPiece::Passed(pass));
            Event::Progress(GenerationPiece { new_tokens: 100, canvas, ..GenerationPiece::default() })
        };
        for (canvases, cancelled) in [(true, true), (false, false)] {
            let cancel = Cancel::new();
            let reader = PipeReader::new(4 * size_of::<Heard>(), canvases, vec![cancel.clone()]);
            reader.0.put(0, pass());
            reader.0.put(0, pass());
            assert_eq!(cancel.is_cancelled(), cancelled);
            let Poll::Ready(heard) = next(&reader) else { panic!("nothing") };
            let told =
                matches!(heard, Heard::Piece(_, GenerationPiece { canvas: None, new_tokens: 100, .. }));
            assert_eq!(told, !canvases);
        }
    }
}
