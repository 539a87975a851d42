//! 8-bit weights: strips `[k/4][16][4]` bytes, stored as `q + 128`, so that they can be the unsigned operand of
//! `vpdpbusd`. Conversion writes q in -127..=127; files may also hold -128. One f16 scale per group of k, or one f32 scale per output.

use redline_simd::{Isa, LANES};

use super::float16::LARGEST as LARGEST_SCALE;
use super::{BLOCK, Codes, Descriptor, Format, Integer, Scaling, Signed};
use crate::Arithmetic;
use crate::codes::{BYTE_OFFSET, block_words};

/// One f16 scale per 128 k.
pub(super) const FORMAT: Format = Format::W8 { group: 128 };
/// Largest magnitude of a stored integer.
pub(crate) const LARGEST: f32 = 127.0;

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "w8",
    arithmetic: Arithmetic::Int8,
    codes: Codes::Bytes,
    groups: &[0, 32, 128],
    scaling: Scaling::Chosen,
    largest: LARGEST * LARGEST_SCALE,
};

/// The dot product of a tile.
pub(crate) struct W8;

impl Integer for W8 {
    const BLOCK_WORDS: usize = block_words(4);
    const FAR_ROWS: usize = 5;
    #[inline(always)]
    unsafe fn dot<S: Isa, const R: usize, const C: usize>(
        s: S,
        acc: &mut [[S::W; R]; C],
        w: *const u32,
        x: *const u32,
    ) {
        // SAFETY: a block of weights and its inputs, by contract.
        unsafe { s.dot_u8::<BLOCK, R, C>(acc, w, x) }
    }
}

impl Signed for W8 {
    #[inline(always)]
    unsafe fn signed<S: Isa>(s: S, w: *const u32, to: *mut u32) {
        let offset = s.splat_word(BYTE_OFFSET * 0x0101_0101);
        for line in (0..Self::BLOCK_WORDS).step_by(LANES) {
            // SAFETY: lines of the block, by contract.
            unsafe { s.store_words(to.add(line), s.xor_words(s.load_words(w.add(line)), offset)) };
        }
    }
}
