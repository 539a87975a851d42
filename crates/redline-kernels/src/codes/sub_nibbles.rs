//! Half bytes of sub-groups with integer scales.

use redline_simd::{Isa, LANES};

use super::SubScaled;

/// Half bytes with a scale per `K` k.
pub(crate) struct SubNibbles<const K: usize>;

impl<const K: usize> SubScaled for SubNibbles<K> {
    const SUB: usize = K;
    const SUB_WORDS: usize = K / 8 * LANES;
    const FAR_ROWS: usize = 3;
    #[inline(always)]
    unsafe fn dot<S: Isa, const R: usize>(s: S, acc: &mut [S::W; R], w: *const u32, x: *const u32) {
        // SAFETY: a sub-group of weights and its inputs, by contract.
        unsafe { s.dot_u4::<K, R, 1>(std::array::from_mut(acc), w, x) }
    }
}
