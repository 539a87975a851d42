//! Heads whose two halves lie side by side.

use crate::threads::Disjoint;
use crate::{Exec, Rows, RowsMut};

/// Writes the first halves of all heads of a row one after the other, then the second halves: `a0 b0 a1 b1` becomes `a0 a1 b0 b1`, where
/// each has `width` values.
pub fn split_heads(exec: Exec<'_>, x: Rows<'_>, width: usize, out: &mut RowsMut<'_>) {
    assert!(
        x.width == out.width && x.rows == out.rows && x.width % (2 * width) == 0,
        "pairs of {width} values"
    );
    let (half, stride) = (x.width / 2, out.stride);
    let to = Disjoint::new(out.data);
    exec.team.split(x.rows, 1, 8, |rows| {
        for r in rows {
            // SAFETY: each row is written by the one member that owns it.
            let out = unsafe { std::slice::from_raw_parts_mut(to.get().add(r * stride), 2 * half) };
            let (first, second) = out.split_at_mut(half);
            let parts = first.chunks_exact_mut(width).zip(second.chunks_exact_mut(width));
            for (pair, (a, b)) in x.row(r).chunks_exact(2 * width).zip(parts) {
                a.copy_from_slice(&pair[..width]);
                b.copy_from_slice(&pair[width..]);
            }
        }
    });
}
