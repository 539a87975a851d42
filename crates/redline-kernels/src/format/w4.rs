//! Weights of four bits: strips `[k/8][16][4]` bytes, byte j holding k = 8 i + j in its low half and k = 8 i + 4 + j in its high
//! half, stored `q + 8` with q in -8..=7. One f16 scale per group of k, of either sign, chosen for the least square error.

use redline_simd::Isa;

use super::{Format, Integer, block_words};

/// One f16 scale per 64 k: 4.25 bits per weight.
pub(super) const FORMAT: Format = Format::W4 { group: 64 };
/// Groups that may be asked for.
pub(super) const GROUPS: &[usize] = &[32, 64, 128];
/// Smallest and largest stored integer.
pub(crate) const RANGE: (f32, f32) = (-8.0, 7.0);

/// What is added to a weight where it is stored.
const OFFSET: u32 = 8;

fn shift(k: usize) -> usize {
    k % 4 * 8 + k % 8 / 4 * 4
}

#[inline(always)]
pub(super) fn insert(word: &mut u32, k: usize, q: i32) {
    *word = *word & !(0xf << shift(k)) | (q.wrapping_add(OFFSET as i32) as u32 & 0xf) << shift(k);
}

#[inline(always)]
pub(super) fn extract(word: u32, k: usize) -> f32 {
    ((word >> shift(k) & 0xf) as i32 - OFFSET as i32) as f32
}

/// The dot product of a tile.
pub(crate) struct W4;

impl Integer for W4 {
    const BLOCK_WORDS: usize = block_words(8);
    #[inline(always)]
    fn offset<S: Isa>() -> i32 {
        OFFSET as i32
    }
    #[inline(always)]
    unsafe fn dot<S: Isa, const R: usize, const C: usize>(
        s: S,
        acc: &mut [[S::W; R]; C],
        w: *const u32,
        x: *const u32,
    ) {
        // SAFETY: a block of weights and its inputs, by contract.
        unsafe { s.dot_u4(acc, w, x) }
    }
}
