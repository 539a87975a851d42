//! What takes part in choosing the tokens of a continuation, beside the model: drafts of them, and constraints on them.

pub use crate::mode::sampler::Allowed;

/// Guesses how a continuation goes on. A guess changes no token: one that is right saves a pass, another costs the time of a row. The
/// engine's thread waits for it.
pub trait Drafter: Send {
    /// The next tokens of the prompt or of its continuation.
    fn push(&mut self, tokens: &[u32]);

    /// Tokens that may follow; all beyond the first `most` are ignored.
    fn draft(&mut self, most: usize) -> Vec<u32>;
}

/// Restricts the tokens of a continuation. It may be called on any thread of the engine, which waits for it.
pub trait Constraint: Send {
    /// The tokens that may come next. Nothing comes after an end token.
    fn allowed(&mut self) -> Allowed<'_>;

    /// Whether this token may come next.
    fn accepts(&mut self, token: u32) -> bool {
        self.allowed().contains(token)
    }

    /// A token was chosen.
    fn push(&mut self, token: u32);

    /// Whether the continuation is complete: it ends without an end token.
    fn is_complete(&self) -> bool {
        false
    }

    /// Why no token may come next, if that is no property of the continuation.
    fn failure(&self) -> Option<&str> {
        None
    }
}

/// What takes part in choosing the tokens of a request: for each of its continuations, counted from 0.
#[derive(Clone, Copy, Default)]
pub struct Guides<'a> {
    /// Makes what drafts tokens. It is not used without a KV cache, for a request with a receipt, or for a model with convolutions.
    pub drafter: Option<&'a dyn Fn(usize) -> Box<dyn Drafter>>,
    /// Makes what restricts tokens.
    pub constraint: Option<&'a dyn Fn(usize) -> Box<dyn Constraint>>,
}
