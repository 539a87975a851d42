//! A block: some tiles of query rows of one KV head that process keys and values together.

use std::mem::MaybeUninit;
use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES};

use super::page::{HeadPage, Unpacked};
use super::{Job, MAX_HEAD_DIM, SPAN};
use crate::format::Mac;
use crate::format::bf16::{self, Bf16Mac, WidenMac, pack_row};
use crate::format::float32::F32Mac;
use crate::op::exp::exp;
use crate::op::kv::{AttentionMask, KvFormat, KvShape, PAGE_TOKENS, Segment};
use crate::tile::TILE_ROWS;

/// Maximum number of tiles in a block.
pub(super) const BLOCK_TILES: usize = 8;
/// Maximum number of rows in a block.
const ROWS: usize = BLOCK_TILES * TILE_ROWS;

/// Up to six query rows of one segment: token-major, then heads of the group.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a> {
    segment: &'a Segment<'a>,
    /// The first row, counted in the segment.
    first: usize,
    rows: usize,
}

impl<'a> Tile<'a> {
    /// Tile `t` of a segment.
    pub(super) fn new(job: &Job<'_>, segment: &'a Segment<'a>, t: usize) -> Self {
        let first = t * TILE_ROWS;
        Self { segment, first, rows: (segment.rows * job.group - first).min(TILE_ROWS) }
    }
}

/// Some tiles of query rows of one KV head.
pub(super) struct Block<'a> {
    job: &'a Job<'a>,
    kv_head: usize,
    tiles: [Option<Tile<'a>>; BLOCK_TILES],
    count: usize,
}

impl<'a> Block<'a> {
    /// Creates an empty block.
    pub(super) fn new(job: &'a Job<'a>, kv_head: usize) -> Self {
        Self { job, kv_head, tiles: [None; BLOCK_TILES], count: 0 }
    }

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
}

/// The keys of a span that the rows of a tile see, counted from the start of the span.
#[derive(Clone, Copy)]
struct Seen {
    keys: [(usize, usize); TILE_ROWS],
    /// The rows that see any of these keys.
    rows: (usize, usize),
    /// From the first key that any row sees to one past the last.
    any: (usize, usize),
    /// The range of keys that all of these rows see; may be empty.
    all: (usize, usize),
}

const NOTHING: Seen = Seen { keys: [(0, 0); TILE_ROWS], rows: (0, 0), any: (0, 0), all: (0, 0) };

/// Running maximum and sum of one query row.
#[derive(Clone, Copy)]
struct State {
    max: f32,
    sum: f32,
    started: bool,
}

/// Scratch memory of a block; every part is written before it is read. Rows are stored tile by tile, six per tile.
struct Scratch {
    /// Queries in the input words of the cache's format, `[rows][steps]`.
    words: MaybeUninit<[u32; ROWS * MAX_HEAD_DIM]>,
    /// The same values as f32, for unpacked pages: `[rows][dimensions of the keys]`.
    floats: MaybeUninit<[f32; ROWS * MAX_HEAD_DIM]>,
    /// `[rows][keys of a span]`
    logits: MaybeUninit<[f32; ROWS * SPAN]>,
    /// `[rows][dimensions, padded]`
    o: MaybeUninit<[f32; ROWS * MAX_HEAD_DIM]>,
    merged: MaybeUninit<[f32; ROWS * MAX_HEAD_DIM]>,
    page: Unpacked,
}

impl Kernel for &Block<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        match self.shape().format {
            KvFormat::F32 => self.run_format::<S, F32Mac, F32Mac>(s),
            KvFormat::Bf16 => self.run_format::<S, Bf16Mac, WidenMac>(s),
        }
    }
}

impl Block<'_> {
    fn shape(&self) -> KvShape {
        self.job.kv_shape
    }

    /// Number of values in a row of `o`.
    fn width(&self) -> usize {
        self.shape().value_strips() * LANES
    }

    fn tile(&self, t: usize) -> Tile<'_> {
        self.tiles[t].expect("a tile that was pushed")
    }

    /// The keys that row `r` of a tile sees.
    fn visible(&self, tile: &Tile<'_>, r: usize) -> Range<usize> {
        if let AttentionMask::Bidirectional(keys) = tile.segment.attention {
            return 0..keys;
        }
        let position = tile.segment.start + (tile.first + r) / self.job.group;
        let first = self.job.shape.window.map_or(0, |w| (position + 1).saturating_sub(w));
        first..position + 1
    }

    /// Row and first column in the batch of row `r`'s head.
    fn place(&self, tile: &Tile<'_>, r: usize) -> (usize, usize) {
        let index = tile.first + r;
        let head = self.kv_head * self.job.group + index % self.job.group;
        (tile.segment.first_row + index / self.job.group, head * self.shape().head_dim)
    }

    #[inline(always)]
    fn run_format<S: Isa, K: Mac, V: Mac>(&self, s: S) {
        let mut scratch = Scratch {
            words: MaybeUninit::uninit(),
            floats: MaybeUninit::uninit(),
            logits: MaybeUninit::uninit(),
            o: MaybeUninit::uninit(),
            merged: MaybeUninit::uninit(),
            page: Unpacked::new(),
        };
        let mut states = [[State { max: 0.0, sum: 0.0, started: false }; TILE_ROWS]; BLOCK_TILES];
        let (mut first, mut last) = (usize::MAX, 0);
        for t in 0..self.count {
            let tile = self.tile(t);
            self.load_queries(t, &tile, &mut scratch);
            first = first.min(self.visible(&tile, 0).start);
            last = last.max(self.visible(&tile, tile.rows - 1).end);
        }
        let mut start = first / SPAN * SPAN;
        while start < last {
            self.span::<S, K, V>(s, start, &mut scratch, &mut states);
            start += SPAN;
        }
        for t in 0..self.count {
            self.write_out(s, t, &scratch, &states[t]);
        }
    }

    /// Stores the scaled queries in the input words of the cache's format, and as f32.
    #[inline(always)]
    fn load_queries(&self, t: usize, tile: &Tile<'_>, scratch: &mut Scratch) {
        let (head_dim, steps, dims) = (self.shape().head_dim, self.shape().steps(), self.shape().key_dims());
        for r in 0..tile.rows {
            let (row, column) = self.place(tile, r);
            let q = &self.job.q.row(row)[column..][..head_dim];
            let mut scaled = [0f32; MAX_HEAD_DIM];
            for (to, x) in scaled.iter_mut().zip(q) {
                *to = x * self.job.shape.scale;
            }
            let index = t * TILE_ROWS + r;
            // SAFETY: a row has at most MAX_HEAD_DIM words and as many values.
            let (words, floats) = unsafe {
                let words = scratch.words.as_mut_ptr().cast::<u32>().add(index * steps);
                let floats = scratch.floats.as_mut_ptr().cast::<f32>().add(index * dims);
                (std::slice::from_raw_parts_mut(words, steps), std::slice::from_raw_parts_mut(floats, dims))
            };
            match self.shape().format {
                KvFormat::F32 => words.iter_mut().zip(&scaled).for_each(|(word, x)| *word = x.to_bits()),
                KvFormat::Bf16 => {
                    pack_row(&scaled[..head_dim], words);
                    floats.iter_mut().zip(&scaled).for_each(|(to, x)| *to = bf16::widen(bf16::round(*x)));
                }
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

    /// The page that tile `t` reads as page `page` of the span; `None` if it sees none of its keys.
    fn page_of(&self, t: usize, seen: &[Seen; BLOCK_TILES], start: usize, page: usize) -> Option<u32> {
        let (from, to) = seen[t].any;
        let sees = from < (page + 1) * PAGE_TOKENS && to > page * PAGE_TOKENS && from < to;
        sees.then(|| self.tile(t).segment.pages[start / PAGE_TOKENS + page])
    }

    /// The next adjacent tiles, from `first` on, that read the same page, and the keys that they read of it.
    fn sharing(
        &self,
        first: usize,
        seen: &[Seen; BLOCK_TILES],
        start: usize,
        page: usize,
    ) -> Option<(HeadPage<'_>, Range<usize>)> {
        let of = |t| self.page_of(t, seen, start, page);
        let (first, id) = (first..self.count).find_map(|t| of(t).map(|id| (t, id)))?;
        let end = (first..self.count).find(|&t| of(t) != Some(id)).unwrap_or(self.count);
        Some((HeadPage::new(self.job.kv, id, self.job.layer, self.kv_head), first..end))
    }

    /// Processes one span: logits, softmax, values, merge.
    #[inline(always)]
    fn span<S: Isa, K: Mac, V: Mac>(
        &self,
        s: S,
        start: usize,
        scratch: &mut Scratch,
        states: &mut [[State; TILE_ROWS]; BLOCK_TILES],
    ) {
        let mut seen = [NOTHING; BLOCK_TILES];
        for t in 0..self.count {
            seen[t] = self.seen(&self.tile(t), start);
        }
        self.logits::<S, K>(s, start, &seen, scratch);
        let mut tops = [[(0f32, 0f32); TILE_ROWS]; BLOCK_TILES];
        for t in 0..self.count {
            for r in seen[t].rows.0..seen[t].rows.1 {
                let index = t * TILE_ROWS + r;
                // SAFETY: the logits of row `r` were computed for all keys that it sees, in whole blocks.
                tops[t][r] = unsafe {
                    let o = scratch.o.as_mut_ptr().cast::<f32>().add(index * self.width());
                    for at in (0..self.width()).step_by(LANES) {
                        s.store(o.add(at), s.splat(0.0));
                    }
                    let logits = scratch.logits.as_mut_ptr().cast::<f32>().add(index * SPAN);
                    softmax(s, logits, seen[t].keys[r].0..seen[t].keys[r].1)
                };
            }
        }
        self.values::<S, V>(s, start, &seen, scratch);
        for t in 0..self.count {
            for r in seen[t].rows.0..seen[t].rows.1 {
                self.merge(s, t * TILE_ROWS + r, tops[t][r], scratch, &mut states[t][r]);
            }
        }
    }

    /// Computes the logits of every row of every tile, page by page.
    #[inline(always)]
    fn logits<S: Isa, K: Mac>(&self, s: S, start: usize, seen: &[Seen; BLOCK_TILES], scratch: &mut Scratch) {
        let (steps, dims) = (self.shape().steps(), self.shape().key_dims());
        for page in 0..SPAN / PAGE_TOKENS {
            let mut next = 0;
            while let Some((head, tiles)) = self.sharing(next, seen, start, page) {
                next = tiles.end;
                let unpacked = tiles.len() > 1 && K::SPLIT && !S::DOT_BF16;
                if unpacked {
                    scratch.page.take_keys(s, &head);
                }
                for t in tiles {
                    let ((first, last), any) = (seen[t].rows, seen[t].any);
                    let in_page = |key: usize| {
                        key.clamp(page * PAGE_TOKENS, (page + 1) * PAGE_TOKENS) - page * PAGE_TOKENS
                    };
                    let blocks = in_page(any.0) / LANES..in_page(any.1).div_ceil(LANES);
                    let row = t * TILE_ROWS + first;
                    // SAFETY: these blocks lie within the page; queries and logits hold every row of the tile.
                    unsafe {
                        let to = scratch.logits.as_mut_ptr().cast::<f32>();
                        let to = to.add(row * SPAN + page * PAGE_TOKENS + blocks.start * LANES);
                        if unpacked {
                            let q = scratch.floats.as_ptr().cast::<u32>().add(row * dims);
                            scratch.page.keys_times::<S>(
                                s,
                                dims,
                                blocks,
                                (q, dims),
                                (to, SPAN),
                                last - first,
                            );
                        } else {
                            let q = scratch.words.as_ptr().cast::<u32>().add(row * steps);
                            head.keys_times::<S, K>(s, blocks, (q, steps), (to, SPAN), last - first);
                        }
                    }
                }
            }
        }
    }

    /// `o[r] = sum of p[r][key] v[key]` over the keys each row sees, ascending, page by page.
    #[inline(always)]
    fn values<S: Isa, V: Mac>(&self, s: S, start: usize, seen: &[Seen; BLOCK_TILES], scratch: &mut Scratch) {
        for page in 0..SPAN / PAGE_TOKENS {
            let mut next = 0;
            while let Some((head, tiles)) = self.sharing(next, seen, start, page) {
                next = tiles.end;
                let unpacked = tiles.len() > 1 && V::WIDENS;
                if unpacked {
                    scratch.page.take_values(s, &head);
                }
                for t in tiles {
                    let page = (&head, page, unpacked);
                    let (first, last) = seen[t].rows;
                    // Keys that all rows see are processed together, the keys before and after them row by row.
                    let (low, high) = seen[t].all;
                    if low >= high {
                        for r in first..last {
                            let (a, b) = seen[t].keys[r];
                            self.weighted::<S, V>(s, page, a..b, t * TILE_ROWS + r, 1, scratch);
                        }
                        continue;
                    }
                    for r in first..last {
                        self.weighted::<S, V>(s, page, seen[t].keys[r].0..low, t * TILE_ROWS + r, 1, scratch);
                    }
                    self.weighted::<S, V>(s, page, low..high, t * TILE_ROWS + first, last - first, scratch);
                    for r in first..last {
                        self.weighted::<S, V>(
                            s,
                            page,
                            high..seen[t].keys[r].1,
                            t * TILE_ROWS + r,
                            1,
                            scratch,
                        );
                    }
                }
            }
        }
    }

    /// Adds `p v` for the keys `keys` (counted in the span) of one page to `rows` rows.
    #[inline(always)]
    fn weighted<S: Isa, V: Mac>(
        &self,
        s: S,
        (head, page, unpacked): (&HeadPage<'_>, usize, bool),
        keys: Range<usize>,
        row: usize,
        rows: usize,
        scratch: &mut Scratch,
    ) {
        let (begin, end) = (page * PAGE_TOKENS, (page + 1) * PAGE_TOKENS);
        let (from, to) = (keys.start.clamp(begin, end), keys.end.clamp(begin, end));
        if from >= to {
            return;
        }
        let slots = from - begin..to - begin;
        // SAFETY: these slots lie within the page; probabilities and sums hold every row.
        unsafe {
            let p = (scratch.logits.as_ptr().cast::<u32>().add(row * SPAN + from), SPAN);
            let o = (scratch.o.as_mut_ptr().cast::<f32>().add(row * self.width()), self.width());
            if unpacked {
                scratch.page.values_times::<S>(s, self.shape(), slots, p, o, rows);
            } else {
                head.values_times::<S, V>(s, slots, p, o, rows);
            }
        }
    }

    /// Merges the span's result of a row into the result of earlier spans.
    #[inline(always)]
    fn merge<S: Isa>(
        &self,
        s: S,
        row: usize,
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
        for at in (0..self.width()).step_by(LANES) {
            // SAFETY: a row of `o` and `merged`; `merged` is read only after it was written.
            unsafe {
                let at = row * self.width() + at;
                let o = s.load(scratch.o.as_ptr().cast::<f32>().add(at));
                let merged = scratch.merged.as_mut_ptr().cast::<f32>().add(at);
                s.store(merged, a.map_or(o, |a| s.fma(o, b, s.mul(s.load(merged), a))));
            }
        }
    }

    /// `out = O / L`.
    #[inline(always)]
    fn write_out<S: Isa>(&self, s: S, t: usize, scratch: &Scratch, states: &[State; TILE_ROWS]) {
        let (tile, head_dim) = (self.tile(t), self.shape().head_dim);
        for r in 0..tile.rows {
            let (row, column) = self.place(&tile, r);
            let merged = (t * TILE_ROWS + r) * self.width();
            for at in (0..head_dim).step_by(LANES) {
                // SAFETY: a query row sees at least itself, so `merged` was written; this head of this row belongs
                // to this tile alone.
                unsafe {
                    let o = s.load(scratch.merged.as_ptr().cast::<f32>().add(merged + at));
                    let to = self.job.out.get().add(row * self.job.stride + column + at);
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
