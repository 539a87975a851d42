//! What the scheduler knows of a sequence.

use redline_models::kv::{KvCache, PageStore, SeqId};

use super::cost::Work;

/// Which sequence: the number of its request, in the order of arrival, its rank within the request, and its number there.
/// The order of these is the order in which sequences keep their memory: a later one gives way to an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) task: u64,
    pub(crate) rank: u32,
    pub(crate) index: u32,
}

/// A sequence that a request wants to be run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opening {
    /// All its tokens so far, at least one.
    pub(crate) tokens: Vec<u32>,
    /// Logits are wanted of the rows from this position on.
    pub(crate) wanted: usize,
    /// Of two sequences of one request, the one of higher rank gives way.
    pub(crate) rank: u32,
    /// Begins like the first so many tokens of another sequence of the request, which has been run.
    pub(crate) parent: Option<(u32, usize)>,
    /// Sequences of other requests, running or gone, may share its beginning, and it theirs.
    pub(crate) shares: bool,
    /// After every new token, everything is run again (the reference arm of the KV cache).
    pub(crate) afresh: bool,
    /// Some of its tokens are stored already, and were retained.
    pub(crate) resumes: Option<SeqId>,
}

/// What becomes of a sequence of which everything was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It goes on with this token, whose logits are wanted.
    Extend(u32),
    /// It stays, for others to begin like it or until its request says more.
    Hold,
    /// It stays, and what it stored may be of use to other requests.
    HoldAndKeep,
    /// It ends; what it stored may be of use to later requests.
    Keep,
    /// It ends.
    Drop,
    /// It leaves the scheduler, but what it stored stays until the request releases it.
    Retain,
}

/// Where the beginning of a sequence came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From the sequence that its request named, or from nowhere.
    Parent,
    /// From what was left in the prefix cache, or from another sequence of its request.
    Kept,
    /// From a sequence of another request that runs.
    Running,
}

/// Some tokens of a sequence in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) key: Key,
    /// Tokens stored before.
    pub(crate) stored: usize,
    /// Tokens to run.
    pub(crate) tokens: usize,
    /// The first position of which logits are wanted.
    pub(crate) wanted: usize,
}

impl Piece {
    /// Positions of which logits are wanted.
    pub(crate) fn outputs(&self) -> std::ops::Range<usize> {
        self.wanted.clamp(self.stored, self.stored + self.tokens)..self.stored + self.tokens
    }

    /// What it adds to a pass.
    pub(super) fn work(&self) -> Work {
        Work::of(self.stored, self.tokens, self.outputs().len())
    }
}

/// A sequence that is open.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) tokens: Vec<u32>,
    pub(super) wanted: usize,
    pub(super) parent: Option<(u32, usize)>,
    pub(super) shares: bool,
    pub(super) afresh: bool,
    /// Nothing is to be run until its request says so.
    pub(super) held: bool,
    /// It has got tokens of its own: others that are run with it delay somebody who reads.
    pub(super) generates: bool,
    /// Its keys and values; `None` before it is admitted and after it gave way.
    pub(super) kv: Option<SeqId>,
    /// Tokens that were stored when it was first admitted, and where they came from.
    pub(super) began: Option<(usize, Origin)>,
}

impl Sequence {
    pub(super) fn new(opening: Opening) -> Self {
        let Opening { tokens, wanted, rank: _, parent, shares, afresh, resumes } = opening;
        Self {
            tokens,
            wanted,
            parent,
            shares,
            afresh,
            held: false,
            generates: false,
            kv: resumes,
            began: resumes.map(|_| (0, Origin::Parent)),
        }
    }

    /// Tokens stored.
    pub(super) fn stored<P: PageStore>(&self, kv: &KvCache<P>) -> usize {
        self.kv.map_or(0, |id| kv.tokens(id))
    }

    /// Whether only its newest token is to be run, as one that generates has it.
    pub(super) fn is_ready<P: PageStore>(&self, kv: &KvCache<P>) -> bool {
        self.generates && !self.held && self.kv.is_some() && self.stored(kv) + 1 == self.tokens.len()
    }

    /// Tokens that may come from elsewhere: those of which logits are wanted must be run.
    pub(super) fn most_shared(&self) -> usize {
        self.wanted.min(self.tokens.len())
    }
}
