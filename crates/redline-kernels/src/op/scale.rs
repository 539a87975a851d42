//! Scaling: every value of a row times one number, one rounding per element.

use redline_simd::{Isa, Kernel, LANES};

use crate::threads::Disjoint;
use crate::{Exec, RowsMut};

/// `x[r][i] *= factor(r)`. Rows whose factor is 1 are not touched.
pub fn scale(exec: Exec<'_>, x: &mut RowsMut<'_>, factor: impl Fn(usize) -> f32 + Sync) {
    let (rows, width, stride) = (x.rows, x.width, x.stride);
    let to = Disjoint::new(x.data);
    exec.team.split(rows, 1, 16, |rows| {
        for r in rows {
            let factor = factor(r);
            if factor != 1.0 {
                // SAFETY: each row is written by the one member that owns it.
                let x = unsafe { std::slice::from_raw_parts_mut(to.get().add(r * stride), width) };
                exec.simd.run(ScaleRow { x, factor });
            }
        }
    });
}

struct ScaleRow<'a> {
    x: &'a mut [f32],
    factor: f32,
}

impl Kernel for ScaleRow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let factor = s.splat(self.factor);
        for chunk in self.x.chunks_mut(LANES) {
            // SAFETY: the chunk holds the lanes that are read and written.
            unsafe {
                let x = s.load_partial(chunk.as_ptr(), chunk.len());
                s.store_partial(chunk.as_mut_ptr(), s.mul(x, factor), chunk.len());
            }
        }
    }
}
