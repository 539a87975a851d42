//! f32 weights: strips `[k][16]`, `acc = fma(w, x, acc)`, k ascending.

use redline_simd::{Isa, LANES};

use super::{Format, Mac};

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

impl Mac for F32Mac {
    const WORDS: usize = LANES;
    type Weight<S: Isa> = S::F;
    type Input<S: Isa> = S::F;
    #[inline(always)]
    unsafe fn weight<S: Isa>(s: S, p: *const u32) -> S::F {
        // SAFETY: 16 readable words by contract.
        unsafe { s.load(p.cast()) }
    }
    #[inline(always)]
    fn input<S: Isa>(s: S, word: u32) -> S::F {
        s.splat(f32::from_bits(word))
    }
    #[inline(always)]
    fn mac<S: Isa>(s: S, acc: S::F, w: S::F, x: S::F) -> S::F {
        s.fma(w, x, acc)
    }
}
