//! Ownership of pages of keys and values by sequences.
//!
//! Sequences share full pages; a partly filled page is copied when a sequence that shares it writes to it. A page becomes free
//! when its last owner releases it. There are never more pages than the limit. Only reserving can fail, and it happens before a
//! pass.
//!
//! If every layer has a sliding window, a sequence that continues at its end does not need its first pages any more, and may
//! give them back ([`KvCache::release_out_of_window`]). It can then be continued or forked only where no row sees a token of them.
//!
//! If a layer is a convolution, pages hold its last inputs, and a sequence can be continued or forked only where these are
//! ([`ConvInputs`]): at its end, where a page ends, and as many tokens before as it has slots beyond its inputs.
//!
//! If a layer is a recurrence, a sequence has a state besides (`states`), and can be continued at its end and where it kept that.

mod states;

use redline_kernels::OutOfMemory;
use redline_kernels::op::kv::{ConvInputs, KvPages, PAGE_TOKENS, PageShape};

use self::states::State;
pub use self::states::StateShape;

/// A sequence in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SeqId(usize);

/// Number of tokens between snapshots of a state in a prompt.
const SNAPSHOT_TOKENS: usize = 1024;

/// Stands for a page that a sequence gave back because no later row sees it.
const OUT_OF_WINDOW: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Sequence {
    /// Its pages, of which the first may be [`OUT_OF_WINDOW`].
    pages: Vec<u32>,
    /// Number of pages that it gave back.
    out_of_window: usize,
    tokens: usize,
    /// Number of tokens that its pages have held, some of which may have been taken back.
    written: usize,
    state: State,
    /// States that it kept, by number of tokens, ascending.
    snapshots: Vec<State>,
}

impl Sequence {
    /// The pages that it owns, each as often as it does.
    fn owned(&self) -> impl Iterator<Item = u32> {
        let states = self.snapshots.iter().chain([&self.state]);
        self.pages[self.out_of_window..].iter().chain(states.flat_map(|state| &state.pages)).copied()
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
    /// Copies all that a page of a state holds to page `to`.
    fn copy_state(&mut self, from: u32, to: u32);
    /// Makes a page that of the state before the first token.
    fn clear_state(&mut self, page: u32);
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
    fn copy_state(&mut self, from: u32, to: u32) {
        Self::copy_words(self, from, to);
    }
    fn clear_state(&mut self, page: u32) {
        Self::clear(self, page);
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

/// Pages, and how many sequences own each.
#[derive(Debug)]
pub struct KvCache<P = KvPages> {
    pages: P,
    limit: usize,
    ref_counts: Vec<u32>,
    free: Vec<u32>,
    sequences: Vec<Sequence>,
    /// Free indices of `sequences`.
    free_slots: Vec<usize>,
    /// Whether storage that no sequence owns is poisoned.
    poisons: bool,
    /// The largest number of keys that a row sees, itself included; `None` if rows see all keys before them.
    window: Option<usize>,
    /// The inputs of convolutions that pages hold, by layer.
    inputs: Vec<ConvInputs>,
    states: Option<StateShape>,
}

impl KvCache {
    /// Creates an empty cache of at most `limit` pages of this shape.
    pub fn new(shape: &PageShape, limit: usize) -> Self {
        let pages = shape.state_pages();
        let states = (pages > 0).then_some(StateShape { pages, every: SNAPSHOT_TOKENS, log: 0 });
        Self::over(KvPages::new(shape, limit), limit)
            .with_conv_inputs(shape.inputs.clone())
            .with_states(states)
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
            ref_counts: Vec::new(),
            free: Vec::new(),
            sequences: Vec::new(),
            free_slots: Vec::new(),
            poisons: false,
            window: None,
            inputs: Vec::new(),
            states: None,
        }
    }

    /// Sets the states of sequences.
    pub fn with_states(self, states: Option<StateShape>) -> Self {
        Self { states, ..self }
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
    fn out_of_window_from(&self, start: usize) -> usize {
        let inputs = self.inputs.iter().map(|shape| shape.rows + 1).max().unwrap_or(1);
        self.window.map_or(0, |window| (start + 1).saturating_sub(window.max(inputs)) / PAGE_TOKENS)
    }

    /// Gives back the pages of a sequence that no row after its stored tokens sees.
    pub fn release_out_of_window(&mut self, id: SeqId) {
        let out_of_window = self.out_of_window_from(self.tokens(id));
        let sequence = &mut self.sequences[id.0];
        let (from, to) = (sequence.out_of_window, out_of_window.max(sequence.out_of_window));
        let released: Vec<u32> = sequence.pages[from..to].to_vec();
        sequence.pages[from..to].fill(OUT_OF_WINDOW);
        sequence.out_of_window = to;
        self.release_pages(&released);
    }

    /// Whether a sequence still has what a row needs that follows its first `tokens` tokens.
    pub fn can_continue(&self, id: SeqId, tokens: usize) -> bool {
        let sequence = &self.sequences[id.0];
        tokens == 0
            || sequence.out_of_window <= self.out_of_window_from(tokens)
                && self.inputs.iter().all(|shape| shape.can_continue(tokens, sequence.written))
                && (self.states.is_none() || sequence.state_after(tokens).is_some())
    }

    /// The largest number of tokens up to `most` after which a sequence can be continued: `most`, the end of a page, that of a snapshot, or
    /// 0.
    pub fn continuable(&self, id: SeqId, most: usize) -> usize {
        let snapshots = self.sequences[id.0].snapshots.iter().rev().map(|snapshot| snapshot.tokens);
        let ends = [most, self.always_continuable(most)].into_iter().chain(snapshots);
        ends.filter(|tokens| *tokens <= most && self.can_continue(id, *tokens)).max().unwrap_or(0)
    }

    /// The largest number of tokens up to `most` after which any sequence that keeps its pages and snapshots can be continued: `most`, the
    /// end of a page, or where a snapshot of a prompt is kept.
    pub fn always_continuable(&self, most: usize) -> usize {
        let pages = if self.inputs.is_empty() { 1 } else { PAGE_TOKENS };
        let unit = self.states.map_or(pages, |states| states.every);
        most / unit * unit
    }

    /// The largest number of tokens that may be taken back from the end of a sequence, wherever that is.
    pub fn rollback_limit(&self) -> usize {
        let inputs = self.inputs.iter().map(|shape| shape.slots - shape.rows);
        inputs.chain(self.states.map(|states| states.log)).min().unwrap_or(usize::MAX)
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
        self.sequences.len() - self.free_slots.len()
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
        if let Some(index) = self.free_slots.pop() {
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
        let out_of_window = self.sequences[parent.0].out_of_window.min(pages.len());
        for &page in &pages[out_of_window..] {
            self.ref_counts[page as usize] += 1;
        }
        let sequence = &self.sequences[parent.0];
        let written = sequence.written.min(pages.len() * PAGE_TOKENS);
        let state = if tokens == 0 { None } else { sequence.state_after(tokens).cloned() };
        let before = |snapshot: &&State| snapshot.tokens <= tokens;
        let snapshots: Vec<State> = sequence.snapshots.iter().take_while(before).cloned().collect();
        let forked =
            Sequence { pages, out_of_window, tokens, written, state: state.unwrap_or_default(), snapshots };
        for page in forked.snapshots.iter().chain([&forked.state]).flat_map(|state| &state.pages) {
            self.ref_counts[*page as usize] += 1;
        }
        let id = self.begin(forked);
        // Its parent may be given up before it.
        self.snapshot(id);
        id
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
        if other.out_of_window > own.out_of_window {
            return;
        }
        let whole = own.out_of_window..tokens / PAGE_TOKENS;
        let taken = other.pages[whole.clone()].to_vec();
        for page in &taken {
            self.ref_counts[*page as usize] += 1;
        }
        let given: Vec<u32> = self.sequences[id.0].pages.splice(whole, taken).collect();
        self.release_pages(&given);
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
            let page = self.allocate_page()?;
            self.sequences[id.0].pages.push(page);
        }
        if more > 0 { self.own_state(id) } else { Ok(()) }
    }

    /// Number of pages in memory, in use or free.
    pub fn allocated(&self) -> usize {
        self.pages.count()
    }

    /// Number of pages that [`KvCache::reserve`] would add to the memory for `more` further tokens of a sequence.
    pub fn growth(&self, id: SeqId, more: usize) -> usize {
        self.pages_short(id, more, &self.ref_counts).saturating_sub(self.free.len())
    }

    /// Number of pages that a sequence lacks for `more` further tokens, if pages have these numbers of owners.
    fn pages_short(&self, id: SeqId, more: usize, owners: &[u32]) -> usize {
        let Sequence { pages, tokens, .. } = &self.sequences[id.0];
        let partial =
            if more > 0 && tokens % PAGE_TOKENS != 0 { pages.get(tokens / PAGE_TOKENS) } else { None };
        let copied = usize::from(partial.is_some_and(|page| owners[*page as usize] > 1));
        let state = self.states.filter(|_| more > 0 && self.lacks_state(id, owners));
        let state = state.map_or(0, |states| states.pages);
        copied + state + (tokens + more).div_ceil(PAGE_TOKENS).saturating_sub(pages.len())
    }

    /// Whether [`KvCache::reserve`] would find room for `more` further tokens of a sequence if these other sequences were
    /// released first, and all snapshots. Nothing changes.
    pub fn has_room_without(
        &self,
        id: SeqId,
        more: usize,
        released: impl IntoIterator<Item = SeqId>,
    ) -> bool {
        let mut owners = self.ref_counts.clone();
        let mut room = self.room();
        let snapshots = self.sequences.iter().flat_map(|sequence| &sequence.snapshots);
        let released = released.into_iter().map(|other| &self.sequences[other.0]);
        let released =
            released.flat_map(|other| other.pages[other.out_of_window..].iter().chain(&other.state.pages));
        for page in snapshots.flat_map(|snapshot| &snapshot.pages).chain(released) {
            let owners = &mut owners[*page as usize];
            *owners -= 1;
            room += usize::from(*owners == 0);
        }
        self.pages_short(id, more, &owners) <= room
    }

    /// Replaces a page shared with others by a copy.
    fn own_page(&mut self, id: SeqId, index: usize) -> Result<(), KvError> {
        let shared = self.sequences[id.0].pages[index];
        if self.ref_counts[shared as usize] > 1 {
            let own = self.allocate_page()?;
            let tokens = self.sequences[id.0].tokens % PAGE_TOKENS;
            self.pages.copy(shared, own, tokens);
            self.poison(own, tokens);
            self.ref_counts[shared as usize] -= 1;
            self.sequences[id.0].pages[index] = own;
        }
        Ok(())
    }

    fn allocate_page(&mut self) -> Result<u32, KvError> {
        let page = match self.free.pop() {
            Some(page) => page,
            None if self.pages.count() >= self.limit => return Err(KvError::Full { pages: self.limit }),
            None => {
                let page = self.pages.grow().map_err(KvError::Memory)?;
                self.ref_counts.push(0);
                self.poison(page, 0);
                page
            }
        };
        self.ref_counts[page as usize] = 1;
        Ok(page)
    }

    /// Records that the first `tokens` tokens are stored. Called after the pass that stored the last of them.
    pub fn store(&mut self, id: SeqId, tokens: usize) {
        self.store_with_drafts(id, tokens, 0);
    }

    /// Records that the first `tokens` tokens are stored, of which the last ones are drafts: its state is that before these.
    pub fn store_with_drafts(&mut self, id: SeqId, tokens: usize, drafts: usize) {
        let sequence = &mut self.sequences[id.0];
        if !sequence.state.pages.is_empty() {
            sequence.state.tokens = sequence.state.tokens.max(tokens - drafts);
        }
        sequence.tokens = sequence.tokens.max(tokens);
        sequence.written = sequence.written.max(tokens);
        assert!(sequence.tokens <= sequence.pages.len() * PAGE_TOKENS, "tokens were reserved before");
    }

    /// Copies a full page of a sequence to `bytes`. Returns `false` if the sequence gave it back.
    pub fn export(&self, id: SeqId, index: usize, bytes: &mut Vec<u8>) -> bool {
        let Sequence { pages, out_of_window, tokens, .. } = &self.sequences[id.0];
        assert!((index + 1) * PAGE_TOKENS <= *tokens, "page {index} of {tokens} tokens");
        if index < *out_of_window {
            return false;
        }
        self.pages.export(pages[index], bytes);
        true
    }

    /// Appends a page that was exported to a sequence of full pages, for whose tokens room was reserved. Its state, if it has one, is not
    /// that after them until it is imported, too.
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
        let surplus = sequence.pages[kept.max(sequence.out_of_window)..].to_vec();
        sequence.pages.truncate(kept);
        sequence.out_of_window = sequence.out_of_window.min(kept);
        sequence.tokens = tokens;
        sequence.written = sequence.written.min(kept * PAGE_TOKENS);
        self.release_pages(&surplus);
        self.return_to_state(id, tokens);
    }

    /// Ends a sequence.
    pub fn release(&mut self, id: SeqId) {
        let sequence = std::mem::take(&mut self.sequences[id.0]);
        self.release_pages(&sequence.owned().collect::<Vec<_>>());
        self.free_slots.push(id.0);
    }

    fn release_pages(&mut self, pages: &[u32]) {
        for &page in pages {
            let owners = &mut self.ref_counts[page as usize];
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

    pub(crate) fn state_of(self, id: SeqId) -> &'a [u32] {
        &self.0[id.0].state.pages
    }
}

#[cfg(test)]
mod tests;
