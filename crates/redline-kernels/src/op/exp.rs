//! The exponential function, one polynomial for every tier.
//!
//! Order: `n = rne(x * log2 e)`; `r = fma(-n, ln2_hi, x)`, `r = fma(-n, ln2_lo, r)`; Horner with fma; exponent by integer
//! addition. Below -87 the result is +0, above 88 it is that for 88; `exp(0)` is exactly 1; NaN stays NaN.
//! Error at most 2 units in the last place (checked by a test over the whole range).

use redline_simd::{Isa, Kernel};

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// High part of ln 2: few mantissa bits, so that `n * LN2_HI` is exact.
const LN2_HI: f32 = 0.693_359_4;
const LN2_LO: f32 = -2.121_944_4e-4;
/// Adding and subtracting 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits.
const ROUND: f32 = 12_582_912.0;
const LOWEST: f32 = -87.0;
const HIGHEST: f32 = 88.0;
/// 1/n!, n = 7 to 2, with the last digits fitted on [-ln2/2, ln2/2] (Cephes `expf`).
const COEFFICIENTS: [f32; 6] =
    [1.987_569_1e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1];

/// e to the power of each lane.
#[inline(always)]
pub(crate) fn exp<S: Isa>(s: S, x: S::F) -> S::F {
    let high = s.splat(HIGHEST);
    exp_of(s, x, s.select_lt(high, x, high, x))
}

/// [`exp`] of lanes that are at most 0, or NaN.
#[inline(always)]
pub(crate) fn exp_of_nonpositive<S: Isa>(s: S, x: S::F) -> S::F {
    exp_of(s, x, x)
}

/// e to the power of `y`, which is the smaller of `x` and [`HIGHEST`].
#[inline(always)]
fn exp_of<S: Isa>(s: S, x: S::F, y: S::F) -> S::F {
    let shifted = s.add(s.mul(y, s.splat(LOG2_E)), s.splat(ROUND));
    let n = s.neg(s.sub(shifted, s.splat(ROUND)));
    let r = s.fma(n, s.splat(LN2_HI), y);
    let r = s.fma(n, s.splat(LN2_LO), r);
    let mut p = s.splat(COEFFICIENTS[0]);
    p = s.fma(p, r, s.splat(COEFFICIENTS[1]));
    p = s.fma(p, r, s.splat(COEFFICIENTS[2]));
    p = s.fma(p, r, s.splat(COEFFICIENTS[3]));
    p = s.fma(p, r, s.splat(COEFFICIENTS[4]));
    p = s.fma(p, r, s.splat(COEFFICIENTS[5]));
    p = s.fma(p, s.mul(r, r), r);
    p = s.add(p, s.splat(1.0));
    let scaled = s.scale_by_exponent(p, shifted);
    s.select_lt(x, s.splat(LOWEST), s.splat(0.0), scaled)
}

/// e to the power of every element, in place.
pub(crate) struct ExpInPlace<'a>(pub(crate) &'a mut [f32]);

impl Kernel for ExpInPlace<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        for chunk in self.0.chunks_mut(redline_simd::LANES) {
            // SAFETY: the chunk holds the lanes that are read and written.
            unsafe {
                let x = s.load_partial(chunk.as_ptr(), chunk.len());
                s.store_partial(chunk.as_mut_ptr(), exp(s, x), chunk.len());
            }
        }
    }
}

/// e to the power of every element of `values`, in place.
pub fn exp_in_place(simd: redline_simd::Simd, values: &mut [f32]) {
    simd.run(ExpInPlace(values));
}
