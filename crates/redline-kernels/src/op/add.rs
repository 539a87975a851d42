//! Residual addition: `x += factor * a`, one rounding per element (`fma(a, factor, x)`; with a factor of 1 the sum itself).

use redline_simd::{Isa, Kernel, LANES};

use crate::threads::Disjoint;
use crate::{Exec, Rows, RowsMut};

/// `x[r][i] += factor * a[r][i]`.
pub fn add(exec: Exec<'_>, x: &mut RowsMut<'_>, a: Rows<'_>, factor: f32) {
    assert!(x.rows == a.rows && x.width == a.width, "same shape");
    let (width, stride) = (x.width, x.stride);
    let to = Disjoint::new(x.data);
    exec.team.split(a.rows, 1, 16, |rows| {
        for r in rows {
            // SAFETY: each row is written by the one member that owns it.
            let x = unsafe { std::slice::from_raw_parts_mut(to.get().add(r * stride), width) };
            exec.simd.run(AddRow { x, a: a.row(r), factor });
        }
    });
}

struct AddRow<'a> {
    x: &'a mut [f32],
    a: &'a [f32],
    factor: f32,
}

impl Kernel for AddRow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let factor = s.splat(self.factor);
        for at in (0..self.x.len()).step_by(LANES) {
            let n = (self.x.len() - at).min(LANES);
            // SAFETY: both rows have the same length; `n` lanes remain from `at`.
            unsafe {
                let x = s.load_partial(self.x.as_ptr().add(at), n);
                let a = s.load_partial(self.a.as_ptr().add(at), n);
                s.store_partial(self.x.as_mut_ptr().add(at), s.fma(a, factor, x), n);
            }
        }
    }
}
