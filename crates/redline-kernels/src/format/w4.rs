//! 4-bit weights: strips `[k/8][16][4]` bytes. Byte j holds k = 8 i + j in its low half and k = 8 i + 4 + j in its high half,
//! stored as `q + 8` with q in -8..=7. One f16 scale per group of k, of either sign, chosen for the least squared error.

use redline_simd::{Isa, LANES};

use super::float16::LARGEST as LARGEST_SCALE;
use super::{BLOCK, Codes, Descriptor, Format, Integer, Scaling, Signed};
use crate::Arithmetic;
use crate::codes::block_words;

/// One f16 scale per 64 k: 4.25 bits per weight.
pub(super) const FORMAT: Format = Format::W4 { group: 64 };
/// Smallest and largest stored integer.
pub(crate) const RANGE: (f32, f32) = (-8.0, 7.0);

/// Offset added to stored weights.
const OFFSET: u32 = 8;

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "w4",
    arithmetic: Arithmetic::Int8,
    codes: Codes::Nibbles { offset: OFFSET },
    groups: &[32, 64, 128],
    scaling: Scaling::Chosen,
    largest: RANGE.1 * LARGEST_SCALE,
};

/// The low halves of bytes, each minus the offset as a signed byte.
#[inline(always)]
fn signed_halves<S: Isa>(s: S, w: S::W) -> S::W {
    let low = s.and_words(w, s.splat_word(0x0f0f_0f0f));
    // Setting the high bit first, and inverting it afterwards, keeps borrows of the subtraction within each byte.
    let high = s.splat_word(0x8080_8080);
    let minus_offset = s.splat_word((OFFSET * 0x0101_0101).wrapping_neg());
    s.xor_words(s.add_words(s.xor_words(low, high), minus_offset), high)
}

/// The dot product of a tile.
pub(crate) struct W4;

impl Integer for W4 {
    const BLOCK_WORDS: usize = block_words(8);
    const FAR_ROWS: usize = 3;
    #[inline(always)]
    unsafe fn dot<S: Isa, const R: usize, const C: usize>(
        s: S,
        acc: &mut [[S::W; R]; C],
        w: *const u32,
        x: *const u32,
    ) {
        // SAFETY: a block of weights and its inputs, by contract.
        unsafe { s.dot_u4::<BLOCK, R, C>(acc, w, x) }
    }
}

impl Signed for W4 {
    #[inline(always)]
    unsafe fn signed<S: Isa>(s: S, w: *const u32, to: *mut u32) {
        for line in (0..Self::BLOCK_WORDS).step_by(LANES) {
            // SAFETY: lines of the block, by contract.
            unsafe {
                let w = s.load_words(w.add(line));
                s.store_words(to.add(2 * line), signed_halves(s, w));
                s.store_words(to.add(2 * line + LANES), signed_halves(s, s.shift_words_4(w)));
            }
        }
    }
}
