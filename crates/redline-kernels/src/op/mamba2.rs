//! Mamba-2 (Dao and Gu 2024), a recurrence over the rows of a sequence.
//!
//! A head has a matrix S of `state_dim` rows and `head_dim` columns, zero before the first row of a sequence. A row has an input x, a step
//! dt and a decay a of each head, and B and C of each group of heads. The order, for a column p: `t = dt * x[p]`; for n ascending
//! `S[n][p] = fma(B[n], t, a * S[n][p])` and `y = fma(S[n][p], C[n], y)` in one chain from 0; the output is `fma(D, x[p], y)`. All of it is
//! f32, and S is never rounded. So the bits do not depend on how a sequence is divided into passes.
//!
//! Step and decay: `dt = softplus(dt + bias)` between two limits, `a = exp(decay * dt)`, where `decay` is negative.

use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES};

use super::exp::exp;
use super::kv::PassPages;
use super::softplus::softplus;
use crate::threads::Disjoint;
use crate::{Exec, Rows, RowsMut};

/// Number of strips of sixteen columns whose chains run side by side.
const SIDE_BY_SIDE: usize = 4;

/// The heads of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mamba2Shape {
    /// Number of heads, each with a matrix.
    pub heads: usize,
    /// Number of values of a head's input and output.
    pub head_dim: usize,
    /// Groups of neighbouring heads that share B and C.
    pub groups: usize,
    /// Number of values of a B and of a C.
    pub state_dim: usize,
}

impl Mamba2Shape {
    /// Number of values of the inputs of all heads of a row, and of their outputs.
    pub fn values(self) -> usize {
        self.heads * self.head_dim
    }

    /// Number of values of the inputs, then of all B, then of all C of a row.
    pub fn channels(self) -> usize {
        self.values() + 2 * self.groups * self.state_dim
    }
}

/// Writes steps and decays of each row, `[2 * heads]`, from `[heads]`. `decay` and `bias` are `[heads]`; a step lies between `limits`.
pub fn steps_and_decays(
    exec: Exec<'_>,
    x: Rows<'_>,
    (decay, bias): (&[f32], &[f32]),
    limits: (f32, f32),
    out: &mut RowsMut<'_>,
) {
    let (heads, stride) = (decay.len(), out.stride);
    assert!(
        bias.len() == heads && x.width == heads && out.width == 2 * heads,
        "one step of each of {heads} heads"
    );
    assert!(x.rows == out.rows, "same rows");
    let to = Disjoint::new(out.data);
    exec.team.split(x.rows, 1, 64, |rows| {
        for r in rows {
            // SAFETY: each row is written by the one member that owns it.
            let to = unsafe { std::slice::from_raw_parts_mut(to.get().add(r * stride), 2 * heads) };
            exec.simd.run(Steps { x: x.row(r), decay, bias, limits, to });
        }
    });
}

struct Steps<'a> {
    x: &'a [f32],
    decay: &'a [f32],
    bias: &'a [f32],
    limits: (f32, f32),
    to: &'a mut [f32],
}

impl Kernel for Steps<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let heads = self.decay.len();
        let (steps, decays) = self.to.split_at_mut(heads);
        let (low, high) = (s.splat(self.limits.0), s.splat(-self.limits.1));
        for at in (0..heads).step_by(LANES) {
            let n = (heads - at).min(LANES);
            // SAFETY: `n` heads remain from `at`.
            unsafe {
                let x = s.load_partial(self.x.as_ptr().add(at), n);
                let x = s.add(x, s.load_partial(self.bias.as_ptr().add(at), n));
                let step = s.neg(s.max(s.neg(s.max(softplus(s, x, n), low)), high));
                s.store_partial(steps.as_mut_ptr().add(at), step, n);
                let decay = s.load_partial(self.decay.as_ptr().add(at), n);
                s.store_partial(decays.as_mut_ptr().add(at), exp(s, s.mul(decay, step)), n);
            }
        }
    }
}

impl PassPages<'_> {
    /// Runs all rows of the batch, and adds them to the states of their sequences. `layer` counts the layers that are recurrences. A row
    /// of `xbc` is the inputs of all heads, then B, then C of all groups; one of `steps` is that of [`steps_and_decays`]; `skip`, D, is
    /// `[heads]`; a row of `out` is `[heads * head_dim]`.
    ///
    /// # Panics
    /// If the shapes do not fit each other and those of the layer.
    pub fn mamba2(
        &mut self,
        exec: Exec<'_>,
        (layer, shape): (usize, Mamba2Shape),
        xbc: Rows<'_>,
        steps: Rows<'_>,
        skip: &[f32],
        out: &mut RowsMut<'_>,
    ) {
        let segments = self.segments();
        let state = self.state_shape(layer);
        let Mamba2Shape { heads, head_dim, groups, state_dim } = shape;
        assert!(groups > 0 && heads % groups == 0, "{heads} heads in {groups} groups");
        assert!(
            (state.heads, state.rows, state.columns) == (heads, state_dim, head_dim),
            "a state of every head"
        );
        assert!(xbc.width == shape.channels() && out.width == shape.values(), "input, B and C of every head");
        assert!(steps.width == 2 * heads && skip.len() == heads, "step, decay and D of every head");
        let rows = super::kv::rows_of(segments);
        assert!(rows <= xbc.rows && rows <= steps.rows && rows <= out.rows, "rows of the batch");
        let strips = head_dim.div_ceil(LANES);
        // Groups of four strips, then single strips.
        let (fours, ones) = (strips / SIDE_BY_SIDE, strips % SIDE_BY_SIDE);
        let (to, stride) = (Disjoint::new(out.data), out.stride);
        let pages = &*self;
        pages.for_each_part(exec, (heads, fours + ones), shape.values() * state_dim, |index, head, part| {
            let segment = &segments[index];
            let state = |strip| pages.state_strip(layer, index, head, strip);
            let rows = segment.first_row..segment.first_row + segment.rows;
            let of = Head { shape, head, rows, xbc, steps, skip: skip[head], to: to.get(), stride };
            if part < fours {
                let first = part * SIDE_BY_SIDE;
                let states = [0, 1, 2, 3].map(|strip| state(first + strip));
                exec.simd.run(Strips { of, first, states });
            } else {
                let first = fours * SIDE_BY_SIDE + part - fours;
                exec.simd.run(Strips { of, first, states: [state(first)] });
            }
        });
    }
}

/// A head, for the rows of a segment.
struct Head<'a> {
    shape: Mamba2Shape,
    head: usize,
    rows: Range<usize>,
    xbc: Rows<'a>,
    steps: Rows<'a>,
    skip: f32,
    to: *mut f32,
    stride: usize,
}

/// Strips of sixteen columns of a head, from strip `first` on.
struct Strips<'a, const N: usize> {
    of: Head<'a>,
    first: usize,
    /// `[state_dim][16]` each.
    states: [*mut f32; N],
}

impl<const N: usize> Kernel for Strips<'_, N> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { of: Head { shape, head, rows, xbc, steps, skip, to, stride }, first, states } = self;
        let Mamba2Shape { heads, head_dim, groups, state_dim } = shape;
        let b = shape.values() + head / (heads / groups) * state_dim;
        let c = b + groups * state_dim;
        let column = |strip: usize| head * head_dim + (first + strip) * LANES;
        let width = |strip: usize| (head_dim - (first + strip) * LANES).min(LANES);
        let skip = s.splat(skip);
        for row in rows {
            let (values, steps) = (xbc.row(row), steps.row(row));
            let (step, decay) = (s.splat(steps[head]), s.splat(steps[heads + head]));
            let (b, c) = (&values[b..b + state_dim], &values[c..c + state_dim]);
            // SAFETY: as many inputs and outputs remain from each strip's column; the outputs of these columns, and the states, which have
            // `state_dim` rows of sixteen columns, are read and written by this call alone.
            unsafe {
                let x: [S::F; N] = std::array::from_fn(|strip| {
                    s.load_partial(values.as_ptr().add(column(strip)), width(strip))
                });
                let scaled = x.map(|x| s.mul(step, x));
                let mut y = [s.splat(0.0); N];
                for (n, (b, c)) in b.iter().zip(c).enumerate() {
                    let (b, c) = (s.splat(*b), s.splat(*c));
                    for strip in 0..N {
                        let at = states[strip].add(n * LANES);
                        let new = s.fma(b, scaled[strip], s.mul(decay, s.load(at)));
                        s.store(at, new);
                        y[strip] = s.fma(new, c, y[strip]);
                    }
                }
                for strip in 0..N {
                    let to = to.add(row * stride + column(strip));
                    s.store_partial(to, s.fma(skip, x[strip], y[strip]), width(strip));
                }
            }
        }
    }
}
