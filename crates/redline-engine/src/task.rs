//! What a request is to the engine: sequences to be run, and somebody who reads their logits.

use crate::error::EngineError;
use crate::machine::Logits;
use crate::scheduler::{Done, Next, Opening};

/// What logits a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// Over the labels it named.
    Labels,
    /// Over the vocabulary.
    Vocabulary {
        /// With the log-sum-exp of every row.
        normalise: bool,
    },
}

/// A row whose logits are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowPlace {
    /// The sequence, by the order in which the request opened them.
    pub(crate) index: u32,
    /// The position of the row's token.
    pub(crate) position: usize,
}

/// What running a request took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ran {
    /// Its arrival, seconds on the engine's clock.
    pub(crate) arrived_s: f64,
    /// Seconds from its arrival to its first pass.
    pub(crate) queue_s: f64,
    /// Seconds from its arrival to its end.
    pub(crate) seconds: f64,
    /// Tokens run for it.
    pub(crate) computed_tokens: usize,
    /// Plans that had to be made for passes it took part in.
    pub(crate) plan_misses: u64,
    /// Most bytes that the process had allocated meanwhile; `None` if they are not counted, or if another request ran too.
    pub(crate) peak_memory_bytes: Option<u64>,
    /// It was cancelled, or its time was over.
    pub(crate) ended: Option<Ended>,
}

/// Why a request ends before it is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its caller cancelled.
    Cancelled,
    /// Its deadline passed.
    Late,
}

/// How much of some tokens, under some salt, the prefix cache has; `None` where it is off.
pub(crate) type Cached<'a> = &'a dyn Fn(&str, &[u32]) -> Option<usize>;

/// A request between its arrival and its answer. All calls come from the engine's thread.
///
/// A sequence that gave way to another is run again, but no row of it is read twice, and rows of a sequence are read in
/// order; that it has been run to its end may be told again.
pub(crate) trait Task {
    /// Requests with the same salt share what they store, if they share at all.
    fn salt(&self) -> String {
        String::new()
    }

    /// Tokens of the longest sequence it may come to.
    fn longest(&self) -> usize;

    /// Whether its sequences are canvases, each of which is run in one pass.
    fn draws(&self) -> bool {
        false
    }

    /// The ids whose logits alone are wanted; `None`: those of the vocabulary.
    fn labels(&self) -> Option<&[u32]> {
        None
    }

    /// What logits of its rows are evaluated over.
    fn head(&self) -> Head;

    /// Called once, before anything runs.
    fn start(&mut self, _cached: Cached<'_>) {}

    /// The rank of the sequence that [`Task::open`] gives next, where it may be lower than that of an open sequence.
    fn next_rank(&self) -> Option<u32> {
        None
    }

    /// The next sequence, if it has one by now. They are numbered from 0.
    fn open(&mut self) -> Option<Opening>;

    /// Reads logits.
    fn read(&mut self, places: &[RowPlace], logits: Logits<'_>);

    /// Some of its sequences were run to their end, `elapsed` seconds after its arrival: what becomes of which.
    fn advance(&mut self, done: &[Done], elapsed: f64) -> Result<Vec<(u32, Next)>, EngineError>;

    /// Whether there is nothing left to do.
    fn finished(&self) -> bool;

    /// Answers; a caller that went away is no error.
    fn answer(self: Box<Self>, outcome: Result<Ran, EngineError>);
}
