//! The gated delta rule (Yang, Kautz and Hatamizadeh 2024), a recurrence over the rows of a sequence.
//!
//! A value head has a matrix S of `key_dim` rows and `value_dim` columns, zero before the first row of a sequence. A row has a key k, a
//! query q, a value v, a strength `beta` and a decay e. The order, for a column j: `p` is the sum over i of `fma(S[i][j], k[i], .)` in four
//! chains i mod 4, joined as `(c0 + c2) + (c1 + c3)`; `u = fma(-e, p, v[j]) * beta`; `S[i][j] = fma(k[i], u, e * S[i][j])`; the output is
//! the sum of `fma(S[i][j], q[i], .)` over the new S, in the same chains. All of it is f32, and S is never rounded. So the bits do not
//! depend on how a sequence is divided into passes. A product with the key of the next row may be taken while a state is updated.
//!
//! Strength and decay: `beta = 1 / (exp(-b) + 1)`, `e = exp(decay * softplus(a + bias))`, where `decay` is negative.

use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES};

use super::exp::exp;
use super::kv::{PassPages, Segment};
use super::softplus::softplus;
use crate::threads::Disjoint;
use crate::{Exec, Rows, RowsMut};

/// Number of chains of a sum.
const CHAINS: usize = 4;
/// How many rows ahead inputs and outputs are prefetched. Rows lie so far apart that the hardware does not.
const ROWS_AHEAD: usize = 3;

/// The heads of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaShape {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values, each with a matrix; a multiple of `key_heads`.
    pub value_heads: usize,
    /// Number of values of a query and of a key; a multiple of 4.
    pub key_dim: usize,
    /// Number of values of a value.
    pub value_dim: usize,
    /// Of n value heads for each head of keys, whether h, `h + key_heads`, ... have those of head h, instead of `h * n` to `h * n + n - 1`.
    pub is_interleaved: bool,
}

impl DeltaShape {
    /// Number of values of all queries of a row, and of all keys.
    pub fn keys(self) -> usize {
        self.key_heads * self.key_dim
    }

    /// The head of the query and the key of a value head.
    pub fn key_head(self, head: usize) -> usize {
        if self.is_interleaved { head % self.key_heads } else { head / (self.value_heads / self.key_heads) }
    }

    /// Number of values of all values of a row.
    pub fn values(self) -> usize {
        self.value_heads * self.value_dim
    }
}

/// Turns `b | a` of each row, `[2 * heads]`, into `beta | e`. `decay` and `bias` are `[heads]`.
pub fn delta_gates(exec: Exec<'_>, x: &mut RowsMut<'_>, decay: &[f32], bias: &[f32]) {
    let (heads, stride) = (decay.len(), x.stride);
    assert!(bias.len() == heads && x.width == 2 * heads, "two values of each of {heads} heads");
    let to = Disjoint::new(x.data);
    exec.team.split(x.rows, 1, 64, |rows| {
        for r in rows {
            // SAFETY: each row is written by the one member that owns it.
            let row = unsafe { std::slice::from_raw_parts_mut(to.get().add(r * stride), 2 * heads) };
            exec.simd.run(Gates { row, decay, bias });
        }
    });
}

struct Gates<'a> {
    row: &'a mut [f32],
    decay: &'a [f32],
    bias: &'a [f32],
}

impl Kernel for Gates<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let heads = self.decay.len();
        let (betas, decays) = self.row.split_at_mut(heads);
        let one = s.splat(1.0);
        for at in (0..heads).step_by(LANES) {
            let n = (heads - at).min(LANES);
            // SAFETY: `n` heads remain from `at`.
            unsafe {
                let b = s.load_partial(betas.as_ptr().add(at), n);
                s.store_partial(betas.as_mut_ptr().add(at), s.div(one, s.add(exp(s, s.neg(b)), one)), n);
                let a = s.load_partial(decays.as_ptr().add(at), n);
                let x = s.add(a, s.load_partial(self.bias.as_ptr().add(at), n));
                let decay = s.load_partial(self.decay.as_ptr().add(at), n);
                s.store_partial(decays.as_mut_ptr().add(at), exp(s, s.mul(decay, softplus(s, x, n))), n);
            }
        }
    }
}

impl PassPages<'_> {
    /// Applies the rule to all rows of the batch, and adds them to the states of their sequences. `layer` counts the layers that are
    /// recurrences. A row of `qkv` is queries, keys and values of all heads; one of `gates` is [`delta_gates`]' `[2 * value_heads]`; one of
    /// `out` is `[value_heads * value_dim]`.
    ///
    /// # Panics
    /// If the shapes do not fit each other and those of the layer.
    pub fn delta_rule(
        &mut self,
        exec: Exec<'_>,
        (layer, shape): (usize, DeltaShape),
        qkv: Rows<'_>,
        gates: Rows<'_>,
        out: &mut RowsMut<'_>,
    ) {
        let segments = self.segments();
        let state = self.state_shape(layer);
        let DeltaShape { key_heads, value_heads, key_dim, value_dim, .. } = shape;
        assert!(
            key_heads > 0 && value_heads % key_heads == 0 && key_dim % CHAINS == 0,
            "{value_heads} heads of values for {key_heads} of keys of {key_dim}"
        );
        assert!(
            (state.heads, state.rows, state.columns) == (value_heads, key_dim, value_dim),
            "a state of every value head"
        );
        assert!(
            qkv.width == 2 * shape.keys() + shape.values() && out.width == shape.values(),
            "queries, keys and values of every head"
        );
        assert!(gates.width == 2 * value_heads, "strength and decay of every head");
        let rows = super::kv::rows_of(segments);
        assert!(rows <= qkv.rows && rows <= gates.rows && rows <= out.rows, "rows of the batch");
        let strips = value_dim.div_ceil(LANES);
        // Pairs of strips, then a single one.
        let (pairs, ones) = (strips / 2, strips % 2);
        let (to, stride) = (Disjoint::new(out.data), out.stride);
        let pages = &*self;
        let work = shape.values() * key_dim;
        pages.for_each_part(exec, (value_heads, pairs + ones), work, |index, head, part| {
            let Segment { first_row, rows, .. } = segments[index];
            let state = |strip| pages.state_strip(layer, index, head, strip);
            let (rows, first) = (first_row..first_row + rows, 2 * part);
            let of = Head { shape, head, rows, qkv, gates, to: to.get(), stride };
            if part < pairs {
                exec.simd.run(Strips { of, first, states: [state(first), state(first + 1)] });
            } else {
                exec.simd.run(Strips { of, first, states: [state(first)] });
            }
        });
    }
}

/// A head, for the rows of a segment.
struct Head<'a> {
    shape: DeltaShape,
    head: usize,
    rows: Range<usize>,
    qkv: Rows<'a>,
    gates: Rows<'a>,
    to: *mut f32,
    stride: usize,
}

/// Strips of sixteen columns of a head, from strip `first` on.
struct Strips<'a, const N: usize> {
    of: Head<'a>,
    first: usize,
    /// `[key_dim][16]` each.
    states: [*mut f32; N],
}

impl<const N: usize> Kernel for Strips<'_, N> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        if S::TILE_STRIPS >= N {
            self.run_together(s, 0, self.states);
        } else {
            for (at, state) in self.states.into_iter().enumerate() {
                self.run_together(s, at, [state]);
            }
        }
    }
}

/// The chains of the sums of some strips.
type Sums<F, const N: usize> = [[F; CHAINS]; N];

impl<const N: usize> Strips<'_, N> {
    /// Prefetches what these strips read of a row, and where they write: a store that misses the caches would hold up the many stores of
    /// states behind it.
    #[inline(always)]
    fn prefetch<S: Isa>(&self, s: S, row: usize) {
        let Head { shape, head, qkv, gates, to, stride, .. } = self.of;
        let (x, key_dim) = (qkv.row(row), shape.key_dim);
        let (query, first) = (shape.key_head(head) * key_dim, head * shape.value_dim + self.first * LANES);
        prefetch(s, &x[query..query + key_dim]);
        prefetch(s, &x[shape.keys() + query..][..key_dim]);
        let width = (shape.value_dim - self.first * LANES).min(N * LANES);
        prefetch(s, &x[2 * shape.keys() + first..][..width]);
        for at in (0..width).step_by(LANES) {
            s.prefetch(to.wrapping_add(row * stride + first + at).cast_const().cast());
        }
        prefetch(s, &gates.row(row)[head..=head]);
        prefetch(s, &gates.row(row)[shape.value_heads + head..][..1]);
    }

    /// Runs the strips `at`, `at + 1`, ... whose states these are. With enough registers, what a row adds to a state is multiplied by the
    /// key of the next row at once, so that a state is read once for each row.
    #[inline(always)]
    fn run_together<S: Isa, const M: usize>(&self, s: S, at: usize, states: [*mut f32; M]) {
        let Head { shape, head, ref rows, qkv, gates, to, stride } = self.of;
        let DeltaShape { value_heads, key_dim, value_dim, .. } = shape;
        let query = shape.key_head(head) * key_dim;
        let key = |row: usize| qkv.row(row)[shape.keys() + query..].as_ptr();
        let ahead = S::TILE_STRIPS > 1;
        let mut sums = [[s.splat(0.0); CHAINS]; M];
        for row in rows.clone() {
            if row + ROWS_AHEAD < rows.end {
                self.prefetch(s, row + ROWS_AHEAD);
            }
            let (x, gates) = (qkv.row(row), gates.row(row));
            let (beta, decay) = (s.splat(gates[head]), s.splat(gates[value_heads + head]));
            // SAFETY: queries and keys have `key_dim` values. A state has as many rows of sixteen columns, which this call alone reads and
            // writes. As many values and outputs as are read and written remain from a strip's column; the outputs of these columns are
            // written by this call alone.
            unsafe {
                if row == rows.start || !ahead {
                    sums = multiplied(s, states, key_dim, key(row));
                }
                let mut u = [s.splat(0.0); M];
                for strip in 0..M {
                    let first = (self.first + at + strip) * LANES;
                    let v = &x[2 * shape.keys() + head * value_dim + first..];
                    let v = s.load_partial(v.as_ptr(), (value_dim - first).min(LANES));
                    u[strip] = s.mul(s.fma(s.neg(decay), joined(s, sums[strip]), v), beta);
                }
                let update = Update { decay, key: key(row), query: x[query..].as_ptr(), u };
                let outputs;
                [outputs, sums] = if ahead && row + 1 < rows.end {
                    update.run::<S, true>(s, states, key_dim, key(row + 1))
                } else {
                    update.run::<S, false>(s, states, key_dim, key(row))
                };
                for strip in 0..M {
                    let first = (self.first + at + strip) * LANES;
                    let to = to.add(row * stride + head * value_dim + first);
                    s.store_partial(to, joined(s, outputs[strip]), (value_dim - first).min(LANES));
                }
            }
        }
    }
}

/// Prefetches values.
#[inline(always)]
fn prefetch<S: Isa>(s: S, values: &[f32]) {
    for at in (0..values.len()).step_by(LANES) {
        s.prefetch(values[at..].as_ptr().cast());
    }
}

/// The product of states and a key.
///
/// # Safety
/// States and key have `key_dim` rows.
#[inline(always)]
unsafe fn multiplied<S: Isa, const N: usize>(
    s: S,
    states: [*mut f32; N],
    key_dim: usize,
    key: *const f32,
) -> Sums<S::F, N> {
    let mut sums = [[s.splat(0.0); CHAINS]; N];
    for i in (0..key_dim).step_by(CHAINS) {
        for c in 0..CHAINS {
            // SAFETY: the caller vouches for the rows.
            unsafe {
                let k = s.splat(*key.add(i + c));
                for strip in 0..N {
                    let state = s.load(states[strip].add((i + c) * LANES));
                    sums[strip][c] = s.fma(state, k, sums[strip][c]);
                }
            }
        }
    }
    sums
}

/// What a row does to states.
struct Update<F, const N: usize> {
    decay: F,
    key: *const f32,
    query: *const f32,
    u: [F; N],
}

impl<F: Copy, const N: usize> Update<F, N> {
    /// Updates the states; returns their products with the query, and if `AHEAD` those with the key of the next row.
    ///
    /// # Safety
    /// States, query and keys have `key_dim` rows.
    #[inline(always)]
    unsafe fn run<S: Isa<F = F>, const AHEAD: bool>(
        &self,
        s: S,
        states: [*mut f32; N],
        key_dim: usize,
        next: *const f32,
    ) -> [Sums<F, N>; 2] {
        let Self { decay, key, query, u } = *self;
        let (mut outputs, mut sums) = ([[s.splat(0.0); CHAINS]; N], [[s.splat(0.0); CHAINS]; N]);
        for i in (0..key_dim).step_by(CHAINS) {
            for c in 0..CHAINS {
                // SAFETY: the caller vouches for the rows.
                unsafe {
                    let (k, q) = (s.splat(*key.add(i + c)), s.splat(*query.add(i + c)));
                    let next = s.splat(*next.add(i + c));
                    // All loads come before the stores: equal rows of two states may lie a multiple of 4 KiB apart, and then processors
                    // take a load for one of what was just stored.
                    let mut new = u;
                    for strip in 0..N {
                        let old = s.load(states[strip].add((i + c) * LANES));
                        new[strip] = s.fma(k, u[strip], s.mul(decay, old));
                    }
                    for strip in 0..N {
                        s.store(states[strip].add((i + c) * LANES), new[strip]);
                        outputs[strip][c] = s.fma(new[strip], q, outputs[strip][c]);
                        if AHEAD {
                            sums[strip][c] = s.fma(new[strip], next, sums[strip][c]);
                        }
                    }
                }
            }
        }
        [outputs, sums]
    }
}

#[inline(always)]
fn joined<S: Isa>(s: S, [a, b, c, d]: [S::F; CHAINS]) -> S::F {
    s.add(s.add(a, c), s.add(b, d))
}
