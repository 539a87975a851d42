//! A grammar that follows an answer.

use std::sync::Arc;

use llguidance::Matcher as Inner;
use llguidance::toktrie::SimpleVob;

use crate::error::first_lines;

/// Follows an answer, and says which tokens may come next.
pub struct Matcher {
    inner: Inner,
    /// Tokens that end this answer, besides those of the vocabulary.
    ends: Arc<[u32]>,
    /// The tokens that may come next, once that has been asked for.
    mask: Option<SimpleVob>,
    /// Why no token may come.
    failure: Option<String>,
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matcher").field("failure", &self.failure).finish_non_exhaustive()
    }
}

impl Clone for Matcher {
    /// The copy shares nothing with the original.
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.deep_clone(),
            ends: self.ends.clone(),
            mask: self.mask.clone(),
            failure: self.failure.clone(),
        }
    }
}

impl Matcher {
    pub(crate) fn new(inner: Inner) -> Self {
        Self { inner, ends: Arc::new([]), mask: None, failure: None }
    }

    /// The same for an answer that these tokens end too: they may come wherever those of the vocabulary may.
    #[must_use]
    pub fn ending_with(self, ends: &[u32]) -> Self {
        Self { ends: ends.into(), ..self }
    }

    /// The tokens that may come next: bit `id % 32` of word `id / 32`. None if the answer is complete or cannot go on.
    pub fn mask(&mut self) -> &[u32] {
        if self.mask.is_none() && !self.inner.is_stopped() {
            match self.inner.compute_mask() {
                Ok(mut mask) => {
                    if self.may_end() {
                        let width = mask.len();
                        let known = self.ends.iter().filter(|id| (**id as usize) < width);
                        known.for_each(|id| mask.allow_token(*id));
                    }
                    self.mask = Some(mask);
                }
                Err(error) => self.failure = Some(first_lines(&error.to_string())),
            }
        }
        self.mask.as_ref().map_or(&[], SimpleVob::as_slice)
    }

    /// Whether this token may come next. Usually cheaper than [`Matcher::mask`].
    pub fn accepts(&mut self, token: u32) -> bool {
        match &self.mask {
            Some(mask) => (token as usize) < mask.len() && mask.is_allowed(token),
            None if self.ends.contains(&token) => !self.inner.is_stopped() && self.may_end(),
            None => {
                !self.inner.is_stopped() && self.inner.validate_tokens(&[token]).is_ok_and(|valid| valid == 1)
            }
        }
    }

    /// Whether a token that ends the text may come next.
    fn may_end(&mut self) -> bool {
        self.inner.is_accepting().unwrap_or(false)
    }

    /// A token was chosen: one that may come next.
    pub fn push(&mut self, token: u32) {
        self.mask = None;
        let end = if self.ends.contains(&token) { self.inner.tok_env().ok() } else { None };
        let token = end.map_or(token, |vocabulary| vocabulary.tok_trie().eos_token());
        if let Err(error) = self.inner.consume_token(token) {
            self.failure = Some(first_lines(&error.to_string()));
        }
    }

    /// Whether the answer is complete, and nothing may follow it.
    pub fn is_complete(&self) -> bool {
        self.failure.is_none() && self.inner.is_stopped() && self.inner.stop_reason().is_ok()
    }

    /// Why the answer cannot go on, if a limit was reached or a token was pushed that may not come.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}
