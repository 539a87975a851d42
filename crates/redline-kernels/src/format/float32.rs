//! f32 weights: strips `[k][16]`, `acc = fma(w, x, acc)`, k ascending. (A module named `f32` would hide the primitive type.)

use redline_simd::{Isa, LANES};

use super::{Codes, Descriptor, Format, Scaling, Widened};
use crate::Arithmetic;

pub(super) const FORMAT: Format = Format::F32;

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "f32",
    arithmetic: Arithmetic::F32,
    codes: Codes::F32,
    groups: &[],
    scaling: Scaling::None,
    largest: f32::MAX,
};

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
