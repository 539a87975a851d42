//! A block: some tiles of query rows of one KV head, and the part of attention that does not depend on the cache's format: which
//! keys a row sees, the softmax of a span, and the merging of spans.

use std::mem::MaybeUninit;
use std::ops::Range;

use redline_simd::{Isa, LANES};

use super::{AttentionShape, Job, SPAN};
use crate::op::exp::{exp, exp_of_nonpositive};
use crate::op::hadamard::hadamard;
use crate::op::kv::{AttentionMask, KvShape, MAX_HEAD_DIM, PAGE_TOKENS, Segment};
use crate::op::quantise::load;
use crate::op::softcap::soft_capped;

/// Maximum number of tiles in a block.
pub(super) const BLOCK_TILES: usize = 8;
/// Maximum number of rows in a tile.
pub(super) const MAX_ROWS: usize = 8;
/// Number of places for rows in a block: those of tile t begin at `t * MAX_ROWS`.
pub(super) const ROWS: usize = BLOCK_TILES * MAX_ROWS;

/// Some query rows of one segment: token-major, then heads of the group.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a> {
    pub(super) segment: &'a Segment<'a>,
    /// The first row, counted in the segment.
    first: usize,
    pub(super) rows: usize,
}

impl<'a> Tile<'a> {
    /// Tile `t` of a segment.
    pub(super) fn new(job: &Job<'_>, segment: &'a Segment<'a>, t: usize) -> Self {
        let first = t * job.tile_rows;
        Self { segment, first, rows: (segment.rows * job.group - first).min(job.tile_rows) }
    }
}

/// Some tiles of query rows of one KV head.
pub(super) struct Block<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) kv_head: usize,
    tiles: [Option<Tile<'a>>; BLOCK_TILES],
    count: usize,
}

/// The keys of a span that the rows of a tile see, counted from the start of the span.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) keys: [(usize, usize); MAX_ROWS],
    /// The rows that see any of these keys.
    pub(super) rows: (usize, usize),
    /// From the first key that any row sees to one past the last.
    pub(super) any: (usize, usize),
    /// The range of keys that all of these rows see; may be empty.
    pub(super) all: (usize, usize),
}

const NOTHING: Seen = Seen { keys: [(0, 0); MAX_ROWS], rows: (0, 0), any: (0, 0), all: (0, 0) };

impl Seen {
    /// The seen slots of a page of the span, as a range that contains the slots that any row sees; `None` if there are none.
    #[inline(always)]
    pub(super) fn slots(&self, page: usize) -> Option<Range<usize>> {
        let (begin, end) = (page * PAGE_TOKENS, (page + 1) * PAGE_TOKENS);
        let (from, to) = (self.any.0.clamp(begin, end), self.any.1.clamp(begin, end));
        (from < to).then(|| from - begin..to - begin)
    }
}

/// Weighted values of the rows of a block, `[rows][Block::width]`; a row is written before it is read.
pub(super) type Values = MaybeUninit<[f32; ROWS * MAX_HEAD_DIM]>;

/// The products of queries with keys, and of probabilities with values, in the arithmetic of some formats. Rows have the numbers
/// of their places in the block.
pub(super) trait Products<S: Isa> {
    /// Reads the queries of a block.
    fn load_queries(&mut self, s: S, block: &Block<'_>);
    /// Computes the span that begins at key `start`, for all rows that see any of its keys. Writes their weighted values to
    /// `o`. Returns maximum and sum of each.
    fn span(
        &mut self,
        s: S,
        block: &Block<'_>,
        start: usize,
        seen: &[Seen; BLOCK_TILES],
        o: &mut Values,
    ) -> [(f32, f32); ROWS];
}

/// Maximum and sum of one query row, of one span or of several.
#[derive(Clone, Copy, Default)]
pub(super) struct State {
    max: f32,
    sum: f32,
    /// Whether the row saw any key.
    started: bool,
}

impl State {
    /// Maximum and sum; `None` if the row saw no key.
    pub(super) fn top(self) -> Option<(f32, f32)> {
        self.started.then_some((self.max, self.sum))
    }
}

/// Some spans of a block of one tile, whose results are stored instead of merged.
pub(super) struct Part<'a> {
    /// Numbers of the spans.
    pub(super) spans: Range<usize>,
    /// Where the state and the values of a row's result of a span are stored: room for a [`State`] and [`Block::width`] values,
    /// which no other thread uses.
    pub(super) to: &'a dyn Fn(usize, usize) -> (*mut State, *mut f32),
}

impl<'a> Block<'a> {
    /// Creates an empty block.
    pub(super) fn new(job: &'a Job<'a>, kv_head: usize) -> Self {
        Self { job, kv_head, tiles: [None; BLOCK_TILES], count: 0 }
    }

    /// Creates a block of one tile.
    pub(super) fn of(job: &'a Job<'a>, kv_head: usize, tile: Tile<'a>) -> Self {
        let mut block = Self::new(job, kv_head);
        block.push(tile);
        block
    }

    /// Number of tiles.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn push(&mut self, tile: Tile<'a>) {
        self.tiles[self.count] = Some(tile);
        self.count += 1;
    }

    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    pub(super) fn shape(&self) -> KvShape {
        self.job.kv_shape
    }

    /// Number of weighted values of a row, including the padding of the last strip.
    pub(super) fn width(&self) -> usize {
        self.shape().value_vectors() * LANES
    }

    #[inline(always)]
    pub(super) fn tile(&self, t: usize) -> Tile<'_> {
        self.tiles[t].expect("a tile that was pushed")
    }

    /// The keys that row `r` of a tile sees.
    fn visible(&self, tile: &Tile<'_>, r: usize) -> Range<usize> {
        let window = self.job.shape.window;
        if let (AttentionMask::Bidirectional(keys), None) = (tile.segment.attention, window) {
            return 0..keys;
        }
        let position = tile.segment.start + (tile.first + r) / self.job.group;
        let first = window.map_or(0, |w| (position + 1).saturating_sub(w));
        let end = match (tile.segment.attention, window) {
            (AttentionMask::Bidirectional(keys), Some(w)) => keys.min(position + w),
            _ => position + 1,
        };
        first..end
    }

    /// The head of row `r` of a tile, and the row's index in the segment.
    fn head(&self, tile: &Tile<'_>, r: usize) -> (usize, usize) {
        let (index, group) = (tile.first + r, self.job.group);
        (self.kv_head * group + index % group, index / group)
    }

    /// Row and first column in the batch of row `r`'s head.
    fn place(&self, tile: &Tile<'_>, r: usize) -> (usize, usize) {
        let (head, row) = self.head(tile, r);
        (tile.segment.first_row + row, head * self.shape().head_dim)
    }

    /// What is made of the products of row `r` of a tile with the keys of the span that begins at `start`.
    #[inline(always)]
    pub(super) fn logit_terms(&self, tile: &Tile<'_>, r: usize, start: usize) -> LogitTerms<'_> {
        let (head, row) = self.head(tile, r);
        let AttentionShape { heads, softcap, bias, .. } = self.job.shape;
        let (in_batch, position) = (tile.segment.first_row + row, tile.segment.start + row);
        LogitTerms { cap: softcap, bias: bias.map(|it| it.of((head, heads), (in_batch, position), start)) }
    }

    /// Writes the scaled query of row `r` of a tile, rotated if the format rotates, to the first `head_dim` values of `scaled`.
    #[inline(always)]
    pub(super) fn query<S: Isa>(&self, s: S, tile: &Tile<'_>, r: usize, scaled: &mut [f32; MAX_HEAD_DIM]) {
        let (row, column) = self.place(tile, r);
        let q = &self.job.q.row(row)[column..][..self.shape().head_dim];
        // The same row of the next tile. Rows are far apart, so no hardware expects it.
        let next = q.as_ptr().wrapping_add(self.job.q.stride * self.job.tile_rows / self.job.group);
        for at in (0..q.len()).step_by(LANES) {
            s.prefetch(next.wrapping_add(at).cast());
        }
        let scale = s.splat(self.job.shape.scale);
        for (values, to) in q.chunks(LANES).zip(scaled.as_chunks_mut::<LANES>().0) {
            // SAFETY: sixteen values.
            unsafe { s.store(to.as_mut_ptr(), s.mul(load(s, values), scale)) };
        }
        if self.shape().format.is_rotated() {
            hadamard(s, &mut scaled[..q.len()]);
        }
    }

    /// The numbers of the spans of which a row sees any key.
    pub(super) fn spans(&self) -> Range<usize> {
        let (mut first, mut last) = (usize::MAX, 0);
        for t in 0..self.count {
            let tile = self.tile(t);
            first = first.min(self.visible(&tile, 0).start);
            last = last.max(self.visible(&tile, tile.rows - 1).end);
        }
        first / SPAN..last.div_ceil(SPAN)
    }

    /// Computes the block's outputs, or stores the results of a part of its spans.
    #[inline(always)]
    pub(super) fn run_with<S: Isa>(&self, s: S, products: &mut impl Products<S>, part: Option<Part<'_>>) {
        let (mut o, mut merged) = (Values::uninit(), Values::uninit());
        let merged = merged.as_mut_ptr().cast::<f32>();
        let mut states = [State::default(); ROWS];
        products.load_queries(s, self);
        for span in part.as_ref().map_or_else(|| self.spans(), |part| part.spans.clone()) {
            let start = span * SPAN;
            let mut seen = [NOTHING; BLOCK_TILES];
            for t in 0..self.count {
                seen[t] = self.seen(&self.tile(t), start);
            }
            let tops = products.span(s, self, start, &seen, &mut o);
            let o = |row: usize| o.as_ptr().cast::<f32>().wrapping_add(row * self.width());
            if let Some(Part { to, .. }) = &part {
                for r in 0..self.tile(0).rows {
                    let started = (seen[0].rows.0..seen[0].rows.1).contains(&r);
                    let (max, sum) = tops[r];
                    let (state, values) = to(span, r);
                    // SAFETY: there is room by contract; the values of a row that saw keys of this span were computed.
                    unsafe {
                        state.write(State { max, sum, started });
                        if started {
                            values.copy_from_nonoverlapping(o(r), self.width());
                        }
                    }
                }
                continue;
            }
            for t in 0..self.count {
                for r in seen[t].rows.0..seen[t].rows.1 {
                    let row = t * MAX_ROWS + r;
                    // SAFETY: the row saw keys of this span, so its values were computed; `merged` has room for every row.
                    unsafe {
                        self.merge(s, tops[row], o(row), merged.add(row * self.width()), &mut states[row]);
                    }
                }
            }
        }
        if part.is_some() {
            return;
        }
        for t in 0..self.count {
            for r in 0..self.tile(t).rows {
                let row = t * MAX_ROWS + r;
                // SAFETY: a query row sees at least itself, so `merged` was written.
                unsafe { self.write_out(s, t, r, merged.add(row * self.width()), states[row]) };
            }
        }
    }

    /// The keys that a tile sees of the span that begins at `start`.
    fn seen(&self, tile: &Tile<'_>, start: usize) -> Seen {
        let mut seen = Seen { rows: (usize::MAX, 0), any: (SPAN, 0), all: (0, SPAN), ..NOTHING };
        for r in 0..tile.rows {
            let keys = self.visible(tile, r);
            let within = |key: usize| key.clamp(start, start + SPAN) - start;
            let (a, b) = (within(keys.start), within(keys.end));
            seen.keys[r] = (a, b);
            if a < b {
                // Rows that see keys of this span are adjacent, because both ends of their ranges grow with the position.
                seen.rows = (seen.rows.0.min(r), r + 1);
                seen.any = (seen.any.0.min(a), seen.any.1.max(b));
                seen.all = (seen.all.0.max(a), seen.all.1.min(b));
            }
        }
        if seen.rows.1 == 0 { NOTHING } else { seen }
    }

    /// Merges a span's result of a row, with the values `o`, into the result `merged` of earlier spans.
    ///
    /// # Safety
    /// `o` is valid for reading [`Block::width`] values, `merged` for writing as many, and for reading if the row has started.
    #[inline(always)]
    pub(super) unsafe fn merge<S: Isa>(
        &self,
        s: S,
        (max, sum): (f32, f32),
        o: *const f32,
        merged: *mut f32,
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
        for at in (0..self.width()).step_by(LANES) {
            // SAFETY: by contract.
            unsafe {
                let (o, merged) = (s.load(o.add(at)), merged.add(at));
                s.store(merged, a.map_or(o, |a| s.fma(o, b, s.mul(s.load(merged), a))));
            }
        }
    }

    /// Merges the sink of row `r` of tile `t`, if there is one, into the sum. Returns the factors `(a, b)` of the values.
    #[inline(always)]
    fn merge_sink<S: Isa>(&self, s: S, t: usize, r: usize, state: &mut State) -> Option<(S::F, S::F)> {
        let sink = self.job.shape.sinks?[self.head(&self.tile(t), r).0];
        let top = if state.max < sink { sink } else { state.max };
        let [a, b] = [exp(s, s.splat(state.max - top)), exp(s, s.splat(sink - top))];
        let sum = 1f32.mul_add(first(s, b), state.sum * first(s, a));
        *state = State { max: top, sum, started: true };
        Some((a, b))
    }

    /// `out = O / L` of row `r` of tile `t`, after its sink was merged, and rotated back if the format rotates.
    ///
    /// # Safety
    /// `merged` is valid for reading [`Block::width`] values; no other thread writes this row.
    #[inline(always)]
    pub(super) unsafe fn write_out<S: Isa>(
        &self,
        s: S,
        t: usize,
        r: usize,
        merged: *const f32,
        mut state: State,
    ) {
        let sink = self.merge_sink(s, t, r, &mut state);
        let (row, column) = self.place(&self.tile(t), r);
        let head_dim = self.shape().head_dim;
        // SAFETY: the values by contract; this head of this row belongs to this tile alone.
        unsafe {
            let to = self.job.out.get().add(row * self.job.stride + column);
            for at in (0..head_dim).step_by(LANES) {
                let o = s.load(merged.add(at));
                let o = sink.map_or(o, |(a, b)| s.fma(s.splat(0.0), b, s.mul(o, a)));
                let o = s.div(o, s.splat(state.sum));
                s.store_partial(to.add(at), o, (head_dim - at).min(LANES));
            }
            if self.shape().format.is_rotated() {
                hadamard(s, std::slice::from_raw_parts_mut(to, head_dim));
            }
        }
    }
}

#[inline(always)]
fn first<S: Isa>(s: S, v: S::F) -> f32 {
    s.to_array(v)[0]
}

/// What is made of the products of a query with the keys of a span before the softmax.
#[derive(Clone, Copy)]
pub(super) struct LogitTerms<'a> {
    /// They are capped,
    cap: Option<f32>,
    /// then these are added: the numbers of the keys from the first one of the span on.
    bias: Option<&'a [f32]>,
}

/// Turns the products of keys `keys` into logits, and these into `p = exp(s - m)`, in place; returns `(m, l)`. Other places of the
/// blocks of sixteen that contain `keys` become +0.
///
/// # Safety
/// `logits` is valid for the blocks of sixteen that contain `keys`, and at most [`SPAN`] values.
#[inline(always)]
pub(super) unsafe fn softmax<S: Isa>(
    s: S,
    terms: LogitTerms<'_>,
    logits: *mut f32,
    keys: Range<usize>,
) -> (f32, f32) {
    // SAFETY: by contract.
    unsafe { softmax_with(s, terms, logits, keys, |_, p| p) }
}

/// Turns the products of keys `keys` into logits, in place, and returns the largest. Other places of the blocks of sixteen that contain
/// `keys` become -infinity.
///
/// # Safety
/// As [`softmax`].
#[inline(always)]
pub(super) unsafe fn largest_logit<S: Isa>(
    s: S,
    terms: LogitTerms<'_>,
    logits: *mut f32,
    keys: Range<usize>,
) -> f32 {
    let (begin, end) = (keys.start / LANES * LANES, keys.end.next_multiple_of(LANES));
    // SAFETY: all addresses lie in the blocks that contain `keys`.
    unsafe {
        if let Some(cap) = terms.cap {
            let cap = s.splat(cap);
            for at in (begin..end).step_by(LANES) {
                s.store(logits.add(at), soft_capped(s, s.load(logits.add(at)), cap));
            }
        }
        if let Some(bias) = terms.bias {
            for at in (begin..end).step_by(LANES) {
                s.store(logits.add(at), s.add(s.load(logits.add(at)), s.load(bias[at..][..LANES].as_ptr())));
            }
        }
        for key in (begin..keys.start).chain(keys.end..end) {
            *logits.add(key) = f32::NEG_INFINITY;
        }
        let mut m = s.splat(f32::NEG_INFINITY);
        for at in (begin..end).step_by(LANES) {
            m = s.max(m, s.load(logits.add(at)));
        }
        s.reduce_max(m)
    }
}

/// As [`softmax`], but stores `weigh(key, p)` of the sixteen keys from `key` on. The sum is that of `p`.
///
/// # Safety
/// As [`softmax`].
#[inline(always)]
pub(super) unsafe fn softmax_with<S: Isa>(
    s: S,
    terms: LogitTerms<'_>,
    logits: *mut f32,
    keys: Range<usize>,
    weigh: impl FnMut(usize, S::F) -> S::F,
) -> (f32, f32) {
    // SAFETY: by contract.
    unsafe {
        let max = largest_logit(s, terms, logits, keys.clone());
        (max, exponentials(s, logits, keys, max, weigh))
    }
}

/// The second part of [`softmax_with`], after [`largest_logit`]; returns the sum.
///
/// # Safety
/// As [`softmax`].
#[inline(always)]
pub(super) unsafe fn exponentials<S: Isa>(
    s: S,
    logits: *mut f32,
    keys: Range<usize>,
    max: f32,
    mut weigh: impl FnMut(usize, S::F) -> S::F,
) -> f32 {
    let m = s.splat(max);
    let mut sum = s.splat(0.0);
    for at in (keys.start / LANES * LANES..keys.end).step_by(LANES) {
        // SAFETY: the address lies in a block that contains one of `keys`.
        unsafe {
            let p = exp_of_nonpositive(s, s.sub(s.load(logits.add(at)), m));
            s.store(logits.add(at), weigh(at, p));
            sum = s.add(sum, p);
        }
    }
    s.reduce_add(sum)
}
