//! Ownership of pages of keys and values by sequences.
//!
//! Sequences share full pages; a partly filled page is copied when a sequence that shares it writes to it. A page becomes free
//! when its last owner releases it. There are never more pages than the limit. Only reserving can fail, and it happens before a
//! pass.
//!
//! If every layer has a sliding window, a sequence that continues at its end does not need its first pages any more, and may
//! give them back ([`KvCache::release_unseen`]). It can then be continued or forked only where no row sees a token of them.
//!
//! If a layer is a convolution, pages hold its last inputs, and a sequence can be continued or forked only where these are
//! ([`ConvInputs`]): at its end, where a page ends, and a few tokens before.

use redline_kernels::OutOfMemory;
use redline_kernels::op::kv::{ConvInputs, KvPages, PAGE_TOKENS, PageShape};

/// A sequence in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SeqId(usize);

/// Stands for a page that a sequence gave back because no later row sees it.
const NO_PAGE: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Sequence {
    /// Its pages, of which the first may be [`NO_PAGE`].
    pages: Vec<u32>,
    /// Number of pages that it gave back.
    unseen: usize,
    tokens: usize,
    /// Number of tokens that its pages have held, some of which may have been taken back.
    written: usize,
}

impl Sequence {
    /// The pages that it owns.
    fn owned(&self) -> &[u32] {
        &self.pages[self.unseen..]
    }
}

/// Why there is no room for more keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvError {
    /// All pages that the limit allows are owned.
    Full {
        /// The limit.
        pages: usize,
    },
    /// The operating system refused memory for a page.
    Memory(OutOfMemory),
}

/// Storage of pages. [`KvCache`] decides which sequence owns which page.
pub trait PageStore {
    /// Number of pages.
    fn count(&self) -> usize;
    /// Adds a page and returns its number.
    fn grow(&mut self) -> Result<u32, OutOfMemory>;
    /// Copies the first `tokens` tokens of page `from` to page `to`.
    fn copy(&mut self, from: u32, to: u32, tokens: usize);
    /// Overwrites the tokens of a page from `first` on with poison.
    fn poison(&mut self, _page: u32, _first: usize) {}
    /// Copies a page to `bytes`, whatever their length is.
    fn export(&self, page: u32, bytes: &mut Vec<u8>);
    /// Copies exported bytes to a page.
    fn import(&mut self, page: u32, bytes: &[u8]);
}

impl PageStore for KvPages {
    fn count(&self) -> usize {
        self.len()
    }
    fn grow(&mut self) -> Result<u32, OutOfMemory> {
        Self::grow(self)
    }
    fn copy(&mut self, from: u32, to: u32, tokens: usize) {
        Self::copy(self, from, to, tokens);
    }
    fn poison(&mut self, page: u32, first: usize) {
        Self::poison(self, page, first);
    }
    fn export(&self, page: u32, bytes: &mut Vec<u8>) {
        Self::export(self, page, bytes);
    }
    fn import(&mut self, page: u32, bytes: &[u8]) {
        Self::import(self, page, bytes);
    }
}

/// Pages and their owners.
#[derive(Debug)]
pub struct KvCache<P = KvPages> {
    pages: P,
    limit: usize,
    owners: Vec<u32>,
    free: Vec<u32>,
    sequences: Vec<Sequence>,
    /// Free places in `sequences`.
    ended: Vec<usize>,
    /// Whether storage that no sequence owns is poisoned.
    poisons: bool,
    /// The largest number of keys that a row sees, itself included; `None` if rows see all keys before them.
    window: Option<usize>,
    /// The inputs of convolutions that pages hold, by layer.
    inputs: Vec<ConvInputs>,
}

impl KvCache {
    /// Creates an empty cache of at most `limit` pages of this shape.
    pub fn new(shape: &PageShape, limit: usize) -> Self {
        Self::over(KvPages::new(shape, limit), limit).with_conv_inputs(shape.inputs.clone())
    }

    /// The storage, and each sequence's pages, for a pass.
    pub(crate) fn split(&mut self) -> (&mut KvPages, PageTables<'_>) {
        (&mut self.pages, PageTables(&self.sequences))
    }
}

impl<P: PageStore> KvCache<P> {
    /// Creates an empty cache of at most `limit` pages over an empty store.
    pub fn over(pages: P, limit: usize) -> Self {
        Self {
            pages,
            limit,
            owners: Vec::new(),
            free: Vec::new(),
            sequences: Vec::new(),
            ended: Vec::new(),
            poisons: false,
            window: None,
            inputs: Vec::new(),
        }
    }

    /// Sets the inputs of convolutions that pages hold.
    pub fn with_conv_inputs(self, inputs: Vec<ConvInputs>) -> Self {
        Self { inputs, ..self }
    }

    /// Sets the largest number of keys that a row sees in any layer, itself included; `None` if rows of some layer see all keys
    /// before them.
    pub fn windowed(self, window: Option<usize>) -> Self {
        Self { window, ..self }
    }

    /// The largest number of keys that a row sees in any layer, if every layer has a window.
    pub fn window(&self) -> Option<usize> {
        self.window
    }

    /// Number of leading pages that no row from position `start` on sees.
    fn unseen_from(&self, start: usize) -> usize {
        let inputs = self.inputs.iter().map(|shape| shape.rows + 1).max().unwrap_or(1);
        self.window.map_or(0, |window| (start + 1).saturating_sub(window.max(inputs)) / PAGE_TOKENS)
    }

    /// Gives back the pages of a sequence that no row after its stored tokens sees.
    pub fn release_unseen(&mut self, id: SeqId) {
        let unseen = self.unseen_from(self.tokens(id));
        let sequence = &mut self.sequences[id.0];
        let (from, to) = (sequence.unseen, unseen.max(sequence.unseen));
        let released: Vec<u32> = sequence.pages[from..to].to_vec();
        sequence.pages[from..to].fill(NO_PAGE);
        sequence.unseen = to;
        self.give_back(&released);
    }

    /// Whether a sequence still has what a row needs that follows its first `tokens` tokens.
    pub fn can_continue(&self, id: SeqId, tokens: usize) -> bool {
        let &Sequence { unseen, written, .. } = &self.sequences[id.0];
        tokens == 0
            || unseen <= self.unseen_from(tokens)
                && self.inputs.iter().all(|shape| shape.can_continue(tokens, written))
    }

    /// The largest number of tokens up to `most` after which a sequence can be continued: `most`, the end of a page, or 0.
    pub fn continuable(&self, id: SeqId, most: usize) -> usize {
        let ends = [most, self.always_continuable(most)];
        ends.into_iter().find(|tokens| self.can_continue(id, *tokens)).unwrap_or(0)
    }

    /// The largest number of tokens up to `most` after which any sequence that keeps its pages can be continued: `most`, or the end of a
    /// page.
    pub fn always_continuable(&self, most: usize) -> usize {
        if self.inputs.is_empty() { most } else { most / PAGE_TOKENS * PAGE_TOKENS }
    }

    /// The largest number of tokens that may be taken back from the end of a sequence, wherever that is.
    pub fn most_taken_back(&self) -> usize {
        self.inputs.iter().map(|shape| shape.slots - shape.rows).min().unwrap_or(usize::MAX)
    }

    /// Sets whether storage that no sequence owns is overwritten with values that would show in any result that depends on
    /// them: new pages, released pages, and the unused part of a copied page. For tests.
    pub fn poisoned(self, poisons: bool) -> Self {
        Self { poisons, ..self }
    }

    fn poison(&mut self, page: u32, first: usize) {
        if self.poisons {
            self.pages.poison(page, first);
        }
    }

    /// Number of pages that some sequence owns.
    pub fn pages_in_use(&self) -> usize {
        self.pages.count() - self.free.len()
    }

    /// Number of sequences.
    pub fn sequences(&self) -> usize {
        self.sequences.len() - self.ended.len()
    }

    /// The storage of the pages.
    pub fn store_mut(&mut self) -> &mut P {
        &mut self.pages
    }

    /// Number of pages that may still be taken.
    pub fn room(&self) -> usize {
        self.limit - self.pages_in_use()
    }

    /// Creates a sequence without tokens.
    pub fn create(&mut self) -> SeqId {
        self.begin(Sequence::default())
    }

    fn begin(&mut self, sequence: Sequence) -> SeqId {
        if let Some(index) = self.ended.pop() {
            self.sequences[index] = sequence;
            return SeqId(index);
        }
        self.sequences.push(sequence);
        SeqId(self.sequences.len() - 1)
    }

    /// Creates a sequence that begins with the first `tokens` tokens of `parent` and shares its pages.
    pub fn fork(&mut self, parent: SeqId, tokens: usize) -> SeqId {
        assert!(tokens <= self.tokens(parent), "fork at {tokens} of {}", self.tokens(parent));
        assert!(self.can_continue(parent, tokens), "fork at {tokens}, where nothing can continue");
        let pages = self.sequences[parent.0].pages[..tokens.div_ceil(PAGE_TOKENS)].to_vec();
        let unseen = self.sequences[parent.0].unseen.min(pages.len());
        for &page in &pages[unseen..] {
            self.owners[page as usize] += 1;
        }
        let written = self.sequences[parent.0].written.min(pages.len() * PAGE_TOKENS);
        self.begin(Sequence { pages, unseen, tokens, written })
    }

    /// Moves a sequence onto the pages of another one that begins with its tokens. If the other could not be continued after them, a last
    /// page that is partly filled stays its own.
    pub fn share(&mut self, id: SeqId, from: SeqId) {
        let tokens = self.tokens(id);
        if self.can_continue(from, tokens) {
            let shared = self.fork(from, tokens);
            self.sequences.swap(id.0, shared.0);
            return self.release(shared);
        }
        let (own, other) = (&self.sequences[id.0], &self.sequences[from.0]);
        if other.unseen > own.unseen {
            return;
        }
        let whole = own.unseen..tokens / PAGE_TOKENS;
        let taken = other.pages[whole.clone()].to_vec();
        for page in &taken {
            self.owners[*page as usize] += 1;
        }
        let given: Vec<u32> = self.sequences[id.0].pages.splice(whole, taken).collect();
        self.give_back(&given);
    }

    /// Number of stored tokens.
    pub fn tokens(&self, id: SeqId) -> usize {
        self.sequences[id.0].tokens
    }

    /// The sequence's pages. Those that it gave back are numbers of no page.
    pub fn pages(&self, id: SeqId) -> &[u32] {
        &self.sequences[id.0].pages
    }

    /// Reserves room for `more` further tokens. On failure, the sequence is unchanged except for pages it may have gained.
    pub fn reserve(&mut self, id: SeqId, more: usize) -> Result<(), KvError> {
        let tokens = self.tokens(id);
        if more > 0 && tokens % PAGE_TOKENS != 0 {
            self.own_page(id, tokens / PAGE_TOKENS)?;
        }
        let needed = (tokens + more).div_ceil(PAGE_TOKENS);
        while self.sequences[id.0].pages.len() < needed {
            let page = self.take()?;
            self.sequences[id.0].pages.push(page);
        }
        Ok(())
    }

    /// Number of pages in memory, in use or free.
    pub fn allocated(&self) -> usize {
        self.pages.count()
    }

    /// Number of pages that [`KvCache::reserve`] would add to the memory for `more` further tokens of a sequence.
    pub fn growth(&self, id: SeqId, more: usize) -> usize {
        self.missing(id, more, &self.owners).saturating_sub(self.free.len())
    }

    /// Number of pages that a sequence lacks for `more` further tokens, if pages have these numbers of owners.
    fn missing(&self, id: SeqId, more: usize, owners: &[u32]) -> usize {
        let Sequence { pages, tokens, .. } = &self.sequences[id.0];
        let partial =
            if more > 0 && tokens % PAGE_TOKENS != 0 { pages.get(tokens / PAGE_TOKENS) } else { None };
        let copied = usize::from(partial.is_some_and(|page| owners[*page as usize] > 1));
        copied + (tokens + more).div_ceil(PAGE_TOKENS).saturating_sub(pages.len())
    }

    /// Whether [`KvCache::reserve`] would find room for `more` further tokens of a sequence if these other sequences were
    /// released first. Nothing changes.
    pub fn has_room_without(
        &self,
        id: SeqId,
        more: usize,
        released: impl IntoIterator<Item = SeqId>,
    ) -> bool {
        let mut owners = self.owners.clone();
        let mut room = self.room();
        for page in released.into_iter().flat_map(|other| self.sequences[other.0].owned()) {
            let owners = &mut owners[*page as usize];
            *owners -= 1;
            room += usize::from(*owners == 0);
        }
        self.missing(id, more, &owners) <= room
    }

    /// Replaces a page shared with others by a copy.
    fn own_page(&mut self, id: SeqId, index: usize) -> Result<(), KvError> {
        let shared = self.sequences[id.0].pages[index];
        if self.owners[shared as usize] > 1 {
            let own = self.take()?;
            let tokens = self.sequences[id.0].tokens % PAGE_TOKENS;
            self.pages.copy(shared, own, tokens);
            self.poison(own, tokens);
            self.owners[shared as usize] -= 1;
            self.sequences[id.0].pages[index] = own;
        }
        Ok(())
    }

    fn take(&mut self) -> Result<u32, KvError> {
        let page = match self.free.pop() {
            Some(page) => page,
            None if self.pages.count() >= self.limit => return Err(KvError::Full { pages: self.limit }),
            None => {
                let page = self.pages.grow().map_err(KvError::Memory)?;
                self.owners.push(0);
                self.poison(page, 0);
                page
            }
        };
        self.owners[page as usize] = 1;
        Ok(page)
    }

    /// Records that the first `tokens` tokens are stored. Called after the pass that stored the last of them.
    pub fn store(&mut self, id: SeqId, tokens: usize) {
        let sequence = &mut self.sequences[id.0];
        sequence.tokens = sequence.tokens.max(tokens);
        sequence.written = sequence.written.max(tokens);
        assert!(sequence.tokens <= sequence.pages.len() * PAGE_TOKENS, "tokens were reserved before");
    }

    /// Copies a full page of a sequence to `bytes`. Returns `false` if the sequence gave it back.
    pub fn export(&self, id: SeqId, index: usize, bytes: &mut Vec<u8>) -> bool {
        let Sequence { pages, unseen, tokens, .. } = &self.sequences[id.0];
        assert!((index + 1) * PAGE_TOKENS <= *tokens, "page {index} of {tokens} tokens");
        if index < *unseen {
            return false;
        }
        self.pages.export(pages[index], bytes);
        true
    }

    /// Appends a page that was exported to a sequence of full pages, for whose tokens room was reserved.
    pub fn import(&mut self, id: SeqId, bytes: &[u8]) {
        let Sequence { pages, tokens, .. } = &self.sequences[id.0];
        assert!(tokens % PAGE_TOKENS == 0, "{tokens} tokens are no full pages");
        let (page, tokens) = (pages[tokens / PAGE_TOKENS], tokens + PAGE_TOKENS);
        self.pages.import(page, bytes);
        self.store(id, tokens);
    }

    /// Forgets everything after the first `tokens` tokens.
    pub fn truncate(&mut self, id: SeqId, tokens: usize) {
        assert!(tokens <= self.tokens(id), "truncate to {tokens} of {}", self.tokens(id));
        assert!(self.can_continue(id, tokens), "truncate to {tokens}, where nothing can continue");
        let sequence = &mut self.sequences[id.0];
        let kept = tokens.div_ceil(PAGE_TOKENS);
        let surplus = sequence.pages[kept.max(sequence.unseen)..].to_vec();
        sequence.pages.truncate(kept);
        sequence.unseen = sequence.unseen.min(kept);
        sequence.tokens = tokens;
        sequence.written = sequence.written.min(kept * PAGE_TOKENS);
        self.give_back(&surplus);
    }

    /// Ends a sequence.
    pub fn release(&mut self, id: SeqId) {
        let sequence = std::mem::take(&mut self.sequences[id.0]);
        self.give_back(sequence.owned());
        self.ended.push(id.0);
    }

    fn give_back(&mut self, pages: &[u32]) {
        for &page in pages {
            let owners = &mut self.owners[page as usize];
            *owners -= 1;
            if *owners == 0 {
                self.free.push(page);
                self.poison(page, 0);
            }
        }
    }
}

/// Read access to every sequence's pages while the storage is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageTables<'a>(&'a [Sequence]);

impl<'a> PageTables<'a> {
    pub(crate) fn of(self, id: SeqId) -> &'a [u32] {
        &self.0[id.0].pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redline_kernels::op::kv::{KvFormat, KvShape};

    fn cache() -> KvCache {
        let keys = [KvShape { format: KvFormat::F32, kv_heads: 1, head_dim: 8 }];
        KvCache::new(&PageShape::from(&keys[..]), 5)
    }

    #[test]
    fn a_fork_shares_full_pages_and_copies_the_partial_one_when_written() {
        let mut kv = cache();
        let parent = kv.create();
        kv.reserve(parent, 100).unwrap();
        kv.store(parent, 100);
        let child = kv.fork(parent, 100);
        assert_eq!(kv.pages_in_use(), 2);
        kv.reserve(child, 1).unwrap();
        assert_eq!(kv.pages(child)[0], kv.pages(parent)[0]);
        assert_ne!(kv.pages(child)[1], kv.pages(parent)[1]);
        assert_eq!(kv.pages_in_use(), 3);
        // The parent is now alone on its page and keeps it.
        let page = kv.pages(parent)[1];
        kv.reserve(parent, 1).unwrap();
        assert_eq!(kv.pages(parent)[1], page);
    }

    #[test]
    fn pages_come_back_when_the_last_owner_lets_go() {
        let mut kv = cache();
        let parent = kv.create();
        kv.reserve(parent, 200).unwrap();
        kv.store(parent, 200);
        let child = kv.fork(parent, 64);
        kv.release(parent);
        assert_eq!(kv.pages_in_use(), 1);
        kv.release(child);
        assert_eq!(kv.pages_in_use(), 0);
        let again = kv.create();
        kv.reserve(again, 256).unwrap();
        assert_eq!(kv.pages.len(), 4, "free pages are used before new ones are made");
    }

    #[test]
    fn there_are_never_more_pages_than_the_limit() {
        let mut kv = cache();
        let (first, second) = (kv.create(), kv.create());
        kv.reserve(first, 4 * PAGE_TOKENS + 1).unwrap();
        assert_eq!(kv.reserve(second, 1), Err(KvError::Full { pages: 5 }));
        kv.release(first);
        kv.reserve(second, 5 * PAGE_TOKENS).unwrap();
        assert_eq!((kv.pages_in_use(), kv.pages.len(), kv.room()), (5, 5, 0));
    }

    #[test]
    fn room_is_foreseen_exactly() {
        let mut kv = cache();
        let parent = kv.create();
        kv.reserve(parent, 100).unwrap();
        kv.store(parent, 100);
        let (child, other) = (kv.fork(parent, 100), kv.create());
        kv.reserve(other, 3 * PAGE_TOKENS).unwrap();
        // All five pages are owned; the child needs a copy of the page that it shares.
        assert!(kv.has_room_without(child, 0, []) && !kv.has_room_without(child, 1, []));
        // Without the parent the child is alone on that page.
        assert!(kv.has_room_without(child, 28, [parent]) && !kv.has_room_without(child, 29, [parent]));
        let most = 28 + 3 * PAGE_TOKENS;
        assert!(kv.has_room_without(child, most, [parent, other]));
        assert!(!kv.has_room_without(child, most + 1, [parent, other]));
        // Without the other sequence, one page goes to the copy.
        assert!(kv.has_room_without(child, 28 + 2 * PAGE_TOKENS, [other]));
        assert!(!kv.has_room_without(child, 29 + 2 * PAGE_TOKENS, [other]));
        kv.release(other);
        kv.reserve(child, 28 + 2 * PAGE_TOKENS).unwrap();
        assert_eq!(kv.room(), 0);
    }

    #[test]
    fn growth_is_what_reserving_adds() {
        let mut kv = cache();
        let parent = kv.create();
        assert_eq!((kv.growth(parent, 0), kv.growth(parent, 64), kv.growth(parent, 65)), (0, 1, 2));
        kv.reserve(parent, 100).unwrap();
        kv.store(parent, 100);
        assert_eq!((kv.growth(parent, 28), kv.growth(parent, 29), kv.allocated()), (0, 1, 2));
        let child = kv.fork(parent, 100);
        // The shared page is copied.
        assert_eq!((kv.growth(child, 0), kv.growth(child, 1), kv.growth(child, 29)), (0, 1, 2));
        let other = kv.create();
        kv.reserve(other, 64).unwrap();
        kv.release(other);
        assert_eq!((kv.growth(child, 1), kv.growth(child, 29)), (0, 1), "a free page is used first");
    }

    #[test]
    fn truncating_gives_back_whole_pages() {
        let mut kv = cache();
        let id = kv.create();
        kv.reserve(id, 130).unwrap();
        kv.store(id, 130);
        kv.truncate(id, 64);
        assert_eq!((kv.tokens(id), kv.pages_in_use()), (64, 1));
        kv.truncate(id, 0);
        assert_eq!(kv.pages_in_use(), 0);
    }

    #[test]
    fn a_page_that_cannot_be_copied_stays_shared() {
        let mut kv = cache();
        let parent = kv.create();
        kv.reserve(parent, 100).unwrap();
        kv.store(parent, 100);
        let (child, other) = (kv.fork(parent, 100), kv.create());
        kv.reserve(other, 3 * PAGE_TOKENS).unwrap();
        assert_eq!(kv.reserve(child, 0), Ok(()), "nothing will be written");
        assert_eq!(kv.reserve(child, 1), Err(KvError::Full { pages: 5 }));
        assert_eq!(kv.pages(child), kv.pages(parent));
        kv.release(parent);
        assert_eq!(kv.pages_in_use(), 5, "the child owns its pages");
        kv.reserve(child, 28).unwrap();
        assert_eq!((kv.pages_in_use(), kv.pages(child).len()), (5, 2));
        kv.release(child);
        kv.release(other);
        assert_eq!((kv.pages_in_use(), kv.sequences()), (0, 0));
    }

    #[test]
    fn pages_that_no_later_row_sees_are_given_back() {
        // The row at position p sees the keys from p - 69 on.
        let mut kv = cache().windowed(Some(70));
        let id = kv.create();
        kv.reserve(id, 133).unwrap();
        kv.store(id, 132);
        kv.release_unseen(id);
        assert_eq!(kv.pages_in_use(), 3, "the next row sees token 63");
        let fork = kv.fork(id, 132);
        kv.store(id, 133);
        kv.release_unseen(id);
        assert_eq!(kv.pages_in_use(), 3, "the fork still owns the first page");
        assert!(kv.can_continue(id, 133) && kv.can_continue(fork, 132) && !kv.can_continue(id, 132));
        let late = kv.fork(id, 133);
        kv.release(fork);
        assert_eq!((kv.pages_in_use(), kv.pages(late).len()), (2, 3));
        // Pages that were given back are not needed again, and are not given back twice.
        kv.release_unseen(late);
        kv.reserve(late, 3 * PAGE_TOKENS - 133).unwrap();
        kv.store(late, 3 * PAGE_TOKENS);
        // Both have a copy of the last page, and share the one before.
        let has_room = |pages: usize, without: &[SeqId]| {
            kv.has_room_without(late, pages * PAGE_TOKENS, without.iter().copied())
        };
        assert!(has_room(2, &[]) && !has_room(3, &[]) && has_room(3, &[id]) && !has_room(4, &[id]));
        kv.release(id);
        kv.release_unseen(late);
        assert_eq!(kv.pages_in_use(), 2);
        kv.truncate(late, 0);
        assert_eq!((kv.pages_in_use(), kv.pages(late).len()), (0, 0));
        kv.reserve(late, 5 * PAGE_TOKENS).unwrap();
        assert!(kv.pages(late).iter().all(|page| *page < 5));
    }

    #[test]
    #[should_panic(expected = "fork at 132, where nothing can continue")]
    fn a_fork_that_needs_pages_that_are_gone_is_refused() {
        let mut kv = cache().windowed(Some(70));
        let id = kv.create();
        kv.reserve(id, 133).unwrap();
        kv.store(id, 133);
        kv.release_unseen(id);
        kv.fork(id, 132);
    }

    /// A layer with three inputs before a row, in five slots.
    #[test]
    fn a_sequence_with_inputs_continues_at_its_end_and_where_a_page_ends() {
        let inputs = vec![ConvInputs { channels: 8, rows: 3, slots: 5 }];
        let mut kv = KvCache::new(&PageShape { keys: Vec::new(), inputs }, 9);
        let id = kv.create();
        kv.reserve(id, 150).unwrap();
        kv.store(id, 150);
        let places =
            |kv: &KvCache, id| (0..=kv.tokens(id)).filter(|n| kv.can_continue(id, *n)).collect::<Vec<_>>();
        // Two more slots than inputs.
        assert_eq!((kv.most_taken_back(), cache().most_taken_back()), (2, usize::MAX));
        assert_eq!(places(&kv, id), [0, 62, 63, 64, 126, 127, 128, 148, 149, 150]);
        assert_eq!(
            [150, 149, 147, 130, 128, 100, 63, 20].map(|most| kv.continuable(id, most)),
            [150, 149, 128, 128, 128, 64, 63, 0]
        );
        // What was taken back has overwritten earlier inputs.
        kv.truncate(id, 149);
        assert_eq!(places(&kv, id), [0, 62, 63, 64, 126, 127, 128, 148, 149]);
        kv.store(id, 150);
        assert_eq!(places(&kv, id), [0, 62, 63, 64, 126, 127, 128, 148, 149, 150]);
        kv.truncate(id, 148);
        kv.store(id, 149);
        assert_eq!(places(&kv, id), [0, 62, 63, 64, 126, 127, 128, 148, 149]);
        let fork = kv.fork(id, 127);
        kv.reserve(fork, 2).unwrap();
        assert_eq!(places(&kv, fork), [0, 62, 63, 64, 126, 127]);
        kv.store(fork, 129);
        // The page after it is new.
        assert_eq!(places(&kv, fork), [0, 62, 63, 64, 126, 127, 128, 129]);
    }

    #[test]
    fn a_sequence_moves_onto_the_pages_of_one_that_begins_with_its_tokens() {
        let keys = vec![KvShape { format: KvFormat::F32, kv_heads: 1, head_dim: 8 }];
        let inputs = vec![ConvInputs { channels: 8, rows: 2, slots: 2 }];
        for (inputs, own) in [(Vec::new(), 0), (inputs, 1)] {
            let mut kv = KvCache::new(&PageShape { keys: keys.clone(), inputs }, 9);
            let [parent, child] = [100, 130].map(|tokens| {
                let id = kv.create();
                kv.reserve(id, tokens).unwrap();
                kv.store(id, tokens);
                id
            });
            assert_eq!(kv.pages_in_use(), 5);
            kv.share(parent, child);
            assert_eq!((kv.pages_in_use(), kv.tokens(parent)), (3 + own, 100));
            assert_eq!(kv.pages(parent)[..1], kv.pages(child)[..1]);
            assert_eq!(kv.pages(parent)[1] == kv.pages(child)[1], own == 0);
            assert!(kv.can_continue(parent, 100));
            kv.release(child);
            assert_eq!(kv.pages_in_use(), 2);
            kv.release(parent);
            assert_eq!(kv.pages_in_use(), 0);
        }
    }

    #[test]
    fn tokens_that_are_stored_again_are_no_end() {
        let mut kv = cache();
        let id = kv.create();
        kv.reserve(id, 100).unwrap();
        kv.store(id, 100);
        kv.store(id, 40);
        assert_eq!(kv.tokens(id), 100);
    }
}
