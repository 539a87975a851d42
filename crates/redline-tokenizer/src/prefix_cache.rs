//! Ids of the beginnings of texts, for prompts that begin alike.

use crate::native::Beginning;
use hashbrown::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much a prefix cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixCacheOptions {
    /// Beginnings kept; the one not used for longest makes room.
    pub entries: usize,
    /// Bytes of a text that are its beginning. Texts of no more are not looked for.
    pub bytes: usize,
}

/// What a prefix cache has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrefixCacheCounters {
    /// Texts whose beginning was there.
    pub hits: u64,
    /// Texts long enough whose beginning was not.
    pub misses: u64,
    /// Bytes of text that did not have to be encoded again.
    pub reused_bytes: u64,
}

/// Beginnings by their whole text. What is kept of one are the ids up to a place that no continuation can change, so that a
/// text has the ids it has without the cache.
pub(crate) struct PrefixCache {
    options: PrefixCacheOptions,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<Box<str>, Entry>,
    /// Counts the uses.
    clock: u64,
    counters: PrefixCacheCounters,
}

struct Entry {
    beginning: Arc<Beginning>,
    used: u64,
}

impl PrefixCache {
    pub(crate) fn new(options: PrefixCacheOptions) -> Self {
        Self { options, state: Mutex::default() }
    }

    /// The part of a text that is looked for, if it is long enough.
    pub(crate) fn key<'a>(&self, text: &'a str) -> Option<&'a str> {
        let end = text.floor_char_boundary(self.options.bytes);
        if end == 0 || end == text.len() || self.options.entries == 0 { None } else { Some(&text[..end]) }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Arc<Beginning>> {
        let mut state = self.lock();
        state.clock += 1;
        let State { entries, clock, counters } = &mut *state;
        let Some(entry) = entries.get_mut(key) else {
            counters.misses += 1;
            return None;
        };
        entry.used = *clock;
        counters.hits += 1;
        counters.reused_bytes += entry.beginning.bytes as u64;
        Some(Arc::clone(&entry.beginning))
    }

    pub(crate) fn insert(&self, key: &str, beginning: Arc<Beginning>) {
        let mut state = self.lock();
        let State { entries, clock, .. } = &mut *state;
        if entries.len() >= self.options.entries && !entries.contains_key(key) {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.used).map(|(text, _)| text.clone());
            oldest.and_then(|text| entries.remove(&text));
        }
        entries.insert(key.into(), Entry { beginning, used: *clock });
    }

    pub(crate) fn counters(&self) -> PrefixCacheCounters {
        self.lock().counters
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
