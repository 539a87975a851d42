//! The states of sequences, if a layer is a recurrence.
//!
//! A state has a fixed size, and lies in pages of its own. A sequence that has one can be continued at its end, and where it kept a
//! snapshot of it. A snapshot shares its pages until the sequence goes on. The state is that after the last token that is no draft;
//! it comes with a log of what drafts after it add, so that these can be taken back.

use super::{KvCache, KvError, PageStore, SeqId, Sequence};

/// The shape of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateShape {
    /// Number of pages of a state; at least 1.
    pub pages: usize,
    /// A snapshot is kept of the state after each multiple of so many tokens of a prompt; a multiple of the tokens of a page.
    pub every: usize,
    /// The largest number of tokens after the state that its log holds.
    pub log: usize,
}

/// Maximum number of snapshots of a sequence.
const MAX_SNAPSHOTS: usize = 8;

/// The state of a sequence after some of its tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Number of tokens.
    pub(super) tokens: usize,
    /// Its pages; none before the first token.
    pub(super) pages: Vec<u32>,
}

impl Sequence {
    /// The state from which it can be continued after its first `tokens` tokens: its own if that covers no more, else a snapshot of exactly
    /// so many; `None` if there is none.
    pub(super) fn state_after(&self, tokens: usize) -> Option<&State> {
        if tokens >= self.state.tokens {
            return Some(&self.state);
        }
        self.snapshots.iter().find(|snapshot| snapshot.tokens == tokens)
    }
}

impl<P: PageStore> KvCache<P> {
    /// Where the tokens from `start` to `end` are best divided, so that a snapshot can be kept: after at least one of them; `end` if they
    /// need not be.
    pub fn next_snapshot(&self, start: usize, end: usize) -> usize {
        self.states.map_or(end, |states| end.min((start / states.every + 1) * states.every))
    }

    /// Whether a snapshot should be kept after so many tokens of a prompt.
    pub fn is_snapshot(&self, tokens: usize) -> bool {
        self.states.is_some_and(|states| tokens > 0 && tokens % states.every == 0)
    }

    /// Keeps a snapshot of the state of a sequence, if it has one. Of too many, the one with the smallest gap between its neighbours is
    /// given up, never the last one.
    pub fn snapshot(&mut self, id: SeqId) {
        self.keep_state(id, self.sequences[id.0].state.clone());
    }

    /// Gives a sequence the states of another one with the same first tokens, as snapshots.
    pub fn adopt_states(&mut self, id: SeqId, from: SeqId) {
        let (Sequence { state, snapshots, .. }, end) = (&self.sequences[from.0], self.tokens(id));
        let states = snapshots.iter().chain([state]).filter(|state| state.tokens <= end);
        for state in states.cloned().collect::<Vec<_>>() {
            self.keep_state(id, state);
        }
    }

    fn keep_state(&mut self, id: SeqId, state: State) {
        let snapshots = &mut self.sequences[id.0].snapshots;
        let at = snapshots.partition_point(|snapshot| snapshot.tokens < state.tokens);
        if state.pages.is_empty() || snapshots.get(at).is_some_and(|next| next.tokens == state.tokens) {
            return;
        }
        for page in &state.pages {
            self.ref_counts[*page as usize] += 1;
        }
        snapshots.insert(at, state);
        if snapshots.len() > MAX_SNAPSHOTS {
            let before = |i: usize| if i == 0 { 0 } else { snapshots[i - 1].tokens };
            let gap = |i: &usize| snapshots[i + 1].tokens - before(*i);
            let nearest = (0..MAX_SNAPSHOTS).min_by_key(gap).unwrap_or(0);
            let gone = snapshots.remove(nearest);
            self.release_pages(&gone.pages);
        }
    }

    /// Gives up the first snapshot of some sequence. Returns whether there was any.
    pub fn forget_snapshot(&mut self) -> bool {
        let Some(sequence) = self.sequences.iter_mut().find(|sequence| !sequence.snapshots.is_empty()) else {
            return false;
        };
        let gone = sequence.snapshots.remove(0);
        self.release_pages(&gone.pages);
        true
    }

    /// The shape of states, if sequences have some.
    pub fn state_shape(&self) -> Option<StateShape> {
        self.states
    }

    /// The state of a sequence after exactly its first `tokens` tokens, if it keeps one.
    fn kept_state(&self, id: SeqId, tokens: usize) -> Option<&State> {
        let Sequence { state, snapshots, .. } = &self.sequences[id.0];
        let kept = |kept: &&State| kept.tokens == tokens && !kept.pages.is_empty();
        snapshots.iter().chain([state]).find(kept)
    }

    /// Whether a sequence keeps the state after exactly its first `tokens` tokens.
    pub fn keeps_state(&self, id: SeqId, tokens: usize) -> bool {
        self.kept_state(id, tokens).is_some()
    }

    /// Copies page `index` of the state of a sequence after its first `tokens` tokens to `bytes`. Returns whether it keeps one.
    pub fn export_state(&self, id: SeqId, tokens: usize, index: usize, bytes: &mut Vec<u8>) -> bool {
        let page = self.kept_state(id, tokens).and_then(|kept| kept.pages.get(index));
        if let Some(page) = page {
            self.pages.export(*page, bytes);
        }
        page.is_some()
    }

    /// Makes exported bytes page `index` of the state of a sequence, for whose last tokens room was reserved.
    pub fn import_state(&mut self, id: SeqId, index: usize, bytes: &[u8]) {
        let page = self.sequences[id.0].state.pages[index];
        self.pages.import(page, bytes);
    }

    /// The pages of a sequence's state, and the number of tokens after which it is the state. Its log has those after them.
    pub fn state(&self, id: SeqId) -> (&[u32], usize) {
        let State { pages, tokens } = &self.sequences[id.0].state;
        (pages, *tokens)
    }

    /// Whether a sequence has no state of its own, if pages have these numbers of owners.
    pub(super) fn lacks_state(&self, id: SeqId, owners: &[u32]) -> bool {
        let pages = &self.sequences[id.0].state.pages;
        self.states.is_some() && (pages.is_empty() || pages.iter().any(|page| owners[*page as usize] > 1))
    }

    /// Gives a sequence a state of its own: that before the first token, or a copy of the one that it shares.
    pub(super) fn own_state(&mut self, id: SeqId) -> Result<(), KvError> {
        let Some(states) = self.states.filter(|_| self.lacks_state(id, &self.ref_counts)) else {
            return Ok(());
        };
        let mut own = Vec::with_capacity(states.pages);
        while own.len() < states.pages {
            match self.allocate_page() {
                Ok(page) => own.push(page),
                Err(error) => {
                    self.release_pages(&own);
                    return Err(error);
                }
            }
        }
        let shared = std::mem::replace(&mut self.sequences[id.0].state.pages, own.clone());
        for (i, &page) in own.iter().enumerate() {
            match shared.get(i) {
                Some(&from) => self.pages.copy_state(from, page),
                None => self.pages.clear_state(page),
            }
        }
        self.release_pages(&shared);
        Ok(())
    }

    /// Takes back the state of a sequence to that after its first `tokens` tokens, and later snapshots.
    pub(super) fn return_to_state(&mut self, id: SeqId, tokens: usize) {
        let sequence = &mut self.sequences[id.0];
        let after = if tokens == 0 { None } else { sequence.state_after(tokens).cloned() };
        let after = after.unwrap_or_default();
        for page in &after.pages {
            self.ref_counts[*page as usize] += 1;
        }
        let mut gone = std::mem::replace(&mut sequence.state, after).pages;
        let kept = sequence.snapshots.partition_point(|snapshot| snapshot.tokens <= tokens);
        gone.extend(sequence.snapshots.split_off(kept).into_iter().flat_map(|snapshot| snapshot.pages));
        self.release_pages(&gone);
    }
}
