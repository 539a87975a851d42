//! Rounds weights to integers with scales: sixteen outputs at a time, each lane independent, k ascending.

use redline_simd::{Isa, Kernel, LANES};

use crate::format::{Format, w4, w8};

/// The scales of a strip. The integers replace the values in place.
#[derive(Debug)]
pub(super) struct Quantised {
    /// `[groups][16]` f16, if each group has a scale.
    pub(super) group_scales: Vec<u16>,
    /// `[16]`, if each output has a scale.
    pub(super) output_scales: Vec<f32>,
}

impl Quantised {
    pub(super) fn new(format: Format, cols: usize) -> Self {
        let groups = if format.group() == Some(0) { 0 } else { format.groups_in(cols) };
        Self { group_scales: vec![0; groups * LANES], output_scales: vec![0.0; LANES] }
    }
}

/// Replaces values by integers and records their scales.
pub(super) struct Strip<'a> {
    pub(super) format: Format,
    /// Values, then integers; `[k padded][16]`
    pub(super) lanes: &'a mut [[f32; LANES]],
    pub(super) out: &'a mut Quantised,
}

impl Kernel for Strip<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        match self.format {
            Format::W8 { group: 0 } => {
                let scale = s.div(magnitude(s, self.lanes), s.splat(w8::LARGEST));
                self.out.output_scales.copy_from_slice(&s.to_array(scale));
                round(s, self.lanes, scale, (-w8::LARGEST, w8::LARGEST));
            }
            Format::W8 { group } => {
                for (lanes, scales) in self.groups(group) {
                    let scale = s.div(magnitude(s, lanes), s.splat(w8::LARGEST));
                    let scale = as_f16(s, scale, scales);
                    round(s, lanes, scale, (-w8::LARGEST, w8::LARGEST));
                }
            }
            Format::W4 { group } => {
                for (lanes, scales) in self.groups(group) {
                    let scale = least_error(s, lanes, scales);
                    round(s, lanes, scale, w4::RANGE);
                }
            }
            _ => {}
        }
    }
}

impl<'a> Strip<'a> {
    /// Each group's values and the position of its scales. Padding beyond the last group stays zero.
    #[inline(always)]
    fn groups(self, group: usize) -> impl Iterator<Item = (&'a mut [[f32; LANES]], &'a mut [u16])> {
        self.lanes.chunks_mut(group).zip(self.out.group_scales.chunks_exact_mut(LANES))
    }
}

/// Largest magnitude per lane.
#[inline(always)]
fn magnitude<S: Isa>(s: S, lanes: &[[f32; LANES]]) -> S::F {
    let mut max = s.splat(0.0);
    for lane in lanes {
        // SAFETY: sixteen values.
        let x = unsafe { s.load(lane.as_ptr()) };
        max = s.max(s.max(max, x), s.neg(x));
    }
    max
}

/// Rounds the scales to f16, records them, and returns them widened.
#[inline(always)]
fn as_f16<S: Isa>(s: S, scale: S::F, out: &mut [u16]) -> S::F {
    // SAFETY: sixteen f16 by construction of `out`.
    unsafe {
        s.store_f16(out.as_mut_ptr(), scale);
        s.load_f16(out.as_ptr())
    }
}

/// Smaller scales have no finite inverse; their integers are zero.
const SMALLEST: f32 = f32::MIN_POSITIVE;

/// `1 / scale`, 0 for a scale near 0.
#[inline(always)]
fn inverse<S: Isa>(s: S, scale: S::F) -> S::F {
    let magnitude = s.max(scale, s.neg(scale));
    s.select_lt(s.splat(SMALLEST), magnitude, s.div(s.splat(1.0), scale), s.splat(0.0))
}

/// The integer nearest to `x * inv` within the range.
#[inline(always)]
fn nearest<S: Isa>(s: S, x: S::F, inv: S::F, range: (f32, f32)) -> S::F {
    let (low, high) = (s.splat(range.0), s.splat(range.1));
    let scaled = s.max(s.mul(x, inv), low);
    let clamped = s.select_lt(scaled, high, scaled, high);
    s.to_float(s.to_nearest(clamped))
}

#[inline(always)]
fn round<S: Isa>(s: S, lanes: &mut [[f32; LANES]], scale: S::F, range: (f32, f32)) {
    let inv = inverse(s, scale);
    for lane in lanes {
        // SAFETY: sixteen values.
        unsafe {
            let q = nearest(s, s.load(lane.as_ptr()), inv, range);
            s.store(lane.as_mut_ptr(), q);
        }
    }
}

/// Divisors of the largest magnitude that are tried as scales of four-bit groups: `magnitude / divisor`. Negative divisors map
/// the largest positive value to the longer, negative side of the range.
const DIVISORS: [f32; 22] = [
    -8.5, -8.0, -7.75, -7.5, -7.25, -7.0, -6.75, -6.5, -6.25, -6.0, -5.5, 5.5, 6.0, 6.25, 6.5, 6.75, 7.0,
    7.25, 7.5, 7.75, 8.0, 8.5,
];

/// The f16 scale per lane with the least sum of squared errors: the best of [`DIVISORS`], improved by least squares for its
/// integers.
#[inline(always)]
fn least_error<S: Isa>(s: S, lanes: &[[f32; LANES]], out: &mut [u16]) -> S::F {
    let largest = magnitude(s, lanes);
    let mut best = (s.splat(f32::INFINITY), s.splat(0.0));
    for divisor in DIVISORS {
        let scale = as_f16(s, s.div(largest, s.splat(divisor)), out);
        best = better(s, best, (error(s, lanes, scale), scale));
    }
    for _ in 0..2 {
        let scale = as_f16(s, least_squares(s, lanes, best.1), out);
        best = better(s, best, (error(s, lanes, scale), scale));
    }
    as_f16(s, best.1, out)
}

/// Per lane the pair of error and scale with the smaller error, the first where they are equal.
#[inline(always)]
fn better<S: Isa>(s: S, a: (S::F, S::F), b: (S::F, S::F)) -> (S::F, S::F) {
    (s.select_lt(b.0, a.0, b.0, a.0), s.select_lt(b.0, a.0, b.1, a.1))
}

/// Sum of squared errors per lane.
#[inline(always)]
fn error<S: Isa>(s: S, lanes: &[[f32; LANES]], scale: S::F) -> S::F {
    let inv = inverse(s, scale);
    let minus = s.neg(scale);
    let mut sum = s.splat(0.0);
    for lane in lanes {
        // SAFETY: sixteen values.
        let x = unsafe { s.load(lane.as_ptr()) };
        let off = s.fma(minus, nearest(s, x, inv, w4::RANGE), x);
        sum = s.fma(off, off, sum);
    }
    sum
}

/// The scale with the least squared error for the integers that `scale` gives: `sum x q / sum q^2`.
#[inline(always)]
fn least_squares<S: Isa>(s: S, lanes: &[[f32; LANES]], scale: S::F) -> S::F {
    let inv = inverse(s, scale);
    let (mut products, mut squares) = (s.splat(0.0), s.splat(0.0));
    for lane in lanes {
        // SAFETY: sixteen values.
        let x = unsafe { s.load(lane.as_ptr()) };
        let q = nearest(s, x, inv, w4::RANGE);
        products = s.fma(x, q, products);
        squares = s.fma(q, q, squares);
    }
    let zero = s.splat(0.0);
    s.select_lt(zero, squares, s.div(products, squares), zero)
}
