//! Keys and values: of the sequences that run, and of those that earlier requests left.
//!
//! What earlier requests left is room that is lent: it goes when running sequences need it, the least recently used first of
//! the salts that keep more than their share (see `prefix_cache`).

use redline_models::kv::{KvCache, KvError, PageStore, SeqId};

use crate::prefix_cache::PrefixCache;

/// Fewer tokens are not worth the page they would hold.
const LEAST_KEPT: usize = 16;

/// See the module.
pub(crate) struct Cache<P> {
    pub(crate) kv: KvCache<P>,
    /// What earlier requests left, where it is kept.
    prefixes: Option<PrefixCache<SeqId>>,
}

impl<P: PageStore> Cache<P> {
    /// An empty cache; `keeps` says whether requests leave anything.
    pub(crate) fn new(kv: KvCache<P>, keeps: bool) -> Self {
        Self { kv, prefixes: keeps.then(PrefixCache::new) }
    }

    /// Makes room for `more` tokens of a sequence.
    pub(crate) fn reserve(&mut self, sequence: SeqId, more: usize) -> Result<(), KvError> {
        loop {
            let Err(error) = self.kv.reserve(sequence, more) else { return Ok(()) };
            if !self.give_way() {
                return Err(error);
            }
        }
    }

    /// Lets go of a sequence that an earlier request left; whether there was any.
    fn give_way(&mut self) -> bool {
        let kept = self.prefixes.as_mut().and_then(PrefixCache::evict);
        if let Some(kept) = kept {
            self.kv.release(kept);
        }
        kept.is_some()
    }

    /// How many of these tokens earlier requests left; `None` where nothing is kept.
    pub(crate) fn matching(&self, salt: &str, tokens: &[u32]) -> Option<usize> {
        self.prefixes.as_ref().map(|prefixes| prefixes.matching(salt, tokens))
    }

    /// A sequence that begins with as many of these tokens as earlier requests left.
    pub(crate) fn begin(&mut self, salt: &str, tokens: &[u32]) -> SeqId {
        match self.prefixes.as_mut().and_then(|prefixes| prefixes.find(salt, tokens)) {
            Some((kept, matched)) => self.kv.fork(kept, matched),
            None => self.kv.create(),
        }
    }

    /// Keeps what a sequence has stored, of these tokens, for later requests.
    pub(crate) fn keep(&mut self, salt: &str, tokens: &[u32], sequence: SeqId) {
        let tokens = &tokens[..tokens.len().min(self.kv.tokens(sequence))];
        let Some(prefixes) = self.prefixes.as_mut().filter(|_| tokens.len() >= LEAST_KEPT) else { return };
        let kept = self.kv.fork(sequence, tokens.len());
        if let Some(unneeded) = prefixes.insert(salt, tokens, kept) {
            self.kv.release(unneeded);
        }
    }

    /// How many sequences of earlier requests are kept.
    pub(crate) fn kept(&self) -> usize {
        self.prefixes.as_ref().map_or(0, PrefixCache::len)
    }

    /// Lets go of everything that earlier requests left.
    pub(crate) fn forget(&mut self) {
        while self.give_way() {}
    }
}
