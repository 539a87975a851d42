//! f16 weights: strips `[k][16]`, widened exactly, `acc = fma(w, x, acc)`, k ascending. Values are rounded to nearest even.

use redline_simd::{Isa, Kernel, LANES};

use super::{Codes, Descriptor, Format, Scaling, Widened};
use crate::Arithmetic;

pub(super) const FORMAT: Format = Format::F16;

/// The largest f16.
pub(super) const LARGEST: f32 = 65504.0;

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "f16",
    arithmetic: Arithmetic::F32,
    codes: Codes::F16,
    groups: &[],
    scaling: Scaling::None,
    largest: LARGEST,
};

/// Rounds columns of sixteen lanes to f16.
pub(crate) struct Narrow<'a> {
    pub(crate) lanes: &'a [[f32; LANES]],
    /// `[columns][16]` f16, two in each word.
    pub(crate) words: &'a mut [u32],
}

impl Kernel for Narrow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        for (lanes, words) in self.lanes.iter().zip(self.words.chunks_exact_mut(LANES / 2)) {
            // SAFETY: sixteen values, and room for sixteen f16.
            unsafe { s.store_f16(words.as_mut_ptr().cast(), s.load(lanes.as_ptr())) };
        }
    }
}

/// f16 values, widened exactly, times f32 inputs.
pub(crate) struct HalfMac;

impl Widened for HalfMac {
    const WORDS: usize = LANES / 2;
    #[inline(always)]
    unsafe fn load<S: Isa>(s: S, p: *const u32) -> S::F {
        // SAFETY: 8 readable words, sixteen f16, by contract.
        unsafe { s.load_f16(p.cast()) }
    }
}
