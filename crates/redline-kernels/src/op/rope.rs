//! Rotary position embedding (Su et al. 2021), of dimensions half a head apart or side by side.
//!
//! Tables are computed in f64 with a pure-Rust sine and cosine, times the factor of the rotation, and rounded to f32 once; `fma(x0, c,
//! -(x1 * s))`, `fma(x1, c, x0 * s)` for the two dimensions of a pair. A rotation may cover only the first dimensions of a head: the others
//! are left as they are.

use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES};

use crate::memory::{Buffer, OutOfMemory};
use crate::threads::Disjoint;
use crate::{Exec, RowsMut};

/// Number of positions in the first buffer of a table; each further buffer holds as many as all before it.
const FIRST: usize = 256;

/// Which two of the rotated dimensions of a head turn together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RotatedPairs {
    /// Dimension i and the one half of the rotated dimensions after it: most Hugging Face checkpoints.
    #[default]
    Halves,
    /// Dimensions 2i and 2i + 1, interleaved: RoFormer, GPT-J, GLM, Cohere.
    Neighbours,
}

/// Cosines and sines of the first positions. Memory is reserved when a request arrives; each pass computes the values for the
/// positions that its sequences reach. So no request or pass waits for the whole table of a long context.
#[derive(Debug)]
pub struct RopeTable {
    inverse_frequencies: Vec<f64>,
    /// Dimension of a head.
    head_dim: usize,
    /// Factor on cosines and sines.
    factor: f64,
    /// Which dimensions turn together.
    pairs: RotatedPairs,
    /// `[positions][2][rotary_dim / 2]`: cosines, then sines; of neighbours `[positions][2][rotary_dim]`, each value twice, the first of
    /// the two sines negated. Buffers are never moved, so growth copies nothing.
    buffers: Vec<Buffer<f32>>,
    /// Number of positions that have values.
    computed: usize,
}

impl RopeTable {
    /// Creates a table without positions that rotates whole heads; `inverse_frequencies` has `head_dim / 2` values.
    pub fn new(inverse_frequencies: Vec<f64>) -> Self {
        let head_dim = 2 * inverse_frequencies.len();
        Self::partial(inverse_frequencies, head_dim, 1.0, RotatedPairs::Halves)
    }

    /// Creates a table without positions that rotates the first `2 * inverse_frequencies.len()` of `head_dim` dimensions, and
    /// multiplies them by `factor` (the attention factor of YaRN and LongRoPE).
    pub fn partial(inverse_frequencies: Vec<f64>, head_dim: usize, factor: f64, pairs: RotatedPairs) -> Self {
        let rotary = 2 * inverse_frequencies.len();
        assert!(rotary <= head_dim, "{rotary} rotated dimensions of {head_dim}");
        Self { inverse_frequencies, head_dim, factor, pairs, buffers: Vec::new(), computed: 0 }
    }

    /// Dimension of a head.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Number of cosines of a position, and of sines.
    fn values(&self) -> usize {
        match self.pairs {
            RotatedPairs::Halves => self.inverse_frequencies.len(),
            RotatedPairs::Neighbours => 2 * self.inverse_frequencies.len(),
        }
    }

    /// Number of positions with reserved memory.
    pub fn reserved(&self) -> usize {
        match self.buffers.len() {
            0 => 0,
            n => FIRST << (n - 1),
        }
    }

    /// Number of positions that have values.
    pub fn computed(&self) -> usize {
        self.computed
    }

    /// Reserves memory for at least `positions` positions without computing them.
    pub fn reserve(&mut self, positions: usize) -> Result<(), OutOfMemory> {
        while self.reserved() < positions {
            let more = self.reserved().max(FIRST);
            self.buffers.push(Buffer::zeroed(more.saturating_mul(2 * self.values()))?);
        }
        Ok(())
    }

    /// Computes the values of the first `positions` positions that have none yet. Their memory must be reserved.
    pub fn compute(&mut self, positions: usize) {
        assert!(positions <= self.reserved(), "{positions} positions, room for {}", self.reserved());
        let (factor, pairs, values) = (self.factor, self.pairs, self.values());
        for position in self.computed..positions {
            let (buffer, range) = self.place(position);
            let (cos, sin) = self.buffers[buffer][range].split_at_mut(values);
            for (i, frequency) in self.inverse_frequencies.iter().enumerate() {
                let angle = position as f64 * frequency;
                let (c, d) = ((libm::cos(angle) * factor) as f32, (libm::sin(angle) * factor) as f32);
                match pairs {
                    RotatedPairs::Halves => (cos[i], sin[i]) = (c, d),
                    RotatedPairs::Neighbours => {
                        cos[2 * i..][..2].fill(c);
                        sin[2 * i..][..2].copy_from_slice(&[-d, d]);
                    }
                }
            }
        }
        self.computed = self.computed.max(positions);
    }

    /// The buffer of a position, and the range of its values there.
    fn place(&self, position: usize) -> (usize, Range<usize>) {
        let buffer = (position / FIRST).checked_ilog2().map_or(0, |n| n as usize + 1);
        let before = if buffer == 0 { 0 } else { FIRST << (buffer - 1) };
        let width = 2 * self.values();
        let at = (position - before) * width;
        (buffer, at..at + width)
    }

    /// Cosines and sines of a position.
    fn row(&self, position: usize) -> (&[f32], &[f32]) {
        let (buffer, range) = self.place(position);
        self.buffers[buffer][range].split_at(self.values())
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
    let width = heads * table.head_dim();
    assert!(
        positions.len() == x.rows && at + width <= x.width,
        "{heads} heads of {} at {at}",
        table.head_dim()
    );
    assert!(positions.iter().all(|&p| (p as usize) < table.computed), "{} positions", table.computed);
    let (stride, to) = (x.stride, Disjoint::new(x.data));
    exec.team.split(positions.len(), 1, 16, |rows| {
        for r in rows {
            let (cos, sin) = table.row(positions[r] as usize);
            // SAFETY: each row is written by the one member that owns it; the heads lie within the row.
            let x = unsafe { std::slice::from_raw_parts_mut(to.get().add(r * stride + at), width) };
            exec.simd.run(Rotate { x, head_dim: table.head_dim, pairs: table.pairs, cos, sin });
        }
    });
}

struct Rotate<'a> {
    x: &'a mut [f32],
    head_dim: usize,
    pairs: RotatedPairs,
    cos: &'a [f32],
    sin: &'a [f32],
}

impl Kernel for Rotate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        match self.pairs {
            RotatedPairs::Halves => self.rotate_halves(s),
            RotatedPairs::Neighbours => self.rotate_neighbours(s),
        }
    }
}

impl Rotate<'_> {
    #[inline(always)]
    fn rotate_neighbours<S: Isa>(self, s: S) {
        let rotated = self.cos.len();
        for head in self.x.chunks_exact_mut(self.head_dim) {
            let head = &mut head[..rotated];
            for at in (0..rotated).step_by(LANES) {
                let n = (rotated - at).min(LANES);
                // SAFETY: all three slices have `rotated` values; `n` remain from `at`.
                unsafe {
                    let c = s.load_partial(self.cos.as_ptr().add(at), n);
                    let d = s.load_partial(self.sin.as_ptr().add(at), n);
                    let x = s.load_partial(head.as_ptr().add(at), n);
                    let y = s.fma(x, c, s.mul(s.swap_lanes::<1>(x), d));
                    s.store_partial(head.as_mut_ptr().add(at), y, n);
                }
            }
        }
    }

    #[inline(always)]
    fn rotate_halves<S: Isa>(self, s: S) {
        let half = self.cos.len();
        for head in self.x.chunks_exact_mut(self.head_dim) {
            let (first, second) = head[..2 * half].split_at_mut(half);
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
