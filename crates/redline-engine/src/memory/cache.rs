//! Keys and values of running sequences and of earlier requests.
//!
//! Running sequences take precedence: when they need room, sequences of earlier requests are evicted, the least recently used
//! first among the salts that keep more than their share (see `prefix_cache`).

use redline_models::kv::{KvCache, KvError, PageStore, SeqId};

use crate::memory::prefix_cache::PrefixCache;

/// Minimum number of tokens to keep; fewer are not worth the page they would occupy.
const LEAST_KEPT: usize = 16;

/// The KV cache, with the sequences that earlier requests left in it.
pub(crate) struct Cache<P> {
    pub(crate) kv: KvCache<P>,
    /// Sequences of earlier requests, if they are kept.
    prefixes: Option<PrefixCache<SeqId>>,
}

impl<P: PageStore> Cache<P> {
    /// Creates an empty cache; `keeps` says whether it keeps sequences of finished requests.
    pub(crate) fn new(kv: KvCache<P>, keeps: bool) -> Self {
        Self { kv, prefixes: keeps.then(PrefixCache::new) }
    }

    /// Reserves room for `more` tokens of a sequence, evicting kept sequences if needed.
    pub(crate) fn reserve(&mut self, sequence: SeqId, more: usize) -> Result<(), KvError> {
        loop {
            let Err(error) = self.kv.reserve(sequence, more) else { return Ok(()) };
            if !self.give_way() {
                return Err(error);
            }
        }
    }

    /// Evicts one kept sequence. Returns whether there was any.
    fn give_way(&mut self) -> bool {
        let kept = self.prefixes.as_mut().and_then(PrefixCache::evict);
        if let Some(kept) = kept {
            self.kv.release(kept);
        }
        kept.is_some()
    }

    /// Number of leading tokens that earlier requests have stored; `None` if nothing is kept.
    pub(crate) fn matching(&self, salt: &str, tokens: &[u32]) -> Option<usize> {
        self.prefixes.as_ref().map(|prefixes| prefixes.matching(salt, tokens))
    }

    /// Creates a sequence that begins with the longest stored prefix of these tokens.
    pub(crate) fn begin(&mut self, salt: &str, tokens: &[u32]) -> SeqId {
        match self.prefixes.as_mut().and_then(|prefixes| prefixes.find(salt, tokens)) {
            Some((kept, matched)) => self.kv.fork(kept, matched),
            None => self.kv.create(),
        }
    }

    /// Keeps a sequence for later requests, with as many of these tokens as it has stored.
    pub(crate) fn keep(&mut self, salt: &str, tokens: &[u32], sequence: SeqId) {
        let tokens = &tokens[..tokens.len().min(self.kv.tokens(sequence))];
        let Some(prefixes) = self.prefixes.as_mut().filter(|_| tokens.len() >= LEAST_KEPT) else { return };
        let kept = self.kv.fork(sequence, tokens.len());
        if let Some(unneeded) = prefixes.insert(salt, tokens, kept) {
            self.kv.release(unneeded);
        }
    }

    /// Number of kept sequences.
    pub(crate) fn kept(&self) -> usize {
        self.prefixes.as_ref().map_or(0, PrefixCache::len)
    }

    /// Evicts all kept sequences.
    pub(crate) fn forget(&mut self) {
        while self.give_way() {}
    }
}
