//! Causal grouped-query attention over paged keys and values.
//!
//! Canonical order, per query row and head: the query is scaled (and rounded to the cache's format); logits
//! `acc = fma(k, q, acc)`, dimension ascending; spans of 256 keys counted from position 0. In a span: maximum; `p = exp(s - m)`;
//! `l` in 16 lanes (key mod 16), then the tree; `o[d] = fma(p, v, o[d])`, key ascending, over the keys that this row sees and
//! no others. Spans are merged ascending, the first is copied: `M' = max(M, m); a = exp(M - M'); b = exp(m - M');
//! L = fma(l, b, L * a); O = fma(o, b, O * a)`; at the end `O / L`. A span without a visible key is skipped.
//!
//! All query heads that share a KV head, and neighbouring tokens, share each load of keys and values.

use std::mem::MaybeUninit;
use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES};

use super::exp::exp;
use super::kv::{KvFormat, KvPages, PAGE_TOKENS, Segment, assert_segments};
use crate::format::Mac;
use crate::format::bf16::{Bf16Mac, WidenMac, pack_row};
use crate::format::float32::F32Mac;
use crate::threads::Disjoint;
use crate::tile::{TILE_ROWS, TileArgs, tiles};
use crate::{Exec, Rows, RowsMut};

/// Keys of a span.
pub const SPAN: usize = 256;
/// Largest head dimension.
pub const MAX_HEAD_DIM: usize = 256;

/// What attention needs to know of a layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    /// Query heads; a multiple of the KV heads.
    pub heads: usize,
    /// Factor on the logits (`1 / sqrt(head_dim)` in most families).
    pub scale: f32,
    /// Keys that a query sees, itself included; `None` sees all before it.
    pub window: Option<usize>,
}

/// `out[r] = softmax(q k^T) v` for all heads: `q` and `out` are `[rows, heads * head_dim]`. The keys and values of the
/// batch's own rows have been stored before.
pub fn attention(
    exec: Exec<'_>,
    shape: AttentionShape,
    kv: &KvPages,
    layer: usize,
    segments: &[Segment<'_>],
    q: Rows<'_>,
    out: &mut RowsMut<'_>,
) {
    let (kv_heads, head_dim) = (kv.shape().kv_heads, kv.shape().head_dim);
    assert!(head_dim <= MAX_HEAD_DIM && shape.heads % kv_heads == 0, "{} heads of {head_dim}", shape.heads);
    assert!(q.width == shape.heads * head_dim && out.width == q.width && out.rows == q.rows, "same shape");
    assert_segments(segments);
    let (stride, to) = (out.stride, Disjoint::new(out.data));
    let group = shape.heads / kv_heads;
    let members = exec.team.size();
    exec.team.run(|member| {
        let mut unit = 0;
        for segment in segments {
            assert!(segment.first_row + segment.rows <= q.rows, "rows of the batch");
            let tiles_of_rows = (segment.rows * group).div_ceil(TILE_ROWS);
            for kv_head in 0..kv_heads {
                for t in 0..tiles_of_rows {
                    unit += 1;
                    if unit % members != member {
                        continue;
                    }
                    let first = t * TILE_ROWS;
                    let rows = first..(first + TILE_ROWS).min(segment.rows * group);
                    exec.simd.run(HeadTile {
                        shape,
                        kv,
                        layer,
                        segment,
                        q,
                        out: to,
                        stride,
                        kv_head,
                        group,
                        rows,
                    });
                }
            }
        }
    });
}

/// Up to six query rows (token-major, then heads of the group) of one KV head.
struct HeadTile<'a> {
    shape: AttentionShape,
    kv: &'a KvPages,
    layer: usize,
    segment: &'a Segment<'a>,
    q: Rows<'a>,
    out: Disjoint<f32>,
    stride: usize,
    kv_head: usize,
    group: usize,
    rows: Range<usize>,
}

type Block<T, const N: usize> = MaybeUninit<[[T; N]; TILE_ROWS]>;

/// Working memory of a tile; every part is written before it is read.
struct Scratch {
    q: Block<u32, MAX_HEAD_DIM>,
    logits: Block<f32, SPAN>,
    o: Block<f32, MAX_HEAD_DIM>,
    merged: Block<f32, MAX_HEAD_DIM>,
}

/// Running maximum and sum of one query row.
#[derive(Clone, Copy)]
struct State {
    max: f32,
    sum: f32,
    started: bool,
}

impl Kernel for HeadTile<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        match self.kv.shape().format {
            KvFormat::F32 => self.run_format::<S, F32Mac, F32Mac>(s),
            KvFormat::Bf16 => self.run_format::<S, Bf16Mac, WidenMac>(s),
        }
    }
}

impl HeadTile<'_> {
    /// The keys that row `r` of the tile sees.
    fn visible(&self, r: usize) -> Range<usize> {
        let position = self.segment.start + (self.rows.start + r) / self.group;
        let first = self.shape.window.map_or(0, |w| (position + 1).saturating_sub(w));
        first..position + 1
    }

    /// Row and first column of row `r`'s head in the batch.
    fn place(&self, r: usize) -> (usize, usize) {
        let index = self.rows.start + r;
        let head = self.kv_head * self.group + index % self.group;
        (self.segment.first_row + index / self.group, head * self.kv.shape().head_dim)
    }

    #[inline(always)]
    fn run_format<S: Isa, K: Mac, V: Mac>(self, s: S) {
        let n = self.rows.len();
        let mut scratch = Scratch {
            q: MaybeUninit::uninit(),
            logits: MaybeUninit::uninit(),
            o: MaybeUninit::uninit(),
            merged: MaybeUninit::uninit(),
        };
        self.load_queries(&mut scratch);
        let mut states = [State { max: 0.0, sum: 0.0, started: false }; TILE_ROWS];
        let (first, last) = (self.visible(0), self.visible(n - 1));
        let mut start = first.start / SPAN * SPAN;
        while start < last.end {
            self.span::<S, K, V>(s, start, &mut scratch, &mut states);
            start += SPAN;
        }
        self.write_out(s, &scratch, &states);
    }

    /// Scaled queries in the input words of the cache's format.
    #[inline(always)]
    fn load_queries(&self, scratch: &mut Scratch) {
        let (head_dim, steps) = (self.kv.shape().head_dim, self.kv.shape().steps());
        for r in 0..self.rows.len() {
            let (row, column) = self.place(r);
            let q = &self.q.row(row)[column..][..head_dim];
            let mut scaled = [0f32; MAX_HEAD_DIM];
            for (to, x) in scaled.iter_mut().zip(q) {
                *to = x * self.shape.scale;
            }
            // SAFETY: `steps <= MAX_HEAD_DIM` words of row `r`.
            let words = unsafe {
                std::slice::from_raw_parts_mut(
                    scratch.q.as_mut_ptr().cast::<u32>().add(r * MAX_HEAD_DIM),
                    steps,
                )
            };
            match self.kv.shape().format {
                KvFormat::F32 => words.iter_mut().zip(&scaled).for_each(|(word, x)| *word = x.to_bits()),
                KvFormat::Bf16 => pack_row(&scaled[..head_dim], words),
            }
        }
    }

    /// One span: logits, softmax, values, merge.
    #[inline(always)]
    fn span<S: Isa, K: Mac, V: Mac>(
        &self,
        s: S,
        start: usize,
        scratch: &mut Scratch,
        states: &mut [State; TILE_ROWS],
    ) {
        let mut keys: [Range<usize>; TILE_ROWS] = [0..0, 0..0, 0..0, 0..0, 0..0, 0..0];
        let (mut from, mut to) = (usize::MAX, 0);
        let (mut low, mut high) = (SPAN, 0);
        for r in 0..self.rows.len() {
            let seen = self.visible(r);
            let (a, b) =
                (seen.start.clamp(start, start + SPAN) - start, seen.end.clamp(start, start + SPAN) - start);
            keys[r] = a..b;
            if a < b {
                // Rows that see keys of this span are neighbours: both ends grow with the position.
                (from, to) = (from.min(r), r + 1);
                (low, high) = (low.min(a), high.max(b));
            }
        }
        if to == 0 {
            return;
        }
        let rows = from..to;
        self.logits::<S, K>(s, start, low / LANES * LANES..high, rows.clone(), scratch);
        let mut tops = [(0f32, 0f32); TILE_ROWS];
        for r in rows.clone() {
            // SAFETY: the logits of row `r` were computed for all keys up to `high`, rounded up to whole blocks.
            tops[r] = unsafe {
                softmax(s, scratch.logits.as_mut_ptr().cast::<f32>().add(r * SPAN), keys[r].clone())
            };
        }
        self.values::<S, V>(s, start, &keys, rows.clone(), scratch);
        for r in rows {
            self.merge(s, r, tops[r], scratch, &mut states[r]);
        }
    }

    /// Logits of keys `range` (span-relative, beginning at a block) for `rows`.
    #[inline(always)]
    fn logits<S: Isa, K: Mac>(
        &self,
        s: S,
        start: usize,
        range: Range<usize>,
        rows: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let steps = self.kv.shape().steps();
        let mut block = range.start / LANES;
        let end = range.end.div_ceil(LANES);
        while block < end {
            let key = start + block * LANES;
            let words = self.kv.head(self.segment.pages[key / PAGE_TOKENS], self.layer, self.kv_head);
            let in_page = key % PAGE_TOKENS / LANES;
            let count = (PAGE_TOKENS / LANES - in_page).min(end - block);
            // SAFETY: `count` blocks of keys lie within the page; queries and logits hold every row of the tile.
            unsafe {
                let args = TileArgs {
                    w: words.as_ptr().add(in_page * steps * LANES),
                    w_stride: steps * LANES,
                    steps,
                    x: scratch.q.as_ptr().cast::<u32>().add(rows.start * MAX_HEAD_DIM),
                    x_stride: MAX_HEAD_DIM,
                    y: scratch.logits.as_mut_ptr().cast::<f32>().add(rows.start * SPAN + block * LANES),
                    y_stride: SPAN,
                    resume: false,
                };
                tiles::<S, K>(s, args, rows.len(), count);
            }
            block += count;
        }
    }

    /// `o[r] = sum of p[r][key] v[key]` over the keys each row sees, ascending.
    #[inline(always)]
    fn values<S: Isa, V: Mac>(
        &self,
        s: S,
        start: usize,
        keys: &[Range<usize>; TILE_ROWS],
        rows: Range<usize>,
        scratch: &mut Scratch,
    ) {
        for r in rows.clone() {
            for strip in 0..self.kv.shape().value_strips() {
                // SAFETY: the strips of a head fit in MAX_HEAD_DIM values.
                unsafe {
                    let o = scratch.o.as_mut_ptr().cast::<f32>();
                    s.store(o.add(r * MAX_HEAD_DIM + strip * LANES), s.splat(0.0));
                }
            }
        }
        // Keys that every row sees run together; what is before or after them, row by row.
        let (mut low, mut high) = (0, SPAN);
        for r in rows.clone() {
            (low, high) = (low.max(keys[r].start), high.min(keys[r].end));
        }
        if low >= high {
            for r in rows {
                self.weighted::<S, V>(s, start, keys[r].clone(), r..r + 1, scratch);
            }
            return;
        }
        for r in rows.clone() {
            self.weighted::<S, V>(s, start, keys[r].start..low, r..r + 1, scratch);
        }
        self.weighted::<S, V>(s, start, low..high, rows.clone(), scratch);
        for r in rows {
            self.weighted::<S, V>(s, start, high..keys[r].end, r..r + 1, scratch);
        }
    }

    /// Adds `p v` of keys `range` (span-relative) to `rows`.
    #[inline(always)]
    fn weighted<S: Isa, V: Mac>(
        &self,
        s: S,
        start: usize,
        range: Range<usize>,
        rows: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let shape = self.kv.shape();
        let mut key = range.start;
        while key < range.end {
            let position = start + key;
            let slot = position % PAGE_TOKENS;
            let count = (PAGE_TOKENS - slot).min(range.end - key);
            let words = self.kv.head(self.segment.pages[position / PAGE_TOKENS], self.layer, self.kv_head);
            // SAFETY: `count` tokens of every strip lie within the page; probabilities and sums hold every row.
            unsafe {
                let args = TileArgs {
                    w: words.as_ptr().add(shape.key_words() + slot * V::WORDS),
                    w_stride: PAGE_TOKENS * V::WORDS,
                    steps: count,
                    x: scratch.logits.as_ptr().cast::<u32>().add(rows.start * SPAN + key),
                    x_stride: SPAN,
                    y: scratch.o.as_mut_ptr().cast::<f32>().add(rows.start * MAX_HEAD_DIM),
                    y_stride: MAX_HEAD_DIM,
                    resume: true,
                };
                tiles::<S, V>(s, args, rows.len(), shape.value_strips());
            }
            key += count;
        }
    }

    /// Merges the span's result of row `r` into what earlier spans left.
    #[inline(always)]
    fn merge<S: Isa>(
        &self,
        s: S,
        r: usize,
        (max, sum): (f32, f32),
        scratch: &mut Scratch,
        state: &mut State,
    ) {
        let top = if state.max < max { max } else { state.max };
        let (a, b) = if state.started {
            let [a, b] = [exp(s, s.splat(state.max - top)), exp(s, s.splat(max - top))];
            *state =
                State { max: top, sum: sum.mul_add(first(s, b), state.sum * first(s, a)), started: true };
            (Some(a), b)
        } else {
            *state = State { max, sum, started: true };
            (None, s.splat(1.0))
        };
        for strip in 0..self.kv.shape().value_strips() {
            // SAFETY: the strips of a head fit in MAX_HEAD_DIM values; `merged` is read only after it was written.
            unsafe {
                let at = r * MAX_HEAD_DIM + strip * LANES;
                let o = s.load(scratch.o.as_ptr().cast::<f32>().add(at));
                let merged = scratch.merged.as_mut_ptr().cast::<f32>().add(at);
                s.store(merged, a.map_or(o, |a| s.fma(o, b, s.mul(s.load(merged), a))));
            }
        }
    }

    /// `out = O / L`.
    #[inline(always)]
    fn write_out<S: Isa>(&self, s: S, scratch: &Scratch, states: &[State; TILE_ROWS]) {
        let head_dim = self.kv.shape().head_dim;
        for r in 0..self.rows.len() {
            let (row, column) = self.place(r);
            for at in (0..head_dim).step_by(LANES) {
                // SAFETY: a query row sees at least itself, so `merged` was written; this head of this row belongs
                // to this tile alone.
                unsafe {
                    let o = s.load(scratch.merged.as_ptr().cast::<f32>().add(r * MAX_HEAD_DIM + at));
                    let to = self.out.get().add(row * self.stride + column + at);
                    s.store_partial(to, s.div(o, s.splat(states[r].sum)), (head_dim - at).min(LANES));
                }
            }
        }
    }
}

#[inline(always)]
fn first<S: Isa>(s: S, v: S::F) -> f32 {
    s.to_array(v)[0]
}

/// Turns the logits of keys `keys` into `p = exp(s - m)`, in place; returns `(m, l)`.
///
/// # Safety
/// `logits` is valid for the blocks of sixteen that contain `keys`, and at most [`SPAN`] values.
#[inline(always)]
unsafe fn softmax<S: Isa>(s: S, logits: *mut f32, keys: Range<usize>) -> (f32, f32) {
    let (begin, end) = (keys.start / LANES * LANES, keys.end.next_multiple_of(LANES));
    // SAFETY: all addresses lie in the blocks that contain `keys`.
    unsafe {
        for key in (begin..keys.start).chain(keys.end..end) {
            *logits.add(key) = f32::NEG_INFINITY;
        }
        let mut m = s.splat(f32::NEG_INFINITY);
        for at in (begin..end).step_by(LANES) {
            m = s.max(m, s.load(logits.add(at)));
        }
        let max = s.reduce_max(m);
        let m = s.splat(max);
        let mut sum = s.splat(0.0);
        for at in (begin..end).step_by(LANES) {
            let p = exp(s, s.sub(s.load(logits.add(at)), m));
            s.store(logits.add(at), p);
            sum = s.add(sum, p);
        }
        (max, s.reduce_add(sum))
    }
}
