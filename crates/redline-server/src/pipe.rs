//! A bounded pipe from the engine to the body of a streamed answer. The choices of a prompt come out of it in turns.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use redline_api::generation::mode::{
    CanvasPiece, GenerationEvent, GenerationPiece, GenerationTicket, PromptEnd,
};
use redline_engine::{Cancel, EngineError, Event, FilledMask, PositionLogprobs};

use crate::order::PieceOrder;

/// Bytes of a log-probability with its text, at most or nearly so.
const LOGPROB: usize = 64;

/// What comes out of a pipe.
#[derive(Debug)]
pub(crate) enum PipeEvent {
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
    /// Most bytes of pieces whose turn has not come.
    most_held: usize,
    /// Whether canvases are sent.
    canvases: bool,
    cancels: Vec<Cancel>,
}

/// What has not been read.
struct Waiting {
    ready: VecDeque<PipeEvent>,
    ready_bytes: usize,
    /// Most of these bytes when a piece comes.
    most_ready: usize,
    /// For every prompt, the pieces whose turn has not come; `None` if its pieces no longer wait for their turn.
    orders: Vec<Option<PieceOrder<GenerationPiece>>>,
    held_bytes: usize,
    overflowed: bool,
    waker: Option<Waker>,
}

impl PipeReader {
    /// Connects tickets with a pipe, each with its number of choices. About `most` bytes may wait to be read, and as many for their
    /// turn. Unless `canvases` is set, pieces say nothing about canvases.
    pub(crate) fn of(tickets: Vec<(GenerationTicket, usize)>, most: usize, canvases: bool) -> Self {
        let cancels = tickets.iter().map(|(ticket, _)| ticket.canceller()).collect();
        let choices = tickets.iter().map(|(_, choices)| *choices);
        let reader = Self::new(most, canvases, choices, cancels);
        for (prompt, (ticket, _)) in tickets.into_iter().enumerate() {
            let pipe = reader.0.clone();
            ticket.send_to(move |event| pipe.put(prompt, event));
        }
        reader
    }

    fn new(most: usize, canvases: bool, choices: impl Iterator<Item = usize>, cancels: Vec<Cancel>) -> Self {
        let waiting = Waiting {
            ready: VecDeque::new(),
            ready_bytes: 0,
            most_ready: most,
            orders: choices.map(PieceOrder::new).map(Some).collect(),
            held_bytes: 0,
            overflowed: false,
            waker: None,
        };
        Self(Arc::new(Pipe { waiting: Mutex::new(waiting), most_held: most, canvases, cancels }))
    }

    /// Number of prompts.
    pub(crate) fn prompts(&self) -> usize {
        self.0.lock().orders.len()
    }

    /// What comes next.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<PipeEvent> {
        let mut waiting = self.0.lock();
        if waiting.overflowed {
            return Poll::Ready(PipeEvent::Overflow);
        }
        let Some(event) = waiting.ready.pop_front() else {
            waiting.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        waiting.ready_bytes -= weight(&event);
        Poll::Ready(event)
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
        let mut waiting = self.lock();
        if waiting.ready_bytes > waiting.most_ready && !waiting.overflowed {
            waiting.overflow();
            self.cancel();
        }
        if !waiting.overflowed {
            match event {
                Event::Progress(mut piece) => {
                    piece.canvas = piece.canvas.filter(|_| self.canvases);
                    waiting.put(prompt, piece);
                    if waiting.held_bytes > self.most_held {
                        waiting.release_all();
                    }
                }
                Event::Done(outcome) => waiting.end(prompt, outcome.map(|outcome| outcome.end)),
            }
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

impl Waiting {
    fn make_ready(&mut self, event: PipeEvent) {
        self.ready_bytes += weight(&event);
        self.ready.push_back(event);
    }

    /// Takes in a piece. It waits until its turn comes.
    fn put(&mut self, prompt: usize, piece: GenerationPiece) {
        let Some(order) = &mut self.orders[prompt] else {
            return self.make_ready(PipeEvent::Piece(prompt, piece));
        };
        let (choice, is_last) = (piece.choice, piece.finish_reason.is_some());
        self.held_bytes += weight_of(&piece);
        order.put(choice, piece);
        if is_last {
            order.end(choice);
        }
        while let Some(piece) = self.orders[prompt].as_mut().and_then(PieceOrder::next) {
            self.held_bytes -= weight_of(&piece);
            self.make_ready(PipeEvent::Piece(prompt, piece));
        }
    }

    /// Takes in the end of a prompt. Nothing of it follows, and nothing at all after an error, so that no piece waits any longer.
    fn end(&mut self, prompt: usize, end: Result<PromptEnd, EngineError>) {
        match end {
            Ok(_) => self.release(prompt),
            Err(_) => self.release_all(),
        }
        self.make_ready(PipeEvent::Ended(prompt, end));
    }

    /// Makes the pieces of all prompts ready.
    fn release_all(&mut self) {
        (0..self.orders.len()).for_each(|prompt| self.release(prompt));
    }

    /// Makes the pieces of a prompt ready, and all that follow. The reader had no chance to read them before.
    fn release(&mut self, prompt: usize) {
        for piece in self.orders[prompt].take().into_iter().flat_map(PieceOrder::into_pieces) {
            self.held_bytes -= weight_of(&piece);
            self.most_ready += weight_of(&piece);
            self.make_ready(PipeEvent::Piece(prompt, piece));
        }
    }

    /// Forgets everything, because the reader does not read.
    fn overflow(&mut self) {
        self.overflowed = true;
        self.ready.clear();
        self.orders.iter_mut().for_each(|order| *order = None);
    }
}

/// Bytes of an event until it is read.
fn weight(of: &PipeEvent) -> usize {
    match of {
        PipeEvent::Piece(_, piece) => weight_of(piece),
        PipeEvent::Ended(..) | PipeEvent::Overflow => size_of::<PipeEvent>(),
    }
}

/// Bytes of a piece until it is read. Prompts, canvases before their first pass and the token ids of a last piece do not count: each
/// is sent once, and the memory for the answer includes them.
fn weight_of(piece: &GenerationPiece) -> usize {
    let logprobs = |position: &PositionLogprobs| (1 + position.top.len()) * LOGPROB;
    let filled = match &piece.canvas {
        Some(CanvasPiece::Passed(pass)) => pass.filled.len() * size_of::<FilledMask>(),
        Some(CanvasPiece::Begun(_)) | None => 0,
    };
    size_of::<PipeEvent>() + piece.text.len() + piece.logprobs.as_ref().map_or(0, logprobs) + filled
}

#[cfg(test)]
mod tests {
    use redline_engine::DiffusionPass;

    use super::*;

    fn piece(text: &str) -> GenerationEvent {
        Event::Progress(GenerationPiece { text: text.to_owned(), ..GenerationPiece::default() })
    }

    fn next(reader: &PipeReader) -> Poll<PipeEvent> {
        reader.poll(&Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_reader_that_keeps_up_gets_everything_in_order() {
        let cancel = Cancel::new();
        let reader = PipeReader::new(1000, false, [1; 8].into_iter(), vec![cancel.clone()]);
        assert!(next(&reader).is_pending());
        for round in 0..96 {
            reader.0.put(round % 8, piece(&"x".repeat(600)));
            assert!(matches!(next(&reader), Poll::Ready(PipeEvent::Piece(at, _)) if at == round % 8));
        }
        reader.0.put(7, Event::Done(Err(EngineError::Stopped)));
        assert!(matches!(next(&reader), Poll::Ready(PipeEvent::Ended(7, Err(EngineError::Stopped)))));
        assert!(next(&reader).is_pending() && !cancel.is_cancelled());
        drop(reader);
        assert!(cancel.is_cancelled(), "a reader that leaves cancels");
    }

    #[test]
    fn a_reader_that_does_not_read_cancels_and_takes_no_more_memory() {
        let cancel = Cancel::new();
        let reader = PipeReader::new(1000, false, [1].into_iter(), vec![cancel.clone()]);
        reader.0.put(0, piece(&"x".repeat(5000)));
        assert!(!cancel.is_cancelled(), "one piece may be larger");
        for _ in 0..10 {
            reader.0.put(0, piece("x"));
        }
        assert!(cancel.is_cancelled());
        assert!(reader.0.lock().ready.is_empty());
        assert!(matches!(next(&reader), Poll::Ready(PipeEvent::Overflow)));
    }

    #[test]
    fn choices_come_in_turns_whenever_they_are_told() {
        let told = |choice: usize, text: &str, is_last: bool| {
            let finish_reason = is_last.then_some(redline_engine::FinishReason::Length);
            Event::Progress(GenerationPiece {
                choice,
                text: text.into(),
                finish_reason,
                ..GenerationPiece::default()
            })
        };
        let end = || Event::Done(Err(EngineError::Stopped));
        let reader = PipeReader::new(10_000, false, [2, 2].into_iter(), Vec::new());
        reader.0.put(0, told(1, "b1", false));
        reader.0.put(0, told(1, "b2", false));
        assert!(next(&reader).is_pending());
        // Another prompt does not wait.
        reader.0.put(1, told(0, "c1", false));
        reader.0.put(0, told(0, "a1", false));
        reader.0.put(0, told(0, "a2", true));
        reader.0.put(0, told(1, "b3", true));
        // What is held comes before an error.
        reader.0.put(1, told(0, "c2", true));
        reader.0.put(0, end());
        let mut texts = Vec::new();
        while let Poll::Ready(PipeEvent::Piece(_, piece)) = next(&reader) {
            texts.push(piece.text);
        }
        assert_eq!(texts, ["c1", "a1", "b1", "a2", "b2", "b3", "c2"]);
    }

    #[test]
    fn a_choice_that_is_far_ahead_does_not_wait_for_ever() {
        let cancel = Cancel::new();
        let reader = PipeReader::new(1000, false, [2].into_iter(), vec![cancel.clone()]);
        let ahead = || {
            Event::Progress(GenerationPiece {
                choice: 1,
                text: "x".repeat(600),
                ..GenerationPiece::default()
            })
        };
        reader.0.put(0, ahead());
        assert!(next(&reader).is_pending());
        // Now they take too much memory together, and no longer wait. The reader has as much time as for other pieces.
        for _ in 0..3 {
            reader.0.put(0, ahead());
        }
        for _ in 0..4 {
            assert!(matches!(next(&reader), Poll::Ready(PipeEvent::Piece(0, _))));
        }
        reader.0.put(0, piece("late"));
        assert!(matches!(next(&reader), Poll::Ready(PipeEvent::Piece(0, piece)) if piece.text == "late"));
        assert!(!cancel.is_cancelled());
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
            let reader =
                PipeReader::new(4 * size_of::<PipeEvent>(), canvases, [1].into_iter(), vec![cancel.clone()]);
            reader.0.put(0, pass());
            reader.0.put(0, pass());
            assert_eq!(cancel.is_cancelled(), cancelled);
            let Poll::Ready(heard) = next(&reader) else { panic!("nothing") };
            let told =
                matches!(heard, PipeEvent::Piece(_, GenerationPiece { canvas: None, new_tokens: 100, .. }));
            assert_eq!(told, !canvases);
        }
    }
}
