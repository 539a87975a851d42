//! 8-bit weights: strips `[k/4][16][4]` bytes, stored as `q + 128` with q in -127..=127, so that they can be the unsigned
//! operand of `vpdpbusd`. One f16 scale per group of k, or one f32 scale per output.

use redline_simd::{Isa, LANES};

use super::{Format, Integer, block_words};

/// One f16 scale per 128 k.
pub(super) const FORMAT: Format = Format::W8 { group: 128 };
/// Available group sizes; 0 is one scale per output.
pub(super) const GROUPS: &[usize] = &[0, 128];
/// Largest magnitude of a stored integer.
pub(crate) const LARGEST: f32 = 127.0;

/// Offset added to stored weights.
const OFFSET: u32 = 128;

#[inline(always)]
pub(super) fn insert(word: &mut u32, k: usize, q: i32) {
    let shift = k % 4 * 8;
    *word = *word & !(0xff << shift) | (q.wrapping_add(OFFSET as i32) as u32 & 0xff) << shift;
}

#[inline(always)]
pub(super) fn extract(word: u32, k: usize) -> f32 {
    ((word >> (k % 4 * 8) & 0xff) as i32 - OFFSET as i32) as f32
}

/// The dot product of a tile.
pub(crate) struct W8;

impl Integer for W8 {
    const BLOCK_WORDS: usize = block_words(4);
    const FAR_ROWS: usize = 5;
    #[inline(always)]
    fn offset<S: Isa>() -> i32 {
        if S::DOT_U8_OFFSET { OFFSET as i32 } else { 0 }
    }
    #[inline(always)]
    unsafe fn dot<S: Isa, const R: usize, const C: usize>(
        s: S,
        acc: &mut [[S::W; R]; C],
        w: *const u32,
        x: *const u32,
    ) {
        // SAFETY: a block of weights and its inputs, by contract.
        unsafe { s.dot_u8(acc, w, x) }
    }
    #[inline(always)]
    unsafe fn signed<S: Isa>(s: S, w: *const u32, to: *mut u32) {
        let offset = s.splat_word(OFFSET * 0x0101_0101);
        for line in (0..Self::BLOCK_WORDS).step_by(LANES) {
            // SAFETY: lines of the block, by contract.
            unsafe { s.store_words(to.add(line), s.xor_words(s.load_words(w.add(line)), offset)) };
        }
    }
}
