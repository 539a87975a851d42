//! A bounded pipe from the engine to the body of a streamed answer. What comes out of it is in an order that does not depend on what
//! else the engine runs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use redline_api::foreign::{CanvasPiece, GenerationEvent, GenerationPiece, GenerationTicket, PromptEnd};
use redline_engine::{Cancel, EngineError, Event, FilledMask, PositionLogprobs};

use crate::order::PieceOrder;

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
    /// Number of choices of a prompt.
    choices: usize,
    cancels: Vec<Cancel>,
}

/// What waits to be read.
struct Waiting {
    heard: VecDeque<Heard>,
    /// Pieces whose turn has not come.
    order: PieceOrder<Heard>,
    /// How the prompts ended whose pieces are not all in `heard`.
    ends: Vec<Option<Heard>>,
    /// Whether pieces no longer wait for their turn.
    is_released: bool,
    bytes: usize,
    overflowed: bool,
    waker: Option<Waker>,
}

impl PipeReader {
    /// Connects tickets, each of so many choices, with a pipe that holds this number of bytes, and one piece more.
    /// Unless `canvases` is set, pieces say nothing about canvases.
    pub(crate) fn of(tickets: Vec<GenerationTicket>, choices: usize, most: usize, canvases: bool) -> Self {
        let cancels = tickets.iter().map(GenerationTicket::canceller).collect();
        let reader = Self::new(most, canvases, (tickets.len(), choices), cancels);
        for (prompt, ticket) in tickets.into_iter().enumerate() {
            let pipe = reader.0.clone();
            ticket.send_to(move |event| pipe.put(prompt, event));
        }
        reader
    }

    fn new(most: usize, canvases: bool, (prompts, choices): (usize, usize), cancels: Vec<Cancel>) -> Self {
        let waiting = Waiting {
            heard: VecDeque::new(),
            order: PieceOrder::new(prompts * choices),
            ends: (0..prompts).map(|_| None).collect(),
            is_released: false,
            bytes: 0,
            overflowed: false,
            waker: None,
        };
        Self(Arc::new(Pipe { waiting: Mutex::new(waiting), most, canvases, choices, cancels }))
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
            if waiting.heard.is_empty() {
                waiting.release();
            } else {
                waiting.overflowed = true;
                waiting.clear();
                self.cancel();
            }
        }
        if !waiting.overflowed {
            waiting.bytes += weight(&heard);
            waiting.put(heard, self.choices);
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
    /// Takes in what was heard, and lets out what has its turn.
    fn put(&mut self, heard: Heard, choices: usize) {
        match heard {
            Heard::Piece(prompt, piece) if !self.is_released => {
                let text = prompt * choices + piece.choice;
                let is_last = piece.finish_reason.is_some();
                self.order.put(text, Heard::Piece(prompt, piece));
                if is_last {
                    self.order.end(text);
                }
            }
            Heard::Ended(prompt, Ok(end)) if !self.is_released && !end.cancelled => {
                (0..choices).for_each(|choice| self.order.end(prompt * choices + choice));
                self.ends[prompt] = Some(Heard::Ended(prompt, Ok(end)));
            }
            // An error waits for nothing.
            heard => return self.heard.push_back(heard),
        }
        while let Some(next) = self.order.next() {
            self.heard.push_back(next);
        }
        for (prompt, end) in self.ends.iter_mut().enumerate() {
            let mut texts = prompt * choices..(prompt + 1) * choices;
            if end.is_some() && texts.all(|text| self.order.is_over(text)) {
                self.heard.extend(end.take());
            }
        }
    }

    /// Lets out everything: one text is so far ahead of others that its pieces take too much memory.
    fn release(&mut self) {
        self.is_released = true;
        self.heard.extend(self.order.release());
        self.heard.extend(self.ends.iter_mut().filter_map(Option::take));
    }

    /// Forgets everything.
    fn clear(&mut self) {
        self.heard.clear();
        self.order.release().for_each(drop);
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
        let reader = PipeReader::new(1000, false, (8, 1), vec![cancel.clone()]);
        assert!(next(&reader).is_pending());
        for round in 0..96 {
            reader.0.put(round % 8, piece(&"x".repeat(600)));
            assert!(matches!(next(&reader), Poll::Ready(Heard::Piece(at, _)) if at == round % 8));
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
        let reader = PipeReader::new(1000, false, (1, 1), vec![cancel.clone()]);
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
        let reader = PipeReader::new(10_000, false, (2, 2), Vec::new());
        // The second prompt, and in it the second choice, is told first.
        reader.0.put(1, told(1, "d1", false));
        reader.0.put(1, told(1, "d2", true));
        reader.0.put(1, told(0, "c1", true));
        assert!(next(&reader).is_pending());
        reader.0.put(0, told(0, "a1", false));
        reader.0.put(0, told(0, "a2", true));
        reader.0.put(0, told(1, "b1", true));
        reader.0.put(0, end());
        let texts = std::iter::from_fn(|| match next(&reader) {
            Poll::Ready(Heard::Piece(_, piece)) => Some(piece.text),
            _ => None,
        });
        assert_eq!(texts.collect::<Vec<_>>(), ["a1", "b1", "c1", "d1", "a2", "d2"]);
    }

    #[test]
    fn a_choice_that_is_far_ahead_does_not_wait_for_ever() {
        let cancel = Cancel::new();
        let reader = PipeReader::new(1000, false, (1, 2), vec![cancel.clone()]);
        let ahead = || {
            Event::Progress(GenerationPiece {
                choice: 1,
                text: "x".repeat(600),
                ..GenerationPiece::default()
            })
        };
        reader.0.put(0, ahead());
        reader.0.put(0, ahead());
        assert!(next(&reader).is_pending());
        reader.0.put(0, ahead());
        for _ in 0..3 {
            assert!(matches!(next(&reader), Poll::Ready(Heard::Piece(0, _))));
        }
        reader.0.put(0, piece("late"));
        assert!(matches!(next(&reader), Poll::Ready(Heard::Piece(0, piece)) if piece.text == "late"));
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
            let reader = PipeReader::new(4 * size_of::<Heard>(), canvases, (1, 1), vec![cancel.clone()]);
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
