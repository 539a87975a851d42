//! The scheduler's view of a sequence.

use std::sync::Arc;

use redline_kernels::op::kv::AttentionMask;
use redline_models::kv::{KvCache, PageStore, SeqId};

use super::cost::Work;
use crate::task::sequence::{CanvasRows, Opening, Origin};

/// Identifies a sequence: the place of its request in the order of requests (that of arrival, where one tenant asks), its rank within the
/// request, and its number there. Keys order the sequences: a later one is preempted for an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) task: u64,
    pub(crate) rank: u32,
    pub(crate) index: u32,
}

/// Consecutive tokens of a sequence that run in one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) key: Key,
    /// Position of the first token.
    pub(crate) start: usize,
    /// Number of tokens.
    pub(crate) tokens: usize,
    /// Attention mask of the tokens.
    pub(crate) attention: AttentionMask,
    pub(super) reads: Reads,
}

/// Rows whose logits are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// Rows from this position on.
    From(usize),
    /// Rows at these positions, ascending.
    Of(Arc<[usize]>),
}

impl Piece {
    /// Positions whose logits are wanted.
    pub(crate) fn outputs(&self) -> Vec<usize> {
        match &self.reads {
            Reads::From(first) => (self.first_output(*first)..self.start + self.tokens).collect(),
            Reads::Of(positions) => positions.to_vec(),
        }
    }

    fn first_output(&self, first: usize) -> usize {
        first.clamp(self.start, self.start + self.tokens)
    }

    /// The piece cut to its first `tokens` tokens.
    pub(super) fn cut(self, tokens: usize) -> Self {
        Self { tokens, ..self }
    }

    /// Whether it may be run in pieces.
    pub(super) fn divides(&self) -> bool {
        self.attention == AttentionMask::Causal
    }

    /// The work that it adds to a pass.
    pub(super) fn work(&self) -> Work {
        let outputs = match &self.reads {
            Reads::From(first) => self.start + self.tokens - self.first_output(*first),
            Reads::Of(positions) => positions.len(),
        };
        match self.attention {
            AttentionMask::Causal => Work::of(self.start, self.tokens, outputs),
            AttentionMask::Bidirectional(keys) => {
                Work { rows: self.tokens, pairs: self.tokens * keys, outputs }
            }
        }
    }
}

/// State of a sequence that is a canvas.
#[derive(Debug)]
pub(super) struct Canvas {
    /// Whether all rows have been run with the sequence's current tokens.
    is_current: bool,
    /// Rows to be run over the stored keys and values: the first position, and the tokens.
    patch: Option<(usize, Vec<u32>)>,
    /// Positions of the rows whose logits are wanted, within the patch if there is one.
    wanted: Arc<[usize]>,
    /// See [`Opening::keys`].
    keys: Option<usize>,
}

/// An open sequence.
#[derive(Debug)]
pub(super) struct Sequence {
    /// All tokens so far, and then drafts.
    pub(super) tokens: Vec<u32>,
    /// Number of drafts.
    drafts: usize,
    pub(super) wanted: usize,
    pub(super) parent: Option<(u32, usize)>,
    pub(super) shares: bool,
    pub(super) afresh: bool,
    pub(super) canvas: Option<Canvas>,
    pub(super) second_text: Option<usize>,
    /// Whether it has been run to its end. It does not run again until its request updates it, or until a sequence that begins
    /// with its tokens needs them after they were lost.
    pub(super) held: bool,
    /// Whether it has generated tokens. Prompts in the same pass delay it, and its caller is waiting.
    pub(super) generates: bool,
    /// Its keys and values; `None` before admission and after preemption.
    pub(super) kv: Option<SeqId>,
    /// Number of tokens that were already stored when it was first admitted, and where they came from.
    pub(super) reused: Option<(usize, Origin)>,
}

impl Sequence {
    pub(super) fn new(opening: Opening) -> Self {
        let Opening { tokens, wanted, rank: _, parent, shares, afresh, canvas, keys, second_text } = opening;
        let canvas =
            canvas.map(|wanted| Canvas { is_current: false, patch: None, wanted: wanted.into(), keys });
        Self {
            tokens,
            drafts: 0,
            wanted,
            parent,
            shares: shares && canvas.is_none(),
            afresh,
            canvas,
            second_text,
            held: false,
            generates: false,
            kv: None,
            reused: None,
        }
    }

    /// Number of stored tokens.
    pub(super) fn stored<P: PageStore>(&self, kv: &KvCache<P>) -> usize {
        match &self.canvas {
            Some(canvas) if canvas.is_current && self.kv.is_some() => self.tokens.len(),
            Some(_) => 0,
            None => self.kv.map_or(0, |id| kv.tokens(id)),
        }
    }

    /// All tokens that are left to run; `None` if there are none.
    pub(super) fn rest<P: PageStore>(&self, key: Key, kv: &KvCache<P>) -> Option<Piece> {
        let (start, end) = (self.stored(kv), self.tokens.len());
        let Some(canvas) = &self.canvas else {
            let is_prompt = self.shares && start + 1 != self.sure();
            let end = if is_prompt { kv.next_snapshot(start, end) } else { end };
            let reads = Reads::From(self.wanted);
            let piece = Piece { key, start, tokens: end - start, attention: AttentionMask::Causal, reads };
            return (start < end).then_some(piece);
        };
        let attention = AttentionMask::Bidirectional(canvas.keys.unwrap_or(end));
        let reads = Reads::Of(canvas.wanted.clone());
        match (start < end, &canvas.patch) {
            (true, None) => Some(Piece { key, start, tokens: end, attention, reads }),
            (true, Some(_)) => {
                Some(Piece { key, start, tokens: end, attention, reads: Reads::Of(Arc::default()) })
            }
            (false, Some((from, tokens))) => {
                Some(Piece { key, start: *from, tokens: tokens.len(), attention, reads })
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

    /// Records that a piece was run. Returns whether it was the last.
    pub(super) fn ran(&mut self, piece: &Piece) -> bool {
        let stored = piece.start + piece.tokens;
        let Some(canvas) = &mut self.canvas else {
            self.wanted = self.wanted.max(stored);
            return stored == self.tokens.len();
        };
        if piece.tokens == self.tokens.len() {
            canvas.is_current = true;
        } else {
            canvas.patch = None;
        }
        canvas.patch.is_none()
    }

    /// Schedules rows of the canvas.
    pub(super) fn run_canvas(&mut self, rows: CanvasRows) {
        let Some(canvas) = &mut self.canvas else { return };
        canvas.wanted = rows.wanted.into();
        if rows.tokens.len() == self.tokens.len() {
            (self.tokens, canvas.is_current, canvas.patch) = (rows.tokens, false, None);
        } else {
            canvas.patch = Some((rows.from, rows.tokens));
        }
        self.held = false;
    }

    /// Continues with a token and drafts of those after it.
    pub(super) fn extend(&mut self, token: u32, drafts: &[u32]) {
        self.wanted = self.tokens.len();
        self.tokens.push(token);
        self.tokens.extend_from_slice(drafts);
        self.drafts = drafts.len();
        self.held = false;
        self.generates = true;
    }

    /// Number of tokens that are no drafts.
    pub(super) fn sure(&self) -> usize {
        self.tokens.len() - self.drafts
    }

    /// Number of drafts.
    pub(super) fn drafts(&self) -> usize {
        self.drafts
    }

    /// The first drafts become tokens: `right` of them, or all if there are fewer. Returns their number.
    pub(super) fn accept(&mut self, right: usize) -> usize {
        let right = right.min(self.drafts);
        self.drafts -= right;
        right
    }

    /// Keeps up to `most` drafts.
    pub(super) fn cut_drafts(&mut self, most: usize) {
        let most = most.min(self.drafts);
        self.tokens.truncate(self.sure() + most);
        self.drafts = most;
    }

    /// Whether a piece is the next token of a generating sequence, and not a part that is run again after preemption.
    pub(super) fn advances(&self, piece: &Piece) -> bool {
        self.generates && piece.start + 1 == self.sure()
    }

    /// Takes its keys and values away, and its drafts. A held sequence runs again only when it is needed.
    pub(super) fn give_way(&mut self) -> Option<SeqId> {
        self.cut_drafts(0);
        if let Some(canvas) = &mut self.canvas {
            canvas.is_current = false;
        }
        self.kv.take()
    }

    /// Whether only its newest token and drafts are left to run, as for a generating sequence.
    pub(super) fn is_ready<P: PageStore>(&self, kv: &KvCache<P>) -> bool {
        self.generates && !self.held && self.kv.is_some() && self.stored(kv) + 1 == self.sure()
    }

    /// Number of tokens that may be taken from elsewhere; tokens whose logits are wanted must be run.
    pub(super) fn most_shared(&self) -> usize {
        self.wanted.min(self.tokens.len())
    }
}
