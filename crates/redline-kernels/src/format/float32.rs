//! f32 weights: strips `[k][16]`, `acc = fma(w, x, acc)`, k ascending. (A module named `f32` would hide the primitive type.)

use redline_simd::{Isa, LANES};

use super::{Format, Widened};

pub(super) const FORMAT: Format = Format::F32;

#[inline(always)]
pub(super) fn insert(word: &mut u32, value: f32) {
    *word = value.to_bits();
}

#[inline(always)]
pub(super) fn extract(word: u32) -> f32 {
    f32::from_bits(word)
}

/// f32 weights times f32 inputs.
pub(crate) struct F32Mac;

impl Widened for F32Mac {
    const WORDS: usize = LANES;
    #[inline(always)]
    unsafe fn load<S: Isa>(s: S, p: *const u32) -> S::F {
        // SAFETY: 16 readable words by contract.
        unsafe { s.load(p.cast()) }
    }
}
