//! The state of a recurrence, in pages of its own.
//!
//! A layer's state is matrices, one for each head, and the last inputs of its convolution, all f32. It is kept in blocks, each of which
//! lies in one page: sixteen columns of a matrix, or the inputs of some channels.

use redline_simd::LANES;

/// Number of channels of a block of inputs.
pub(crate) const BLOCK_CHANNELS: usize = 4 * LANES;

/// What a sequence keeps of a layer that is a recurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerState {
    /// Number of matrices.
    pub heads: usize,
    /// Rows of a matrix.
    pub rows: usize,
    /// Columns of a matrix.
    pub columns: usize,
    /// Number of channels of the convolution before it.
    pub channels: usize,
    /// Number of earlier inputs that the convolution reads.
    pub inputs: usize,
}

impl LayerState {
    /// Number of strips of sixteen columns of a matrix.
    pub(crate) fn strips(self) -> usize {
        self.columns.div_ceil(LANES)
    }

    /// Number of words of a strip.
    fn strip_words(self) -> usize {
        self.rows * LANES
    }

    /// Number of words of a block of inputs.
    fn input_words(self) -> usize {
        self.inputs * BLOCK_CHANNELS
    }

    /// The sizes of all blocks in words: the strips of all heads, then the inputs.
    fn blocks(self) -> impl Iterator<Item = usize> {
        let strips = std::iter::repeat_n(self.strip_words(), self.heads * self.strips());
        strips.chain(std::iter::repeat_n(self.input_words(), self.channels.div_ceil(BLOCK_CHANNELS)))
    }

    /// Number of words of the largest block.
    pub(super) fn largest_block(self) -> usize {
        self.strip_words().max(self.input_words())
    }
}

/// Where a block is.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockPlace {
    /// Index among the pages of the state.
    pub(super) page: usize,
    /// Its first word in the page.
    pub(super) word: usize,
}

/// The places of all blocks of each layer in pages of `page_words` words, and the number of pages.
pub(super) fn places(layers: &[LayerState], page_words: usize) -> (Vec<Vec<BlockPlace>>, usize) {
    let (mut page, mut next) = (0, 0);
    let mut place = |words: usize| {
        if next + words > page_words {
            (page, next) = (page + 1, 0);
        }
        let place = BlockPlace { page, word: next };
        next += words;
        place
    };
    let all = layers.iter().map(|layer| layer.blocks().map(&mut place).collect()).collect();
    (all, if next > 0 { page + 1 } else { page })
}
