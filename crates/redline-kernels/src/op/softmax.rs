//! Log-sum-exp over a whole vocabulary.
//!
//! The maximum over all ids (exact in any order); then chunks of 4096 ids, 16 lanes each, tree; chunks are summed ascending,
//! and the logarithm is taken in f64.

use redline_simd::{Isa, Kernel, LANES};

use super::exp::exp;
use crate::threads::Disjoint;
use crate::{Exec, Rows};

const CHUNK: usize = 4096;

/// `out[r] = ln(sum over i of e^x[r][i])` for every row; NaN if any value of the row is NaN.
pub fn log_sum_exp(exec: Exec<'_>, x: Rows<'_>, out: &mut [f64]) {
    assert!(out.len() >= x.rows && x.width > 0, "one value a row");
    let to = Disjoint::new(out);
    exec.team.split(x.rows, 1, 2, |rows| {
        for r in rows {
            // SAFETY: each value is written by the one member that owns the row.
            unsafe { *to.get().add(r) = exec.simd.run(LogSumExp(x.row(r))) };
        }
    });
}

struct LogSumExp<'a>(&'a [f32]);

impl Kernel for LogSumExp<'_> {
    type Output = f64;
    #[inline(always)]
    fn run<S: Isa>(self, s: S) -> f64 {
        let max = row_max(s, self.0);
        let m = s.splat(max);
        let mut total = 0f32;
        for chunk in self.0.chunks(CHUNK) {
            let mut sum = s.splat(0.0);
            let (whole, rest) = chunk.split_at(chunk.len() / LANES * LANES);
            for lanes in whole.chunks_exact(LANES) {
                // SAFETY: sixteen values.
                let x = unsafe { s.load(lanes.as_ptr()) };
                sum = s.add(sum, exp(s, s.sub(x, m)));
            }
            if !rest.is_empty() {
                let mut tail = [f32::NEG_INFINITY; LANES];
                tail[..rest.len()].copy_from_slice(rest);
                // SAFETY: sixteen values.
                let x = unsafe { s.load(tail.as_ptr()) };
                sum = s.add(sum, exp(s, s.sub(x, m)));
            }
            total += s.reduce_add(sum);
        }
        f64::from(max) + libm::log(f64::from(total))
    }
}

/// The largest value, NaN ignored.
#[inline(always)]
fn row_max<S: Isa>(s: S, row: &[f32]) -> f32 {
    let mut m = s.splat(f32::NEG_INFINITY);
    let (whole, rest) = row.split_at(row.len() / LANES * LANES);
    for lanes in whole.chunks_exact(LANES) {
        // SAFETY: sixteen values.
        m = s.max(m, unsafe { s.load(lanes.as_ptr()) });
    }
    let mut max = s.reduce_max(m);
    for &x in rest {
        max = if max < x { x } else { max };
    }
    max
}
