//! Answers of simulated requests, after their contents have been checked.

use std::cell::RefCell;

use crate::answer::ticket::{Event, Ticket};
use crate::error::EngineError;

/// Upper bounds of a request's work, as if each of its sequences ran alone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// Number of tokens of all its sequences, or of rows of all passes over its canvases.
    pub(super) tokens: usize,
    /// Number of sequences, or of passes over canvases.
    pub(super) sequences: usize,
    /// Number of new tokens.
    pub(super) grown: usize,
}

/// How an answer ends.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The answer is complete.
    Whole,
    /// The answer is cut short.
    Part,
    Failed(EngineError),
}

/// An answer with correct contents.
pub(super) struct Checked {
    pub(super) outcome: Outcome,
    /// The prompts that may have found tokens in the prefix cache.
    pub(super) prompts: Vec<Vec<u32>>,
    pub(super) cached_tokens: usize,
    /// Number of tokens that were run or cached, if every one is exactly one of the two.
    pub(super) run_or_cached: Option<usize>,
}

impl Checked {
    pub(super) fn of(outcome: Outcome) -> Self {
        Self { outcome, prompts: Vec::new(), cached_tokens: 0, run_or_cached: None }
    }

    pub(super) fn failed(error: EngineError) -> Self {
        Self::of(Outcome::Failed(error))
    }
}

/// The answer, if it has arrived; `check` inspects its contents.
pub(super) fn answered<O, P>(
    ticket: &RefCell<Ticket<O, P>>,
    check: impl FnOnce(&O) -> Result<Checked, String>,
) -> Result<Option<Checked>, String> {
    let mut ticket = ticket.borrow_mut();
    while ticket.is_ready() {
        match ticket.event() {
            Some(Event::Progress(_)) => {}
            Some(Event::Done(Ok(outcome))) => return check(&outcome).map(Some),
            Some(Event::Done(Err(EngineError::Stopped))) | None => return Err("a request was lost".into()),
            Some(Event::Done(Err(error))) => return Ok(Some(Checked::failed(error))),
        }
    }
    Ok(None)
}
