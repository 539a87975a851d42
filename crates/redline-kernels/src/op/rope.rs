//! Rotary position embedding (Su et al. 2021) in the half-split form of Hugging Face checkpoints.
//!
//! Tables in f64 with a pure-Rust sine and cosine, then rounded to f32 once; `fma(x0, c, -(x1 * s))`, `fma(x1, c, x0 * s)`.

use redline_simd::{Isa, Kernel, LANES};

use crate::memory::{Buffer, OutOfMemory};
use crate::threads::Disjoint;
use crate::{Exec, RowsMut};

/// Cosines and sines, `[positions, head_dim / 2]` each.
#[derive(Debug)]
pub struct RopeTable {
    inverse_frequencies: Vec<f64>,
    positions: usize,
    cos: Buffer<f32>,
    sin: Buffer<f32>,
}

impl RopeTable {
    /// A table without positions yet; `inverse_frequencies` has `head_dim / 2` values.
    pub fn new(inverse_frequencies: Vec<f64>) -> Result<Self, OutOfMemory> {
        Ok(Self { inverse_frequencies, positions: 0, cos: Buffer::zeroed(0)?, sin: Buffer::zeroed(0)? })
    }

    /// Makes the table hold at least `positions` positions.
    pub fn reserve(&mut self, positions: usize) -> Result<(), OutOfMemory> {
        if positions <= self.positions {
            return Ok(());
        }
        let half = self.inverse_frequencies.len();
        let (mut cos, mut sin) = (Buffer::zeroed(positions * half)?, Buffer::zeroed(positions * half)?);
        let known = self.positions * half;
        cos[..known].copy_from_slice(&self.cos);
        sin[..known].copy_from_slice(&self.sin);
        for position in self.positions..positions {
            for (i, frequency) in self.inverse_frequencies.iter().enumerate() {
                let angle = position as f64 * frequency;
                cos[position * half + i] = libm::cos(angle) as f32;
                sin[position * half + i] = libm::sin(angle) as f32;
            }
        }
        (self.cos, self.sin, self.positions) = (cos, sin, positions);
        Ok(())
    }
}

/// Rotates `heads` heads of every row in place, the first at column `at`. `positions[r]` is row r's position.
pub fn rope(
    exec: Exec<'_>,
    table: &RopeTable,
    positions: &[u32],
    x: &mut RowsMut<'_>,
    at: usize,
    heads: usize,
) {
    let half = table.inverse_frequencies.len();
    assert!(
        positions.len() == x.rows && at + heads * 2 * half <= x.width,
        "{heads} heads of {} at {at}",
        2 * half
    );
    assert!(positions.iter().all(|&p| (p as usize) < table.positions), "{} positions", table.positions);
    let (stride, to) = (x.stride, Disjoint::new(x.data));
    exec.team.split(positions.len(), 1, 16, |rows| {
        for r in rows {
            let position = positions[r] as usize * half;
            let (cos, sin) = (&table.cos[position..][..half], &table.sin[position..][..half]);
            // SAFETY: each row is written by the one member that owns it; the heads lie within the row.
            let x =
                unsafe { std::slice::from_raw_parts_mut(to.get().add(r * stride + at), heads * 2 * half) };
            exec.simd.run(Rotate { x, cos, sin });
        }
    });
}

struct Rotate<'a> {
    x: &'a mut [f32],
    cos: &'a [f32],
    sin: &'a [f32],
}

impl Kernel for Rotate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let half = self.cos.len();
        for head in self.x.chunks_exact_mut(2 * half) {
            let (first, second) = head.split_at_mut(half);
            for at in (0..half).step_by(LANES) {
                let n = (half - at).min(LANES);
                // SAFETY: all four slices have `half` values; `n` remain from `at`.
                unsafe {
                    let c = s.load_partial(self.cos.as_ptr().add(at), n);
                    let d = s.load_partial(self.sin.as_ptr().add(at), n);
                    let x0 = s.load_partial(first.as_ptr().add(at), n);
                    let x1 = s.load_partial(second.as_ptr().add(at), n);
                    let y0 = s.fma(x0, c, s.neg(s.mul(x1, d)));
                    let y1 = s.fma(x1, c, s.mul(x0, d));
                    s.store_partial(first.as_mut_ptr().add(at), y0, n);
                    s.store_partial(second.as_mut_ptr().add(at), y1, n);
                }
            }
        }
    }
}
