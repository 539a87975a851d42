//! The gated delta rule (Yang, Kautz and Hatamizadeh 2024), a recurrence over the rows of a sequence.
//!
//! A value head has a matrix S of `key_dim` rows and `value_dim` columns, zero before the first row of a sequence. A row has a key k, a
//! query q, a value v, a strength `beta` and a decay e. The order, for a column j: `p` is the sum over i of `fma(S[i][j], k[i], .)` in four
//! chains i mod 4, joined as `(c0 + c2) + (c1 + c3)`; `u = fma(-e, p, v[j]) * beta`; `S[i][j] = fma(k[i], u, e * S[i][j])`; the output is
//! the sum of `fma(S[i][j], q[i], .)` over the new S, in the same chains. All of it is f32, and S is never rounded. So the bits do not
//! depend on how a sequence is divided into passes.
//!
//! Strength and decay: `beta = 1 / (exp(-b) + 1)`, `e = exp(decay * softplus(a + bias))`, where `decay` is negative.

use redline_simd::{Isa, Kernel, LANES};

use super::exp::exp;
use super::kv::PassPages;
use super::softplus::softplus;
use crate::threads::Disjoint;
use crate::{Exec, Rows, RowsMut};

/// Number of chains of a sum.
const CHAINS: usize = 4;

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
        let (to, stride) = (Disjoint::new(out.data), out.stride);
        let pages = &*self;
        pages.for_each_part(exec, (value_heads, strips), shape.values() * key_dim, |index, head, strip| {
            let state = pages.state_strip(layer, index, head, strip);
            let (first, rows) = (segments[index].first_row, segments[index].rows);
            let to = to.get();
            exec.simd.run(Strip { state, shape, head, strip, first, rows, qkv, gates, to, stride });
        });
    }
}

/// Sixteen columns of a head, for the rows of a segment.
struct Strip<'a> {
    /// `[key_dim][16]`
    state: *mut f32,
    shape: DeltaShape,
    head: usize,
    strip: usize,
    first: usize,
    rows: usize,
    qkv: Rows<'a>,
    gates: Rows<'a>,
    to: *mut f32,
    stride: usize,
}

impl Kernel for Strip<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { state, shape, head, strip, first, rows, qkv, gates, to, stride } = self;
        let DeltaShape { value_heads, key_dim, value_dim, .. } = shape;
        let key_head = shape.key_head(head);
        let (query, key) = (key_head * key_dim, shape.keys() + key_head * key_dim);
        let column = head * value_dim + strip * LANES;
        let n = (value_dim - strip * LANES).min(LANES);
        let zero = s.splat(0.0);
        for row in first..first + rows {
            let (x, gates) = (qkv.row(row), gates.row(row));
            let (beta, decay) = (s.splat(gates[head]), s.splat(gates[value_heads + head]));
            let (q, k) = (&x[query..query + key_dim], &x[key..key + key_dim]);
            // SAFETY: the state has `key_dim` rows of sixteen columns, which this call alone reads and writes; `n` values and outputs
            // remain from the column, and the outputs of these columns are written by this call alone.
            unsafe {
                let mut chains = [zero; CHAINS];
                for i in (0..key_dim).step_by(CHAINS) {
                    for (c, chain) in chains.iter_mut().enumerate() {
                        *chain = s.fma(s.load(state.add((i + c) * LANES)), s.splat(k[i + c]), *chain);
                    }
                }
                let p = joined(s, chains);
                let v = s.load_partial(x.as_ptr().add(2 * shape.keys() + column), n);
                let u = s.mul(s.fma(s.neg(decay), p, v), beta);
                let mut chains = [zero; CHAINS];
                for i in (0..key_dim).step_by(CHAINS) {
                    for (c, chain) in chains.iter_mut().enumerate() {
                        let at = state.add((i + c) * LANES);
                        let new = s.fma(s.splat(k[i + c]), u, s.mul(decay, s.load(at)));
                        s.store(at, new);
                        *chain = s.fma(new, s.splat(q[i + c]), *chain);
                    }
                }
                s.store_partial(to.add(row * stride + column), joined(s, chains), n);
            }
        }
    }
}

#[inline(always)]
fn joined<S: Isa>(s: S, [a, b, c, d]: [S::F; CHAINS]) -> S::F {
    s.add(s.add(a, c), s.add(b, d))
}
