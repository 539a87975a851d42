//! Summaries of logits over a whole vocabulary, for greedy choices and their confidences.
//!
//! The largest value m, its lowest index and the largest of the other values (exact in any order); then, as in log-sum-exp,
//! chunks of 4096 ids, 16 lanes each, tree, of `e^(x - m)` and of `(x - m) e^(x - m)`; chunks are summed ascending in f64.
//! Differences below -200 count as -200, where both terms are 0.

use redline_simd::{Isa, Kernel, LANES, Simd};

use super::argmax::argmax;
use super::exp::exp;
use crate::threads::Disjoint;
use crate::{Exec, Rows};

const CHUNK: usize = 4096;
/// Minimum difference; its exponential is 0.
const MIN: f32 = -200.0;

/// Summary of a row of logits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LogitSummary {
    /// The lowest id of the largest logit; 0 if [`LogitSummary::is_finite`] is false.
    pub top: u32,
    /// The largest logit.
    pub max: f32,
    /// The largest logit of all other ids; negative infinity if there is none.
    pub second: f32,
    /// `sum of e^(x - max)`; NaN if any logit is NaN or the largest is infinite.
    pub sum: f64,
    /// `sum of (x - max) e^(x - max)`
    pub weighted: f64,
}

impl LogitSummary {
    /// Whether every logit is a number.
    pub fn is_finite(&self) -> bool {
        self.sum.is_finite()
    }

    /// Probability of the most probable id.
    pub fn probability(&self) -> f64 {
        1.0 / self.sum
    }

    /// Margin of the most probable id over the second, in probability.
    pub fn margin(&self) -> f64 {
        let gap = f64::from(self.second) - f64::from(self.max);
        (1.0 - libm::exp(gap)) / self.sum
    }

    /// `sum of p ln p`: at most 0, and 0 if one id is certain.
    pub fn negative_entropy(&self) -> f64 {
        self.weighted / self.sum - libm::log(self.sum)
    }
}

/// Summaries of all rows, into the first of `out`.
pub fn summaries(exec: Exec<'_>, x: Rows<'_>, out: &mut [LogitSummary]) {
    assert!(out.len() >= x.rows && x.width > 0, "one summary a row");
    let to = Disjoint::new(out);
    exec.team.split(x.rows, 1, 2, |rows| {
        for r in rows {
            // SAFETY: each summary is written by the one member that owns the row.
            unsafe { *to.get().add(r) = summary(exec.simd, x.row(r)) };
        }
    });
}

/// The summary of one row of at least one value.
pub fn summary(simd: Simd, row: &[f32]) -> LogitSummary {
    simd.run(Summarise(row))
}

struct Summarise<'a>(&'a [f32]);

impl Kernel for Summarise<'_> {
    type Output = LogitSummary;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) -> LogitSummary {
        let (max, second) = two_largest(s, self.0);
        let top = argmax(self.0).unwrap_or(0);
        let (m, least) = (s.splat(max), s.splat(MIN));
        let (mut sum, mut weighted) = (0f64, 0f64);
        for chunk in self.0.chunks(CHUNK) {
            let [mut sums, mut products] = [s.splat(0.0); 2];
            each(s, chunk, |x| {
                let x = s.sub(x, m);
                let x = s.select_lt(x, least, least, x);
                let e = exp(s, x);
                sums = s.add(sums, e);
                products = s.fma(x, e, products);
            });
            sum += f64::from(s.reduce_add(sums));
            weighted += f64::from(s.reduce_add(products));
        }
        LogitSummary { top, max, second, sum, weighted }
    }
}

/// Calls `f` with sixteen values at a time; the last vector is padded with negative infinity.
#[inline(always)]
fn each<S: Isa>(s: S, values: &[f32], mut f: impl FnMut(S::F)) {
    let (whole, rest) = values.as_chunks::<LANES>();
    for lanes in whole {
        // SAFETY: sixteen values.
        f(unsafe { s.load(lanes.as_ptr()) });
    }
    if !rest.is_empty() {
        let mut tail = [f32::NEG_INFINITY; LANES];
        tail[..rest.len()].copy_from_slice(rest);
        // SAFETY: sixteen values.
        f(unsafe { s.load(tail.as_ptr()) });
    }
}

/// The largest value, and the largest of the others. NaN is ignored.
#[inline(always)]
fn two_largest<S: Isa>(s: S, row: &[f32]) -> (f32, f32) {
    let [mut first, mut second] = [s.splat(f32::NEG_INFINITY); 2];
    each(s, row, |x| {
        let beaten = s.select_lt(first, x, first, x);
        second = s.select_lt(second, beaten, beaten, second);
        first = s.select_lt(first, x, x, first);
    });
    let max = s.reduce_max(first);
    let (firsts, seconds) = (s.to_array(first), s.to_array(second));
    let lane = firsts.iter().position(|&x| x == max).unwrap_or(0);
    let others = firsts.iter().enumerate().filter(|(i, _)| *i != lane).map(|(_, x)| x).chain(&seconds);
    let second = others.fold(f32::NEG_INFINITY, |a, &b| if a < b { b } else { a });
    (max, second)
}
