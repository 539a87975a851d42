//! Which pages exist, as far as this process knows.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redline_weights::PageKey;

/// The keys of the pages that exist. Another process may have removed some, or written others.
#[derive(Debug, Default)]
pub(crate) struct PageIndex(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    keys: HashSet<PageKey>,
    /// Those that were added since the last listing began, which may lack them.
    recent: HashSet<PageKey>,
}

impl PageIndex {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn contains(&self, key: PageKey) -> bool {
        self.known().keys.contains(&key)
    }

    /// Number of leading keys whose pages exist.
    pub(crate) fn leading(&self, keys: &[PageKey]) -> usize {
        let known = self.known();
        keys.iter().take_while(|key| known.keys.contains(*key)).count()
    }

    pub(crate) fn add(&self, key: PageKey) {
        let mut known = self.known();
        known.keys.insert(key);
        known.recent.insert(key);
    }

    pub(crate) fn remove(&self, key: PageKey) {
        let mut known = self.known();
        known.keys.remove(&key);
        known.recent.remove(&key);
    }

    /// Called before all pages are listed.
    pub(crate) fn begin_listing(&self) {
        self.known().recent.clear();
    }

    /// Replaces what is known by a listing.
    pub(crate) fn end_listing(&self, listed: Vec<PageKey>) {
        let mut known = self.known();
        let recent = std::mem::take(&mut known.recent);
        known.keys = listed.into_iter().chain(recent).collect();
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> usize {
        self.known().keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_does_not_hide_what_is_written_meanwhile() {
        let [old, gone, new, listed] = ["old", "gone", "new", "listed"].map(|name| PageKey::root(&[name]));
        let index = PageIndex::default();
        index.add(old);
        index.add(gone);
        index.begin_listing();
        index.add(new);
        index.end_listing(vec![old, listed]);
        let all = [old, new, listed, gone];
        assert_eq!((index.leading(&all), index.len(), index.contains(gone)), (3, 3, false));
        index.remove(new);
        assert_eq!(index.leading(&all), 1);
        index.begin_listing();
        index.end_listing(Vec::new());
        assert_eq!(index.len(), 0);
    }
}
