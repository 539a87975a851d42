//! Integers of blocks with minima.

use redline_simd::Isa;

use super::{FEWER_ROWS, Integer};

/// Integers with an own minimum per block.
pub(crate) struct WithMinima<I>(I);

impl<I: Integer> Integer for WithMinima<I> {
    const BLOCK_WORDS: usize = I::BLOCK_WORDS;
    const FAR_ROWS: usize = I::FAR_ROWS;
    const ROWS: usize = FEWER_ROWS;
    const MINIMA: bool = true;
    #[inline(always)]
    unsafe fn dot<S: Isa, const R: usize, const C: usize>(
        s: S,
        acc: &mut [[S::W; R]; C],
        w: *const u32,
        x: *const u32,
    ) {
        // SAFETY: by contract.
        unsafe { I::dot(s, acc, w, x) }
    }
}
