//! Looks up rows of a matrix: `out[r] = matrix[ids[r]]`, with the bits that a linear layer uses.

use crate::threads::Disjoint;
use crate::{Exec, Matrix, RowsMut};

/// `out` is `[ids, matrix.cols()]`; every id is below `matrix.rows()`.
pub fn embedding(exec: Exec<'_>, matrix: &Matrix, ids: &[u32], out: &mut RowsMut<'_>) {
    assert!(out.rows == ids.len() && out.width == matrix.cols(), "a row for every id");
    let (width, stride, to) = (out.width, out.stride, Disjoint::new(out.data));
    exec.team.split(ids.len(), 1, 8, |rows| {
        for r in rows {
            // SAFETY: each row is written by the one member that owns it.
            let out = unsafe { std::slice::from_raw_parts_mut(to.get().add(r * stride), width) };
            matrix.row(ids[r] as usize, out);
        }
    });
}
