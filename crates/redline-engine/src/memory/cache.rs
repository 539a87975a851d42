//! Keys and values of running sequences, of earlier requests, and of the windows of measured texts.
//!
//! Running sequences take precedence: when they need room, sequences of earlier requests are evicted, the least recently used
//! first among the namespaces that keep more than their share (see `prefix_cache`); then windows that wait for their next pass, and the
//! snapshots of running sequences.
//! Sequences of earlier requests are evicted as well before the cache grows beyond a given size: memory that has been used costs
//! nothing, and new memory costs the time in which the system clears it.

use std::collections::BTreeMap;

use redline_kernels::op::kv::PAGE_TOKENS;
use redline_models::kv::{KvCache, KvError, PageStore, SeqId};
use redline_weights::PageKey;

use crate::memory::pages::{NextPage, Unsaved};
use crate::memory::prefix_cache::PrefixCache;

/// Minimum number of tokens to keep; fewer are not worth the page they would occupy.
const MIN_KEPT: usize = 16;

/// A window between two of its passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WindowId(u64);

/// The KV cache, with the sequences that earlier requests left in it.
pub(crate) struct Cache<P> {
    pub(crate) kv: KvCache<P>,
    /// Sequences of earlier requests, if they are kept.
    prefixes: Option<PrefixCache<SeqId>>,
    /// Number of pages beyond which the cache grows for running sequences and windows only.
    most_kept: usize,
    /// Windows that still have their keys and values, the oldest first.
    windows: BTreeMap<WindowId, SeqId>,
    /// Number of windows that were named so far.
    named_windows: u64,
    /// Number of kept sequences that were evicted so far.
    evictions: u64,
    /// Pages of kept sequences that are still to be saved, if any are.
    unsaved: Option<Unsaved>,
    /// A sequence of pages that were saved, without the state after them.
    importing: Option<SeqId>,
}

impl<P: PageStore> Cache<P> {
    /// Creates an empty cache. It keeps sequences of finished requests as long as that takes no more than `most_kept` pages in all;
    /// none if there is no such number.
    pub(crate) fn new(kv: KvCache<P>, most_kept: Option<usize>) -> Self {
        let prefixes = most_kept.map(|_| PrefixCache::new());
        Self {
            kv,
            prefixes,
            most_kept: most_kept.unwrap_or(0),
            windows: BTreeMap::new(),
            named_windows: 0,
            evictions: 0,
            unsaved: None,
            importing: None,
        }
    }

    /// Lets the pages of kept sequences be saved.
    pub(crate) fn saving(self, unsaved: Option<Unsaved>) -> Self {
        let states = self.kv.state_shape();
        Self { unsaved: unsaved.map(|unsaved| unsaved.with_states(states)), ..self }
    }

    /// The pages that are still to be saved, if any are.
    pub(crate) fn unsaved(&mut self) -> Option<&mut Unsaved> {
        self.unsaved.as_mut()
    }

    /// Reserves room for `more` tokens of a sequence, evicting kept sequences and windows if needed.
    pub(crate) fn reserve(&mut self, sequence: SeqId, more: usize) -> Result<(), KvError> {
        loop {
            let Err(error) = self.reserve_by_eviction(sequence, more) else { return Ok(()) };
            if !self.stop_importing() && !self.release_oldest_window() && !self.kv.forget_snapshot() {
                return Err(error);
            }
        }
    }

    /// Reserves room for `more` tokens of a sequence, evicting kept sequences if needed.
    fn reserve_by_eviction(&mut self, sequence: SeqId, more: usize) -> Result<(), KvError> {
        loop {
            let growth = self.kv.growth(sequence, more);
            if growth > 0 && self.kv.allocated() + growth > self.most_kept && self.evict() {
                continue;
            }
            let Err(error) = self.kv.reserve(sequence, more) else { return Ok(()) };
            if !self.evict() {
                return Err(error);
            }
        }
    }

    /// Reserves room for `more` tokens of a sequence if that evicts nothing, and takes no memory that kept sequences may have. Returns
    /// whether there is such room.
    pub(crate) fn reserve_free(&mut self, sequence: SeqId, more: usize) -> bool {
        let growth = self.kv.growth(sequence, more);
        let is_free = growth == 0 || self.kv.allocated() + growth <= self.most_kept;
        is_free && self.kv.reserve(sequence, more).is_ok()
    }

    /// Evicts one kept sequence. Returns whether there was any.
    fn evict(&mut self) -> bool {
        let kept = self.prefixes.as_mut().and_then(PrefixCache::evict);
        if let Some(kept) = kept {
            self.kv.release(kept);
            self.evictions += 1;
        }
        kept.is_some()
    }

    /// Leaves the keys and values of a window until its next pass, or until their room is needed.
    pub(crate) fn leave_window(&mut self, sequence: SeqId) -> WindowId {
        let window = WindowId(self.named_windows);
        self.named_windows += 1;
        self.windows.insert(window, sequence);
        window
    }

    /// Takes the sequence of a window, if it still has its keys and values.
    pub(crate) fn take_window(&mut self, window: WindowId) -> Option<SeqId> {
        self.windows.remove(&window)
    }

    /// Releases the oldest window. Returns whether there was any.
    fn release_oldest_window(&mut self) -> bool {
        let oldest = self.windows.pop_first();
        if let Some((_, sequence)) = oldest {
            self.kv.release(sequence);
        }
        oldest.is_some()
    }

    /// Number of leading tokens that earlier requests have stored; `None` if nothing is kept.
    pub(crate) fn matching(&self, namespace: &str, tokens: &[u32]) -> Option<usize> {
        let usable = |kept, tokens| self.kv.continuable(kept, tokens);
        self.prefixes.as_ref().map(|prefixes| prefixes.matching(namespace, tokens, usable))
    }

    /// Creates a sequence that begins with the longest stored prefix of these tokens.
    pub(crate) fn begin(&mut self, namespace: &str, tokens: &[u32]) -> SeqId {
        let usable = |kept, tokens| self.kv.continuable(kept, tokens);
        match self.prefixes.as_mut().and_then(|prefixes| prefixes.find(namespace, tokens, usable)) {
            Some((kept, usable)) => self.kv.fork(kept, usable),
            None => self.kv.create(),
        }
    }

    /// Keeps a sequence for later requests, with as many of these tokens as it has stored.
    pub(crate) fn keep(&mut self, namespace: &str, tokens: &[u32], sequence: SeqId) {
        let tokens = &tokens[..tokens.len().min(self.kv.tokens(sequence))];
        if tokens.len() >= MIN_KEPT
            && self.insert(namespace, tokens, sequence)
            && let Some(unsaved) = &mut self.unsaved
        {
            unsaved.kept(namespace, tokens);
        }
    }

    /// Keeps the first tokens of a sequence. Returns `false` if nothing is kept.
    fn insert(&mut self, namespace: &str, tokens: &[u32], sequence: SeqId) -> bool {
        let Some(prefixes) = &mut self.prefixes else { return false };
        let kept = self.kv.fork(sequence, tokens.len());
        if let Some(unneeded) = prefixes.insert(namespace, tokens, kept) {
            self.kv.release(unneeded);
        }
        true
    }

    /// Copies the next page to save to `page`, which is then handed over. `None` if there is none.
    pub(crate) fn export_next(&mut self, page: &mut Vec<u8>) -> Option<PageKey> {
        let (prefixes, unsaved) = (self.prefixes.as_ref()?, self.unsaved.as_mut()?);
        loop {
            let NextPage { namespace, tokens, of_state, key } = unsaved.next()?;
            let end = tokens.len();
            let has_state = |kept| of_state.is_none() || self.kv.keeps_state(kept, end);
            let is_kept =
                prefixes.covering(namespace, tokens, has_state).is_some_and(|kept| match of_state {
                    Some(index) => self.kv.export_state(kept, end, index, page),
                    None => self.kv.export(kept, end / PAGE_TOKENS - 1, page),
                });
            if is_kept {
                unsaved.handed_over(key);
                return Some(key);
            }
            if of_state.is_some() { unsaved.skip_state() } else { unsaved.forget_next() }
        }
    }

    /// Takes in a page that was saved: that of the last of these tokens, of which those before must be kept or have come just before. It is
    /// kept, or if sequences have states, it waits for the state. Returns `false` if there is no room, or something is missing.
    pub(crate) fn import(&mut self, namespace: &str, tokens: &[u32], page: &[u8]) -> bool {
        let before = tokens.len() - PAGE_TOKENS;
        let importing = self.importing.take();
        let sequence = importing.unwrap_or_else(|| self.begin(namespace, &tokens[..before]));
        // What a request waits for takes no room from others.
        let fits =
            self.kv.tokens(sequence) == before && self.reserve_by_eviction(sequence, PAGE_TOKENS).is_ok();
        if fits {
            self.kv.import(sequence, page);
        }
        if fits && self.has_states() {
            self.importing = Some(sequence);
            return true;
        }
        let is_kept = fits && self.insert(namespace, tokens, sequence);
        self.kv.release(sequence);
        is_kept
    }

    /// Takes in a page of the state after these tokens, whose pages have come just before. They are kept when the last one has come.
    /// Returns `false` if they have not come.
    pub(crate) fn import_state(
        &mut self,
        namespace: &str,
        tokens: &[u32],
        index: usize,
        page: &[u8],
    ) -> bool {
        let importing = self.importing.filter(|sequence| self.kv.tokens(*sequence) == tokens.len());
        let Some(sequence) = importing else { return false };
        self.kv.import_state(sequence, index, page);
        if self.kv.state_shape().is_some_and(|states| index + 1 < states.pages) {
            return true;
        }
        let is_kept = self.insert(namespace, tokens, sequence);
        // A longer sequence may be kept in its place, without this state.
        let covering = |prefixes: &PrefixCache<SeqId>| prefixes.covering(namespace, tokens, |_| true);
        if let Some(kept) = self.prefixes.as_ref().and_then(covering) {
            self.kv.adopt_states(kept, sequence);
        }
        self.stop_importing();
        is_kept
    }

    /// Number of sequences that no request runs: those that are kept, those of windows, and that which waits for its state.
    pub(crate) fn idle(&self) -> usize {
        self.kept() + self.windows.len() + usize::from(self.importing.is_some())
    }

    /// Whether sequences have states.
    pub(crate) fn has_states(&self) -> bool {
        self.kv.state_shape().is_some()
    }

    /// Gives up the sequence whose state is missing. Returns whether there was one.
    pub(crate) fn stop_importing(&mut self) -> bool {
        let importing = self.importing.take();
        if let Some(sequence) = importing {
            self.kv.release(sequence);
        }
        importing.is_some()
    }

    /// Number of kept sequences.
    pub(crate) fn kept(&self) -> usize {
        self.prefixes.as_ref().map_or(0, PrefixCache::len)
    }

    /// Number of tokens of the kept sequences; those that sequences share count once.
    pub(crate) fn kept_tokens(&self) -> usize {
        self.prefixes.as_ref().map_or(0, PrefixCache::tokens)
    }

    /// Number of kept sequences that were evicted so far.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Evicts all kept sequences.
    #[cfg(test)]
    pub(crate) fn forget(&mut self) {
        while self.evict() {}
    }
}
