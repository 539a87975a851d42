//! Which pages of kept sequences are still to be saved. If sequences have states, those of snapshots are saved after the pages that they
//! cover.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use redline_kernels::op::kv::PAGE_TOKENS;
use redline_models::kv::StateShape;
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
    /// The page of the state after it that is next; `None`: the page itself is.
    of_state: Option<usize>,
}

/// The next page to save.
#[derive(Debug)]
pub(crate) struct NextPage<'a> {
    pub(crate) namespace: &'a str,
    /// All tokens up to the end of the page.
    pub(crate) tokens: &'a [u32],
    /// Which page of the state after these tokens it is; `None`: it holds the last of them.
    pub(crate) of_state: Option<usize>,
    pub(crate) key: PageKey,
}

/// The key of a page of the state after the page with this key.
fn key_of_state(last: PageKey, index: usize) -> PageKey {
    last.then(&[index as u32])
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
    /// The shape of states, if sequences have some.
    states: Option<StateShape>,
}

impl Unsaved {
    pub(crate) fn new(identity: String, saved: Arc<PageIndex>) -> Self {
        let (pending, waiting) = (HashSet::new(), VecDeque::new());
        Self { identity, saved, pending, waiting, waiting_tokens: 0, states: None }
    }

    /// Sets the shape of states, if sequences have some.
    pub(crate) fn with_states(self, states: Option<StateShape>) -> Self {
        Self { states, ..self }
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

    /// Number of pages of the state after a number of pages of tokens; 0 if there is no snapshot.
    fn pages_of_state(&self, pages: usize) -> usize {
        let is_snapshot = |states: &StateShape| (pages * PAGE_TOKENS).is_multiple_of(states.every);
        self.states.filter(is_snapshot).map_or(0, |states| states.pages)
    }

    /// Their keys; the last of the pages of tokens has this one.
    fn keys_of_state(&self, pages: usize, last: PageKey) -> impl Iterator<Item = PageKey> + use<> {
        (0..self.pages_of_state(pages)).map(move |index| key_of_state(last, index))
    }

    /// The largest number of pages, more than `held`, after which a sequence can be continued with what can be read, and the keys of the
    /// state there. All of `keys` can be read.
    pub(crate) fn usable(&self, keys: &[PageKey], held: usize) -> Option<(usize, Vec<PageKey>)> {
        let ends = (held + 1..=keys.len()).rev();
        let mut with_states =
            ends.map(|end| (end, self.keys_of_state(end, keys[end - 1]).collect::<Vec<_>>()));
        if self.states.is_none() {
            return with_states.next();
        }
        with_states.find(|(_, state)| !state.is_empty() && self.readable(state) == state.len())
    }

    /// The number of leading keys whose pages can be read.
    pub(crate) fn readable(&self, keys: &[PageKey]) -> usize {
        self.saved.leading(keys)
    }

    /// Notes that a sequence is kept.
    pub(crate) fn kept(&mut self, namespace: &str, tokens: &[u32]) {
        let keys = self.keys(namespace, tokens);
        let with_state = |page: usize, key| self.keys_of_state(page + 1, key).chain([key]);
        let is_missing =
            |(page, key): (usize, &PageKey)| !with_state(page, *key).all(|key| self.is_saved(key));
        let Some(page) = keys.iter().enumerate().position(is_missing) else { return };
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
        self.waiting.push_back(Waiting {
            namespace: namespace.to_owned(),
            tokens,
            page,
            before,
            of_state: None,
        });
    }

    /// The keys of the next page that waits: that of its tokens, and its own.
    fn front(&self) -> Option<(PageKey, PageKey)> {
        let Waiting { tokens, page, before, of_state, .. } = self.waiting.front()?;
        let of_tokens = before.then(&tokens[page * PAGE_TOKENS..][..PAGE_TOKENS]);
        Some((of_tokens, of_state.map_or(of_tokens, |index| key_of_state(of_tokens, index))))
    }

    /// Goes on to what is next in the same sequence; with `skips`, past the rest of the state.
    fn advance(&mut self, of_tokens: PageKey, skips: bool) {
        let Some(front) = self.waiting.front() else { return };
        let index = front.of_state.map_or(0, |index| index + 1);
        let has_more = !skips && index < self.pages_of_state(front.page + 1);
        if !has_more && (front.page + 1) * PAGE_TOKENS == front.tokens.len() {
            return self.forget_next();
        }
        if let Some(front) = self.waiting.front_mut() {
            front.of_state = has_more.then_some(index);
            if !has_more {
                (front.before, front.page) = (of_tokens, front.page + 1);
            }
        }
    }

    /// The next page to save.
    pub(crate) fn next(&mut self) -> Option<NextPage<'_>> {
        let key = loop {
            let (of_tokens, key) = self.front()?;
            if !self.is_saved(key) {
                break key;
            }
            self.advance(of_tokens, false);
        };
        let &Waiting { ref namespace, ref tokens, page, of_state, .. } = self.waiting.front()?;
        let tokens = &tokens[..(page + 1) * PAGE_TOKENS];
        Some(NextPage { namespace, tokens, of_state, key })
    }

    /// Leaves out a state that the kept sequence does not have any more.
    pub(crate) fn skip_state(&mut self) {
        if let Some((of_tokens, _)) = self.front() {
            self.advance(of_tokens, true);
        }
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

    /// States of two pages after every other page of tokens.
    #[test]
    fn states_are_saved_after_the_pages_that_they_cover() {
        let states = StateShape { pages: 2, every: 2 * PAGE_TOKENS, log: 0 };
        let index = Arc::<PageIndex>::default();
        let mut unsaved = Unsaved::new("model".into(), index.clone()).with_states(Some(states));
        let save_next = |unsaved: &mut Unsaved| {
            let next = unsaved.next()?;
            let (end, of_state, key) = (next.tokens.len(), next.of_state, next.key);
            index.add(key);
            Some((end, of_state))
        };
        let keys = unsaved.keys("", &tokens(330));
        unsaved.kept("", &tokens(330));
        let first = [(64, None), (128, None), (128, Some(0)), (128, Some(1)), (192, None), (256, None)];
        for expected in first {
            assert_eq!(save_next(&mut unsaved), Some(expected));
        }
        // The second state lacks its second page.
        assert_eq!(save_next(&mut unsaved), Some((256, Some(0))));
        assert_eq!(unsaved.usable(&keys[..4], 0).unwrap().0, 2);
        assert_eq!(unsaved.usable(&keys[..4], 2), None);
        assert_eq!(unsaved.usable(&keys[..1], 0), None);
        unsaved.skip_state();
        assert_eq!((save_next(&mut unsaved), save_next(&mut unsaved)), (Some((320, None)), None));
        // It is looked for again.
        unsaved.kept("", &tokens(330));
        assert_eq!((save_next(&mut unsaved), save_next(&mut unsaved)), (Some((256, Some(1))), None));
        let (end, state) = unsaved.usable(&keys, 2).unwrap();
        assert_eq!((end, unsaved.readable(&state)), (4, 2));
        assert!(unsaved.is_empty() && state.iter().all(|key| !keys.contains(key)));
        unsaved.kept("", &tokens(330));
        assert!(unsaved.is_empty());
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
