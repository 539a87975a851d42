//! bf16 weights: strips `[k/2][16][2]` with pairs swapped (element k in the high half, k + 1 in the low half), so that
//! `vdpbf16ps`, which adds the high product first, runs k ascending like every other tier.
//!
//! Weights and inputs with magnitude below 2^-55 are flushed to +0. Then no product and no partial sum can be denormal, so the
//! instruction's flushing of denormals has no effect.

use redline_simd::{Isa, LANES};

use super::{Codes, Descriptor, Format, Mac, Scaling, Widened};
use crate::threads::Disjoint;
use crate::{Arithmetic, Exec, Rows};

pub(super) const FORMAT: Format = Format::Bf16;

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "bf16",
    arithmetic: Arithmetic::Bf16,
    codes: Codes::Bf16,
    groups: &[],
    scaling: Scaling::None,
    largest: f32::from_bits(0x7f7f_0000),
};

/// Smallest magnitude kept: 2^-55.
const SMALLEST: u32 = (127 - 55) << 23;

/// Rounds to bf16, to nearest even. A NaN becomes the quiet NaN of its sign; magnitudes below 2^-55 become +0.
#[inline(always)]
pub fn round(value: f32) -> u16 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let kept = if magnitude < SMALLEST { 0 } else { rounded };
    (if magnitude > 0x7f80_0000 { bits >> 31 << 15 | 0x7fc0 } else { kept }) as u16
}

/// The f32 of the same value.
#[inline(always)]
pub fn widen(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

#[inline(always)]
pub(crate) fn insert(word: &mut u32, k: usize, value: f32) {
    let half = u32::from(round(value));
    *word = if k % 2 == 0 { half << 16 | *word & 0xffff } else { *word & 0xffff_0000 | half };
}

/// Writes rows `[rows, width]` as words of swapped pairs, `[rows, steps]`.
pub(crate) fn pack_inputs(exec: Exec<'_>, x: Rows<'_>, out: &mut [u32]) {
    let steps = Format::Bf16.steps(x.width);
    assert!(out.len() >= x.rows * steps);
    let to = Disjoint::new(out);
    exec.team.split(x.rows, 1, 8, |rows| {
        for r in rows {
            // SAFETY: each row of `out` is written by the one member that owns the row.
            let out = unsafe { std::slice::from_raw_parts_mut(to.get().add(r * steps), steps) };
            pack_row(x.row(r), out);
        }
    });
}

/// One row as words of swapped pairs; a missing last element is +0.
#[inline(always)]
pub(crate) fn pack_row(row: &[f32], out: &mut [u32]) {
    let (pairs, last) = row.as_chunks::<2>();
    for (word, pair) in out.iter_mut().zip(pairs) {
        *word = u32::from(round(pair[0])) << 16 | u32::from(round(pair[1]));
    }
    if let [x] = last {
        out[pairs.len()] = u32::from(round(*x)) << 16;
    }
}

/// bf16 pairs of weights times bf16 pairs of inputs.
pub(crate) struct Bf16Mac;

impl Mac for Bf16Mac {
    const WORDS: usize = LANES;
    const SPLIT: bool = true;
    type Weight<S: Isa> = S::W;
    type Input<S: Isa> = S::W;
    #[inline(always)]
    unsafe fn weight<S: Isa>(s: S, p: *const u32) -> S::W {
        // SAFETY: 16 readable words by contract.
        unsafe { s.load_words(p) }
    }
    #[inline(always)]
    fn input<S: Isa>(s: S, word: u32) -> S::W {
        s.splat_word(word)
    }
    #[inline(always)]
    fn mac<S: Isa>(s: S, acc: S::F, w: S::W, x: S::W) -> S::F {
        s.dot_bf16(acc, w, x)
    }
}

/// bf16 values, widened exactly, times f32 inputs: probabilities times values.
pub(crate) struct WidenMac;

impl Widened for WidenMac {
    const WORDS: usize = LANES / 2;
    #[inline(always)]
    unsafe fn load<S: Isa>(s: S, p: *const u32) -> S::F {
        // SAFETY: 8 readable words, sixteen bf16, by contract.
        unsafe { s.load_bf16(p.cast()) }
    }
}
