//! The sequences of a request: how they are opened, and how they continue.

/// A sequence that a request opens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opening {
    /// All tokens so far; at least one.
    pub(crate) tokens: Vec<u32>,
    /// Position of the first row whose logits are wanted.
    pub(crate) wanted: usize,
    /// Of two sequences of one request, the one of higher rank is preempted.
    pub(crate) rank: u32,
    /// The parent, another sequence of the request that has been run, and the number of leading tokens shared with it.
    pub(crate) parent: Option<(u32, usize)>,
    /// Whether it may share its beginning with sequences of other requests, running or finished.
    pub(crate) shares: bool,
    /// Whether every new token runs the whole sequence again (the reference arm of the KV cache).
    pub(crate) afresh: bool,
    /// For a canvas: the rows whose logits are wanted, ascending; `wanted` is then unused. A canvas shares nothing.
    pub(crate) canvas: Option<Vec<usize>>,
    /// For a canvas: the number of its first tokens, which all rows see, if they see no others.
    pub(crate) keys: Option<usize>,
    /// For a pair of texts: the position of the first token that is of the second type.
    pub(crate) second_text: Option<usize>,
}

/// Rows of a canvas: a sequence whose rows all see each other, so that they cannot be run in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CanvasRows {
    /// The position of the first row.
    pub(crate) from: usize,
    /// The tokens of the rows: the whole canvas or a range of it. All other positions keep their keys and values from the last
    /// pass over the whole canvas; until the next such pass, the range stays the same.
    pub(crate) tokens: Vec<u32>,
    /// Positions of the rows whose logits are wanted, ascending.
    pub(crate) wanted: Vec<usize>,
}

/// What to do with a sequence that has been run to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Continue with this token, and then with drafts of those after it: the logits of all their rows are wanted. The scheduler may
    /// leave out some or all drafts. Their rows are read in one pass; the next updates say how many were right.
    Extend { token: u32, drafts: Vec<u32> },
    /// Its first so many drafts were right. Any other update takes back the drafts that are left.
    Accept(usize),
    /// Run rows of the canvas again, with these tokens.
    RunCanvas(CanvasRows),
    /// Hold it, so that others can begin with it, or until the next update.
    Hold,
    /// Hold it, and store its tokens in the prefix cache.
    HoldAndStore,
    /// End it, and store its tokens in the prefix cache.
    Store,
    /// End it.
    Drop,
}

/// Where the beginning of a sequence came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From its parent, or there is none.
    Parent,
    /// From the prefix cache, or from another sequence of its request.
    Kept,
    /// From a running sequence of another request.
    Running,
}

/// A sequence that has been run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) index: u32,
    /// Number of tokens that were already stored when the sequence was first admitted.
    pub(crate) reused: usize,
    /// Where these tokens came from.
    pub(crate) origin: Origin,
}
