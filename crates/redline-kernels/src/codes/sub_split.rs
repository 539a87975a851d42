//! Half bytes of sub-groups with integer scales, with more bits of each in words of their own.

use redline_simd::{Isa, LANES};

use super::SubScaled;

/// Half bytes with `HIGH` more bits, 1 or 2, and a scale per `32 / HIGH` k, whose bits share a word.
pub(crate) struct SubSplit<const HIGH: usize>;

impl<const HIGH: usize> SubScaled for SubSplit<HIGH> {
    const SUB: usize = 32 / HIGH;
    const SUB_WORDS: usize = (4 / HIGH + 1) * LANES;
    const FAR_ROWS: usize = 3;
    #[inline(always)]
    unsafe fn dot<S: Isa, const R: usize>(s: S, acc: &mut [S::W; R], w: *const u32, x: *const u32) {
        // SAFETY: a sub-group of weights and its inputs, by contract.
        unsafe { s.dot_split::<HIGH, R>(acc, w, x) }
    }
}
