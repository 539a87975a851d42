//! What takes part in choosing the tokens of a continuation, beside the model: drafts of them, and constraints on them.

pub(crate) use crate::mode::sampler::Allowed;

/// Guesses how a continuation goes on. A guess changes no token: one that is right saves a pass, another costs the time of a row.
pub(crate) trait Drafter: Send {
    /// The next tokens of the prompt or of its continuation.
    fn push(&mut self, tokens: &[u32]);

    /// Tokens that may follow; all beyond the first `most` are ignored.
    fn draft(&mut self, most: usize) -> Vec<u32>;
}

/// Restricts the tokens of a continuation.
pub(crate) trait Constraint: Send {
    /// The tokens that may come next. Nothing comes after an end token.
    fn allowed(&mut self) -> Allowed<'_>;

    /// A token was chosen.
    fn push(&mut self, token: u32);
}
