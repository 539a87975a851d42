//! What the scheduler knows of a sequence.

use std::sync::Arc;

use redline_kernels::op::kv::Sight;
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
    /// It is a canvas, of which the logits of these rows are wanted, ascending; `wanted` says nothing then. A canvas shares
    /// nothing.
    pub(crate) canvas: Option<Vec<usize>>,
}

/// Rows of a canvas: of a sequence whose rows all see each other, so that they cannot be run in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drawing {
    /// The position of the first row.
    pub(crate) from: usize,
    /// Their tokens: all of the canvas, or some within. Then the rest keeps the keys and values that it had in the last pass
    /// over all; until the next such pass, it is always the same rows that are drawn.
    pub(crate) tokens: Vec<u32>,
    /// Positions of rows whose logits are wanted, ascending.
    pub(crate) wanted: Vec<usize>,
}

/// What becomes of a sequence of which everything was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It goes on with this token, whose logits are wanted.
    Extend(u32),
    /// Rows of a canvas are run again, with these tokens.
    Draw(Drawing),
    /// It stays, for others to begin like it or until its request says more.
    Hold,
    /// It stays, and what it stored may be of use to other requests.
    HoldAndKeep,
    /// It ends; what it stored may be of use to later requests.
    Keep,
    /// It ends.
    Drop,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) key: Key,
    /// The position of the first.
    pub(crate) start: usize,
    /// How many.
    pub(crate) tokens: usize,
    /// What they see.
    pub(crate) sight: Sight,
    pub(super) reads: Reads,
}

/// Rows whose logits are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// Those from this position on.
    From(usize),
    /// Those of these positions, ascending.
    Of(Arc<[usize]>),
}

impl Piece {
    /// Positions of which logits are wanted.
    pub(crate) fn outputs(&self) -> Vec<usize> {
        match &self.reads {
            Reads::From(first) => (self.first_output(*first)..self.start + self.tokens).collect(),
            Reads::Of(positions) => positions.to_vec(),
        }
    }

    fn first_output(&self, first: usize) -> usize {
        first.clamp(self.start, self.start + self.tokens)
    }

    /// Its first tokens only.
    pub(super) fn cut(self, tokens: usize) -> Self {
        Self { tokens, ..self }
    }

    /// Whether it may be run in pieces.
    pub(super) fn divides(&self) -> bool {
        self.sight == Sight::Before
    }

    /// What it adds to a pass.
    pub(super) fn work(&self) -> Work {
        let outputs = match &self.reads {
            Reads::From(first) => self.start + self.tokens - self.first_output(*first),
            Reads::Of(positions) => positions.len(),
        };
        match self.sight {
            Sight::Before => Work::of(self.start, self.tokens, outputs),
            Sight::All(keys) => Work { rows: self.tokens, pairs: self.tokens * keys, outputs },
        }
    }
}

/// What a sequence has that is a canvas.
#[derive(Debug)]
pub(super) struct Canvas {
    /// All rows have been run, with the sequence's tokens, since they came.
    drawn: bool,
    /// Rows to be run over what that left: the first position, and tokens.
    patch: Option<(usize, Vec<u32>)>,
    /// Positions of rows whose logits are wanted: of the patch, where there is one.
    wanted: Arc<[usize]>,
}

/// A sequence that is open.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) tokens: Vec<u32>,
    pub(super) wanted: usize,
    pub(super) parent: Option<(u32, usize)>,
    pub(super) shares: bool,
    pub(super) afresh: bool,
    pub(super) canvas: Option<Canvas>,
    /// It has been run to its end. Nothing is to be run until its request says so, or until a sequence that begins like it
    /// needs what it stored and lost.
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
        let Opening { tokens, wanted, rank: _, parent, shares, afresh, canvas } = opening;
        let canvas = canvas.map(|wanted| Canvas { drawn: false, patch: None, wanted: wanted.into() });
        Self {
            tokens,
            wanted,
            parent,
            shares: shares && canvas.is_none(),
            afresh,
            canvas,
            held: false,
            generates: false,
            kv: None,
            began: None,
        }
    }

    /// Tokens stored.
    pub(super) fn stored<P: PageStore>(&self, kv: &KvCache<P>) -> usize {
        match &self.canvas {
            Some(canvas) if canvas.drawn && self.kv.is_some() => self.tokens.len(),
            Some(_) => 0,
            None => self.kv.map_or(0, |id| kv.tokens(id)),
        }
    }

    /// All that is left to be run, or that can be run next; `None` where nothing is.
    pub(super) fn rest<P: PageStore>(&self, key: Key, kv: &KvCache<P>) -> Option<Piece> {
        let (start, end) = (self.stored(kv), self.tokens.len());
        let Some(canvas) = &self.canvas else {
            let reads = Reads::From(self.wanted);
            let piece = Piece { key, start, tokens: end - start, sight: Sight::Before, reads };
            return (start < end).then_some(piece);
        };
        let sight = Sight::All(end);
        let reads = Reads::Of(canvas.wanted.clone());
        match (start < end, &canvas.patch) {
            (true, None) => Some(Piece { key, start, tokens: end, sight, reads }),
            (true, Some(_)) => {
                Some(Piece { key, start, tokens: end, sight, reads: Reads::Of(Arc::default()) })
            }
            (false, Some((from, tokens))) => {
                Some(Piece { key, start: *from, tokens: tokens.len(), sight, reads })
            }
            (false, None) => None,
        }
    }

    /// The tokens of a piece.
    pub(super) fn tokens_of(&self, piece: &Piece) -> &[u32] {
        match self.canvas.as_ref().and_then(|canvas| canvas.patch.as_ref()) {
            Some((_, tokens)) if piece.tokens < self.tokens.len() => tokens,
            _ => &self.tokens[piece.start..piece.start + piece.tokens],
        }
    }

    /// A piece was run; whether that was the last.
    pub(super) fn ran(&mut self, piece: &Piece) -> bool {
        let stored = piece.start + piece.tokens;
        let Some(canvas) = &mut self.canvas else {
            self.wanted = self.wanted.max(stored);
            return stored == self.tokens.len();
        };
        if piece.tokens == self.tokens.len() {
            canvas.drawn = true;
        } else {
            canvas.patch = None;
        }
        canvas.patch.is_none()
    }

    /// Rows of the canvas are to be run.
    pub(super) fn draw(&mut self, drawing: Drawing) {
        let Some(canvas) = &mut self.canvas else { return };
        canvas.wanted = drawing.wanted.into();
        if drawing.tokens.len() == self.tokens.len() {
            (self.tokens, canvas.drawn, canvas.patch) = (drawing.tokens, false, None);
        } else {
            canvas.patch = Some((drawing.from, drawing.tokens));
        }
        self.held = false;
    }

    /// Its memory is taken away. If it is held, it is run again only when it is needed again.
    pub(super) fn give_way(&mut self) -> Option<SeqId> {
        if let Some(canvas) = &mut self.canvas {
            canvas.drawn = false;
        }
        self.kv.take()
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
