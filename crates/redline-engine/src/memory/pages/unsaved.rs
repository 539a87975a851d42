//! Which pages of kept sequences are still to be saved.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use redline_kernels::op::kv::PAGE_TOKENS;
use redline_weights::PageKey;

use super::PageIndex;

/// Maximum number of tokens of the sequences that wait until their pages are saved. Beyond, the earliest are forgotten.
const MAX_TOKENS: usize = 1 << 20;

/// A kept sequence whose pages are saved one after another.
#[derive(Debug)]
struct Waiting {
    namespace: String,
    tokens: Vec<u32>,
    /// The next page, and the key of the one before.
    page: usize,
    before: PageKey,
}

/// The next page to save.
#[derive(Debug)]
pub(crate) struct NextPage<'a> {
    pub(crate) namespace: &'a str,
    /// All tokens up to the end of the page.
    pub(crate) tokens: &'a [u32],
    pub(crate) key: PageKey,
}

/// The pages that are still to be saved.
#[derive(Debug)]
pub(crate) struct Unsaved {
    /// What all keys and values are computed with, beside adapters.
    identity: String,
    saved: Arc<PageIndex>,
    /// Pages that were handed over and are not written yet.
    pending: HashSet<PageKey>,
    waiting: VecDeque<Waiting>,
    /// Number of tokens of these.
    waiting_tokens: usize,
}

impl Unsaved {
    pub(crate) fn new(identity: String, saved: Arc<PageIndex>) -> Self {
        Self { identity, saved, pending: HashSet::new(), waiting: VecDeque::new(), waiting_tokens: 0 }
    }

    fn is_saved(&self, key: PageKey) -> bool {
        self.pending.contains(&key) || self.saved.contains(key)
    }

    fn root(&self, namespace: &str) -> PageKey {
        PageKey::root(&[&self.identity, namespace])
    }

    /// The keys of all full pages of these tokens.
    pub(crate) fn keys(&self, namespace: &str, tokens: &[u32]) -> Vec<PageKey> {
        let mut key = self.root(namespace);
        let then = |page: &[u32]| {
            key = key.then(page);
            key
        };
        tokens.chunks_exact(PAGE_TOKENS).map(then).collect()
    }

    /// The number of leading keys whose pages can be read.
    pub(crate) fn readable(&self, keys: &[PageKey]) -> usize {
        self.saved.leading(keys)
    }

    /// Notes that a sequence is kept.
    pub(crate) fn kept(&mut self, namespace: &str, tokens: &[u32]) {
        let keys = self.keys(namespace, tokens);
        let Some(page) = keys.iter().position(|&key| !self.is_saved(key)) else { return };
        let before = page.checked_sub(1).map_or_else(|| self.root(namespace), |last| keys[last]);
        let tokens = tokens[..keys.len() * PAGE_TOKENS].to_vec();
        let covers = |other: &Waiting| other.namespace == namespace && other.tokens.starts_with(&tokens);
        if self.waiting.iter().any(covers) {
            return;
        }
        self.waiting_tokens += tokens.len();
        while self.waiting_tokens > MAX_TOKENS && !self.waiting.is_empty() {
            self.forget_next();
        }
        self.waiting.push_back(Waiting { namespace: namespace.to_owned(), tokens, page, before });
    }

    /// The next page to save.
    pub(crate) fn next(&mut self) -> Option<NextPage<'_>> {
        while let Some(front) = self.waiting.front() {
            let start = front.page * PAGE_TOKENS;
            let Some(page) = front.tokens.get(start..start + PAGE_TOKENS) else {
                self.forget_next();
                continue;
            };
            let (key, page) = (front.before.then(page), front.page + 1);
            if !self.is_saved(key) {
                break;
            }
            if let Some(front) = self.waiting.front_mut() {
                (front.before, front.page) = (key, page);
            }
        }
        let Waiting { namespace, tokens, page, before } = self.waiting.front()?;
        let tokens = &tokens[..(page + 1) * PAGE_TOKENS];
        Some(NextPage { namespace, tokens, key: before.then(&tokens[page * PAGE_TOKENS..]) })
    }

    /// Forgets the sequence of the next page, which is no longer kept.
    pub(crate) fn forget_next(&mut self) {
        self.waiting_tokens -= self.waiting.pop_front().map_or(0, |next| next.tokens.len());
    }

    /// Notes that a page was handed over to be written.
    pub(crate) fn handed_over(&mut self, key: PageKey) {
        self.pending.insert(key);
    }

    /// Notes that a page was written, or could not be.
    pub(crate) fn settled(&mut self, key: PageKey) {
        self.pending.remove(&key);
    }

    /// Returns whether no page waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(count: u32) -> Vec<u32> {
        (0..count).collect()
    }

    /// Saves everything that waits, and returns the ends of the pages.
    fn save_all(unsaved: &mut Unsaved) -> Vec<usize> {
        let mut ends = Vec::new();
        while let Some(next) = unsaved.next() {
            ends.push(next.tokens.len());
            let key = next.key;
            unsaved.handed_over(key);
            unsaved.saved.add(key);
            unsaved.settled(key);
        }
        ends
    }

    #[test]
    fn full_pages_are_saved_once_and_in_order() {
        let mut unsaved = Unsaved::new("model".into(), Arc::default());
        unsaved.kept("", &tokens(63));
        assert!(unsaved.is_empty() && unsaved.next().is_none());
        unsaved.kept("", &tokens(150));
        assert_eq!(save_all(&mut unsaved), [64, 128]);
        unsaved.kept("", &tokens(150));
        assert!(unsaved.is_empty());
        unsaved.kept("", &tokens(260));
        assert_eq!(save_all(&mut unsaved), [192, 256]);
        unsaved.kept("other", &tokens(64));
        assert_eq!(save_all(&mut unsaved), [64], "namespaces share no page");
    }

    #[test]
    fn keys_depend_on_everything_before() {
        let unsaved = Unsaved::new("model".into(), Arc::default());
        let keys = unsaved.keys("salt", &tokens(200));
        assert_eq!(keys.len(), 3);
        assert_eq!(keys[..2], unsaved.keys("salt", &tokens(128)));
        let mut other = tokens(200);
        other[0] = 7;
        let others = [
            unsaved.keys("salt", &other),
            unsaved.keys("salz", &tokens(200)),
            Unsaved::new("another".into(), Arc::default()).keys("salt", &tokens(200)),
        ];
        for other in others {
            assert!(other.iter().zip(&keys).all(|(a, b)| a != b));
        }
    }

    #[test]
    fn a_page_that_is_gone_is_saved_again_and_a_forgotten_sequence_is_not() {
        let mut unsaved = Unsaved::new("model".into(), Arc::default());
        let keys = unsaved.keys("", &tokens(192));
        for &key in &keys {
            unsaved.saved.add(key);
        }
        assert_eq!(unsaved.readable(&keys), 3);
        unsaved.saved.remove(keys[1]);
        assert_eq!(unsaved.readable(&keys), 1);
        unsaved.kept("", &tokens(192));
        assert_eq!(save_all(&mut unsaved), [128]);
        unsaved.saved.remove(keys[0]);
        unsaved.kept("", &tokens(192));
        unsaved.forget_next();
        assert!(unsaved.is_empty());
    }

    #[test]
    fn a_page_is_handed_over_once_unless_it_could_not_be_written() {
        let mut unsaved = Unsaved::new("model".into(), Arc::default());
        let key = unsaved.keys("", &tokens(64))[0];
        unsaved.handed_over(key);
        unsaved.kept("", &tokens(64));
        assert!(unsaved.is_empty());
        unsaved.settled(key);
        unsaved.kept("", &tokens(64));
        assert_eq!(save_all(&mut unsaved), [64]);
    }

    #[test]
    fn few_tokens_wait_and_none_twice() {
        let mut unsaved = Unsaved::new("model".into(), Arc::default());
        unsaved.kept("", &tokens(128));
        unsaved.kept("", &tokens(64));
        assert_eq!(unsaved.waiting.len(), 1, "the longer sequence has the pages of the shorter");
        let each = MAX_TOKENS / 4;
        for first in 0..5 {
            unsaved.kept("", &vec![first; each]);
        }
        assert_eq!((unsaved.waiting.len(), unsaved.waiting_tokens), (4, MAX_TOKENS));
        assert_eq!(unsaved.next().map(|next| next.tokens[0]), Some(1));
        unsaved.forget_next();
        assert_eq!(unsaved.waiting_tokens, 3 * each);
    }
}
