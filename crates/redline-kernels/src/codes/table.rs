//! Half bytes that are indices of integers.

use redline_simd::Isa;

use super::{BLOCK, FEWER_ROWS, Integer, SubScaled, block_words};

/// The integers of `iq4_nl` and `iq4_xs`.
pub(crate) static NON_LINEAR: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// Twice the values of the four-bit floats (E2M1) of `mxfp4`. Both zeros are +0.
pub(crate) static DOUBLE_E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Half bytes that are indices of integers.
pub(crate) trait Table: 'static {
    /// The integers.
    const INTEGERS: &'static [i8; 16];
}

/// Indices into [`NON_LINEAR`].
pub(crate) struct NonLinear;
/// Indices into [`DOUBLE_E2M1`].
pub(crate) struct E2m1;

impl Table for NonLinear {
    const INTEGERS: &'static [i8; 16] = &NON_LINEAR;
}

impl Table for E2m1 {
    const INTEGERS: &'static [i8; 16] = &DOUBLE_E2M1;
}

impl<T: Table> Integer for T {
    const BLOCK_WORDS: usize = block_words(8);
    const FAR_ROWS: usize = 3;
    const ROWS: usize = FEWER_ROWS;
    #[inline(always)]
    unsafe fn dot<S: Isa, const R: usize, const C: usize>(
        s: S,
        acc: &mut [[S::W; R]; C],
        w: *const u32,
        x: *const u32,
    ) {
        // SAFETY: a block of weights and its inputs, by contract.
        unsafe { s.dot_table(acc, w, x, T::INTEGERS) }
    }
}

/// Indices into [`NON_LINEAR`] with a scale per 32 k.
pub(crate) struct SubTable;

impl SubScaled for SubTable {
    const SUB: usize = BLOCK;
    const SUB_WORDS: usize = block_words(8);
    const FAR_ROWS: usize = 3;
    #[inline(always)]
    unsafe fn dot<S: Isa, const R: usize>(s: S, acc: &mut [S::W; R], w: *const u32, x: *const u32) {
        // SAFETY: a sub-group of weights and its inputs, by contract.
        unsafe { NonLinear::dot::<S, R, 1>(s, std::array::from_mut(acc), w, x) }
    }
}
