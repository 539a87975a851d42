//! The last inputs of a convolution, in the pages of its sequence.
//!
//! A row of a convolution reads inputs of the rows before it. A page holds the inputs of the last of its tokens that are stored, each in
//! the slot that is its index in the page modulo the number of slots. So a full page holds the inputs of its end: a sequence can be
//! continued there as well as at its own end, and as far before these as there are more slots than inputs that a row reads.

use redline_simd::LANES;

use super::PAGE_TOKENS;

/// The inputs of a layer that a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvInputs {
    /// Number of f32 values of an input.
    pub channels: usize,
    /// Number of earlier rows whose inputs a row reads.
    pub rows: usize,
    /// Number of inputs that a page holds, from `rows` to [`PAGE_TOKENS`]. With more than `rows`, the last tokens can be taken back.
    pub slots: usize,
}

impl ConvInputs {
    /// Number of words of a page: whole cache lines, so that every token of a page takes the same whole number of bytes.
    pub(super) fn words(self) -> usize {
        let words = self.slots.checked_mul(self.channels);
        words.and_then(|words| words.checked_next_multiple_of(LANES)).expect("a page that memory can hold")
    }

    /// The first word of the input at a position, among those of its page.
    pub(crate) fn word(self, position: usize) -> usize {
        position % PAGE_TOKENS % self.slots * self.channels
    }

    /// Whether the input at a position is among those that its page holds once `end` tokens of the sequence are stored.
    pub fn holds(self, position: usize, end: usize) -> bool {
        let end = end.min((position / PAGE_TOKENS + 1) * PAGE_TOKENS);
        position < end && end - position <= self.slots
    }

    /// Whether a sequence can be continued after its first `tokens` tokens, if up to `written` of its tokens have been stored, some
    /// of which may have been taken back.
    pub fn can_continue(self, tokens: usize, written: usize) -> bool {
        (tokens.saturating_sub(self.rows)..tokens).all(|position| self.holds(position, written))
    }

    /// The words of a page whose inputs are not those of its first `tokens` tokens.
    pub(super) fn unused(self, tokens: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
        let used = move |slot: usize| (0..tokens).any(|position| position % self.slots == slot);
        let unused = (0..self.slots).filter(move |slot| !used(*slot));
        unused.map(move |slot| slot * self.channels..(slot + 1) * self.channels)
    }
}
