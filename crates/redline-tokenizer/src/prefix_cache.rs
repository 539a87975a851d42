//! Caches ids of text prefixes, for prompts with a common beginning.

use crate::native::Beginning;
use hashbrown::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Capacity of a prefix cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixCacheOptions {
    /// Number of prefixes kept; the least recently used one is replaced.
    pub entries: usize,
    /// Length of the cached prefix in bytes. Texts that are not longer are not looked up.
    pub bytes: usize,
}

/// Counters of a prefix cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrefixCacheCounters {
    /// Texts whose prefix was cached.
    pub hits: u64,
    /// Texts that are long enough but whose prefix was not cached.
    pub misses: u64,
    /// Bytes of text that were not encoded again.
    pub reused_bytes: u64,
}

/// Cached prefixes by their text. Only the ids that no continuation can change are kept, so a text gets the same ids as
/// without the cache.
pub(crate) struct PrefixCache {
    options: PrefixCacheOptions,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<Box<str>, Entry>,
    /// Counts uses, to find the least recently used entry.
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

    /// The part of a text to look up, if the text is long enough.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads may miss the same prefix and both keep it.
    #[test]
    fn a_prefix_that_is_kept_again_displaces_no_other() {
        let cache = PrefixCache::new(PrefixCacheOptions { entries: 2, bytes: 8 });
        let keep = |key: &str| cache.insert(key, Arc::new(Beginning::default()));
        keep("one");
        assert!(cache.get("two").is_none(), "so the other one is the older");
        keep("two");
        keep("two");
        assert!(cache.get("one").is_some() && cache.get("two").is_some());
    }
}
