//! Soft caps: `cap * tanh(x / cap)` (Gemma 2), which bounds logits smoothly.
//!
//! `u = x / cap`, a true division; `e = exp(-2 |u|)` with the exponential of [`super::exp`]; `t = (1 - e) / (1 + e)` with the sign of
//! u; `t * cap`. Below a magnitude of 1, the error of t is absolute (about 1e-7), as is that of the sums that are capped.

use redline_simd::{Isa, Kernel, LANES};

use super::exp::exp;
use crate::threads::Disjoint;
use crate::{Exec, RowsMut};

/// `cap * tanh(x / cap)` of each lane.
#[inline(always)]
pub(crate) fn soft_capped<S: Isa>(s: S, x: S::F, cap: S::F) -> S::F {
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    let u = s.div(x, cap);
    // -2 |u|; a NaN stays one.
    let twice = s.add(u, u);
    let e = exp(s, s.select_lt(u, zero, twice, s.neg(twice)));
    let t = s.div(s.sub(one, e), s.add(one, e));
    s.mul(s.select_lt(u, zero, s.neg(t), t), cap)
}

/// `x[r][i] = cap * tanh(x[r][i] / cap)`.
pub fn softcap(exec: Exec<'_>, x: &mut RowsMut<'_>, cap: f32) {
    let (rows, width, stride) = (x.rows, x.width, x.stride);
    let to = Disjoint::new(x.data);
    exec.team.split(rows, 1, 4, |rows| {
        for r in rows {
            // SAFETY: each row is written by the one member that owns it.
            let x = unsafe { std::slice::from_raw_parts_mut(to.get().add(r * stride), width) };
            exec.simd.run(CapRow { x, cap });
        }
    });
}

struct CapRow<'a> {
    x: &'a mut [f32],
    cap: f32,
}

impl Kernel for CapRow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let cap = s.splat(self.cap);
        for chunk in self.x.chunks_mut(LANES) {
            // SAFETY: the chunk holds the lanes that are read and written.
            unsafe {
                let x = s.load_partial(chunk.as_ptr(), chunk.len());
                s.store_partial(chunk.as_mut_ptr(), soft_capped(s, x, cap), chunk.len());
            }
        }
    }
}
