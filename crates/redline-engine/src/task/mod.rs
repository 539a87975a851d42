//! The engine's view of a request: sequences to run, and a reader of their logits.

pub(crate) mod logits;
pub(crate) mod sequence;

use crate::error::EngineError;
use crate::gauges::Progress;

use logits::Logits;
use sequence::{Done, Next, Opening};

/// What is made of a row. `L` stands for the labels of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowOutput<L> {
    /// Logits over the vocabulary.
    Vocabulary,
    /// Its final state, without the head.
    State,
    /// Logits over labels.
    Labels(L),
}

impl<L> RowOutput<L> {
    /// The same with something else for the labels.
    pub(crate) fn map<M>(self, of: impl FnOnce(L) -> M) -> RowOutput<M> {
        match self {
            Self::Vocabulary => RowOutput::Vocabulary,
            Self::State => RowOutput::State,
            Self::Labels(labels) => RowOutput::Labels(of(labels)),
        }
    }
}

/// A row whose logits are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowPlace {
    /// The sequence, numbered in the order in which the request opened them.
    pub(crate) index: u32,
    /// The position of the row's token.
    pub(crate) position: usize,
}

/// Measurements of a request's execution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ran {
    /// Time of arrival, in seconds on the engine's clock.
    pub(crate) arrived_s: f64,
    /// Seconds from arrival to the first pass.
    pub(crate) queue_s: f64,
    /// Seconds from arrival to the end.
    pub(crate) seconds: f64,
    /// Seconds in which the request read logits and decided how to continue; measured for canvases only.
    pub(crate) sampling_s: f64,
    /// Number of tokens run for the request.
    pub(crate) computed_tokens: usize,
    /// Number of plans that were missing for passes of this request.
    pub(crate) plan_misses: u64,
    /// Peak of allocated bytes in the process meanwhile; `None` if allocations are not counted or another request ran too.
    pub(crate) peak_memory_bytes: Option<u64>,
    /// Set if the request was cancelled or passed its deadline.
    pub(crate) ended: Option<Ended>,
}

/// Why a request ends before it is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The caller cancelled it.
    Cancelled,
    /// Its deadline passed.
    Late,
}

/// Returns how many of the given tokens the prefix cache holds under the given salt; `None` if the cache is off.
pub(crate) type Cached<'a> = &'a dyn Fn(&str, &[u32]) -> Option<usize>;

/// A request between its arrival and its answer. All methods are called on the engine's thread, except that [`Task::read`] may be called
/// on another thread of its team.
///
/// A preempted sequence is run again, but no row of it is read twice, and the rows of a sequence are read in order. Its end may
/// be reported more than once.
pub(crate) trait Task {
    /// The salt. Requests with the same salt share stored keys and values, if they share any.
    fn salt(&self) -> String {
        String::new()
    }

    /// Maximum number of tokens in any of its sequences.
    fn longest(&self) -> usize;

    /// Whether its sequences are canvases, each of which runs in one pass.
    fn has_canvases(&self) -> bool {
        false
    }

    /// The ids whose logits are wanted; `None`: the whole vocabulary.
    fn labels(&self) -> Option<&[u32]> {
        None
    }

    /// What is made of its rows. If these are logits over labels, [`Task::labels`] has the ids.
    fn output(&self) -> RowOutput<()>;

    /// Whether it reads the log-sum-exp of rows over the vocabulary.
    fn normalises(&self) -> bool {
        false
    }

    /// The prompts whose keys and values may be those of earlier requests, as far as they are known on arrival; at most so many.
    fn prompts(&self, _most: usize) -> Vec<Vec<u32>> {
        Vec::new()
    }

    /// Called once, before anything runs.
    fn start(&mut self, _cached: Cached<'_>) {}

    /// The rank of the sequence that [`Task::open`] returns next, if it may be lower than the rank of an open sequence.
    fn next_rank(&self) -> Option<u32> {
        None
    }

    /// Opens the next sequence, if there is one yet. Sequences are numbered from 0.
    fn open(&mut self) -> Option<Opening>;

    /// Reads the logits of some of its rows.
    fn read(&mut self, places: &[RowPlace], logits: Logits<'_>);

    /// Called `elapsed` seconds after arrival when some of its sequences were run to their end. Returns what to do with each.
    fn advance(&mut self, done: &[Done], elapsed: f64) -> Result<Vec<(u32, Next)>, EngineError>;

    /// Tokens and items so far.
    fn progress(&self) -> Progress;

    /// Returns whether the request is complete.
    fn finished(&self) -> bool;

    /// Sends the answer. It is no error if the caller is gone.
    fn answer(self: Box<Self>, outcome: Result<Ran, EngineError>);
}
