//! Attention over int8 keys and values, whose products are exact sums of integers.
//!
//! Order, per query row and head: the scaled query is quantised like an input of a linear layer, as one group; a logit is
//! `f32(I) * (s_k * s_q)` with the exact sum `I` of its products. In a span, `p` and `l` are those of the float formats. The weight
//! of a value is `w = p * s_v` (+0 where p is not above 0), `W` the largest of them; `P = w * (16383 / W)` rounded to nearest
//! even, 14 bits; `o = f32(sum of P v) * (W / 16383)`, where the sum is exact. If `W` is below 2^-100, `o` is +0; if a weight
//! is not finite, `o` is NaN. Because the sums are exact, their order, the tiles and the keys that a row does not see
//! (P = 0) have no effect.

use std::mem::MaybeUninit;
use std::ops::Range;

use redline_simd::{Isa, LANES};

use super::SPAN;
use super::block::{BLOCK_TILES, Block, Products, ROWS, Seen, Values, softmax};
use crate::dot::INPUT_WORDS;
use crate::format::{BLOCK, Integer, w8::W8};
use crate::op::kv::{MAX_HEAD_DIM, PAGE_TOKENS};
use crate::op::quantise::{quantise_head, scale_of};
use crate::tile::TILE_ROWS;

/// Maximum number of rows in a tile.
pub(super) const INTEGER_ROWS: usize = 4;
/// Number of pages in a span.
const PAGES: usize = SPAN / PAGE_TOKENS;
/// Largest weight of a value: 14 bits.
const LARGEST: f32 = 16383.0;
/// Number of scales of sixteen tokens: those of keys, and those of values.
const BLOCK_SCALES: usize = 2 * LANES;
/// Words of a line of the cache.
const LINE: usize = 16;

/// Queries, logits and values of a block; every part is written before it is read.
pub(super) struct Integers {
    /// Quantised queries, for each tile `[dimensions / 4][rows of the tile]` words.
    queries: MaybeUninit<[u32; ROWS * MAX_HEAD_DIM / 4]>,
    /// The scale of each row's query, and the initial value of its sums.
    scales: [(f32, u32); ROWS],
    /// Logits of a tile, then the weights of its values: `[rows][keys of a span]`.
    logits: MaybeUninit<[f32; INTEGER_ROWS * SPAN]>,
    /// Weights of a tile as integers, `[keys / 4][rows of the tile][2]` words.
    weights: MaybeUninit<[u32; INTEGER_ROWS * SPAN / 2]>,
}

/// A tile and the pages that it reads of a span.
struct Read<'a> {
    block: &'a Block<'a>,
    /// The tile's number in the block.
    tile: usize,
    seen: &'a Seen,
    /// The words of each page, if the tile sees any of its keys.
    pages: [Option<&'a [u32]>; PAGES],
    /// The words of the pages of the next span, which are prefetched meanwhile.
    next: [Option<&'a [u32]>; PAGES],
}

impl<'a> Read<'a> {
    fn new(block: &'a Block<'a>, tile: usize, start: usize, seen: &'a Seen) -> Self {
        let segment = block.tile(tile).segment;
        let words = |page: usize| {
            let id = segment.pages.get(start / PAGE_TOKENS + page)?;
            Some(block.job.kv.head(*id, block.job.layer, block.kv_head))
        };
        let pages = std::array::from_fn(|page| seen.slots(page).and_then(|_| words(page)));
        // Other tiles of the block read mostly the same pages.
        let next = std::array::from_fn(|page| words(PAGES + page).filter(|_| tile == 0));
        Self { block, tile, seen, pages, next }
    }

    /// Prefetches `words` words of page `page` of the next span.
    #[inline(always)]
    fn prefetch<S: Isa>(&self, s: S, page: usize, words: Range<usize>) {
        if let Some(next) = self.next[page] {
            for word in words.step_by(LINE) {
                s.prefetch_far(next.as_ptr().wrapping_add(word).cast());
            }
        }
    }
}

/// Calls a method with the number of rows as a constant.
macro_rules! with_rows {
    ($rows:expr, $most:expr, $object:ident . $method:ident :: <$S:ident> ($($argument:expr),*)) => {
        match $rows {
            1 => $object.$method::<$S, 1>($($argument),*),
            2 => $object.$method::<$S, 2>($($argument),*),
            3 if $most >= 3 => $object.$method::<$S, 3>($($argument),*),
            4 if $most >= 4 => $object.$method::<$S, 4>($($argument),*),
            rows => unreachable!("a tile of {rows} rows"),
        }
    };
}

impl<S: Isa> Products<S> for Integers {
    #[inline(always)]
    fn load_queries(&mut self, s: S, block: &Block<'_>) {
        let steps = block.shape().steps();
        for t in 0..block.len() {
            let tile = block.tile(t);
            for r in 0..tile.rows {
                let mut packed = [0; MAX_HEAD_DIM / 4];
                let scale = quantise_head(s, &block.query(&tile, r), &mut packed);
                let bytes = packed.iter().flat_map(|word| word.to_le_bytes());
                let sum: i32 = bytes.map(|byte| i32::from(byte as i8)).sum();
                self.scales[t * TILE_ROWS + r] = (scale, (-W8::offset::<S>() * sum) as u32);
                for (step, &word) in packed.iter().enumerate().take(steps) {
                    // SAFETY: a tile has room for TILE_ROWS queries.
                    unsafe { self.query_words(t).add(step * tile.rows + r).write(word) };
                }
            }
        }
    }

    #[inline(always)]
    fn span(
        &mut self,
        s: S,
        block: &Block<'_>,
        start: usize,
        seen: &[Seen; BLOCK_TILES],
        o: &mut Values,
    ) -> [(f32, f32); ROWS] {
        let mut tops = [(0f32, 0f32); ROWS];
        for t in 0..block.len() {
            if seen[t].rows.1 == 0 {
                continue;
            }
            let (read, rows) = (Read::new(block, t, start, &seen[t]), block.tile(t).rows);
            with_rows!(rows, INTEGER_ROWS, self.logits::<S>(s, &read));
            let mut scales = [0f32; INTEGER_ROWS];
            for r in 0..rows {
                (tops[t * TILE_ROWS + r], scales[r]) = self.weigh(s, &read, r, rows);
            }
            let mut row = 0;
            while row < rows {
                let count = (rows - row).min(S::SHORT_ROWS);
                with_rows!(count, S::SHORT_ROWS, self.values::<S>(s, &read, row, rows, &scales, o));
                row += count;
            }
        }
        tops
    }
}

impl Integers {
    pub(super) fn new() -> Self {
        Self {
            queries: MaybeUninit::uninit(),
            scales: [(0.0, 0); ROWS],
            logits: MaybeUninit::uninit(),
            weights: MaybeUninit::uninit(),
        }
    }

    /// The address of a tile's quantised queries.
    #[inline(always)]
    fn query_words(&mut self, tile: usize) -> *mut u32 {
        // SAFETY: a block has that many tiles.
        unsafe { self.queries.as_mut_ptr().cast::<u32>().add(tile * TILE_ROWS * MAX_HEAD_DIM / 4) }
    }

    /// Computes the logits of all `R` rows of a tile, for every block of sixteen keys of which a row sees any.
    #[inline(always)]
    fn logits<S: Isa, const R: usize>(&mut self, s: S, read: &Read<'_>) {
        let shape = read.block.shape();
        let (strip, blocks_of_key) = (shape.key_strip_words(), shape.key_dims() / BLOCK);
        let queries = self.query_words(read.tile);
        let scales = &self.scales[read.tile * TILE_ROWS..][..R];
        let to = self.logits.as_mut_ptr().cast::<f32>();
        for page in 0..PAGES {
            let (Some(words), Some(slots)) = (read.pages[page], read.seen.slots(page)) else { continue };
            for keys in slots.start / LANES..slots.end.div_ceil(LANES) {
                read.prefetch(s, page, keys * strip..(keys + 1) * strip);
                let scales_at = shape.scales() + keys * BLOCK_SCALES;
                read.prefetch(s, page, scales_at..scales_at + BLOCK_SCALES);
                // SAFETY: the strip lies within the page, whose scales follow its values; queries and logits hold R rows.
                unsafe {
                    let mut sums = [[s.splat_word(0); R]; 1];
                    for r in 0..R {
                        sums[0][r] = s.splat_word(scales[r].1);
                    }
                    let w = words.as_ptr().add(keys * strip);
                    for block in 0..blocks_of_key {
                        let q = queries.add(block * INPUT_WORDS * R);
                        s.dot_u8(&mut sums, w.add(block * W8::BLOCK_WORDS), q);
                    }
                    let key_scales = s.load(words.as_ptr().add(shape.scales() + keys * LANES).cast());
                    for r in 0..R {
                        let scale = s.mul(key_scales, s.splat(scales[r].0));
                        let logits = s.mul(s.to_float(sums[0][r]), scale);
                        s.store(to.add(r * SPAN + page * PAGE_TOKENS + keys * LANES), logits);
                    }
                }
            }
        }
    }

    /// Turns the logits of row `r` of `rows` into weights of its values. Returns maximum and sum, and the scale of the weights.
    #[inline(always)]
    fn weigh<S: Isa>(&mut self, s: S, read: &Read<'_>, r: usize, rows: usize) -> ((f32, f32), f32) {
        let values_scales = read.block.shape().scales() + PAGE_TOKENS;
        let (from, to) = read.seen.keys[r];
        let whole = blocks_of_32(read.seen);
        // SAFETY: logits were computed for all blocks of sixteen keys of which a row sees any; weights hold every row.
        unsafe {
            let logits = self.logits.as_mut_ptr().cast::<f32>().add(r * SPAN);
            let weights = self.weights.as_mut_ptr().cast::<[u32; 2]>().add(r);
            let store = |at: usize, packed: [[u32; 2]; LANES / 4]| {
                for (group, words) in packed.into_iter().enumerate() {
                    weights.add((at / 4 + group) * rows).write(words);
                }
            };
            let nothing = s.pack_shorts(s.splat_word(0));
            if from >= to {
                whole.step_by(LANES).for_each(|at| store(at, nothing));
                return ((0.0, 0.0), 0.0);
            }
            let top = softmax(s, logits, from..to);
            let (begin, end) = (from / LANES * LANES, to.next_multiple_of(LANES));
            let mut largest = s.splat_word(0);
            for at in (begin..end).step_by(LANES) {
                let Some(words) = read.pages[at / PAGE_TOKENS] else { continue };
                let (p, zero) = (s.load(logits.add(at)), s.splat(0.0));
                let scale = s.load(words.as_ptr().add(values_scales + at % PAGE_TOKENS).cast());
                let w = s.select_lt(zero, p, s.mul(p, scale), zero);
                s.store(logits.add(at), w);
                largest = s.max_magnitude(largest, w);
            }
            let largest = f32::from_bits(s.max_word(largest));
            let (scale, inv) = scale_of(largest, LARGEST);
            for at in whole.step_by(LANES) {
                if (begin..end).contains(&at) && largest.is_finite() {
                    store(at, s.pack_shorts(s.to_nearest(s.mul(s.load(logits.add(at)), s.splat(inv)))));
                } else {
                    store(at, nothing);
                }
            }
            (top, scale)
        }
    }

    /// Computes the weighted values of `R` of a tile's `rows` rows, from `first` on.
    #[inline(always)]
    fn values<S: Isa, const R: usize>(
        &self,
        s: S,
        read: &Read<'_>,
        first: usize,
        rows: usize,
        scales: &[f32; INTEGER_ROWS],
        o: &mut Values,
    ) {
        let (shape, width) = (read.block.shape(), read.block.width());
        let weights = self.weights.as_ptr().cast::<u32>();
        let whole = blocks_of_32(read.seen);
        for strip in 0..shape.value_strips() {
            let mut sums = [[s.splat_word(0); 2]; R];
            for page in 0..PAGES {
                let Some(words) = read.pages[page] else { continue };
                let at = shape.key_words() + strip * shape.value_strip_words();
                if first == 0 {
                    read.prefetch(s, page, at..at + shape.value_strip_words());
                }
                let (begin, end) = (page * PAGE_TOKENS, (page + 1) * PAGE_TOKENS);
                for key in (whole.start.max(begin)..whole.end.min(end)).step_by(BLOCK) {
                    // SAFETY: 32 tokens of the strip lie within the page; weights hold all rows of these.
                    unsafe {
                        let w = words.as_ptr().add(at + (key - begin) * shape.value_words());
                        s.dot_shorts(&mut sums, w, weights.add((key / 4 * rows + first) * 2), rows * 2);
                    }
                }
            }
            for r in 0..R {
                let row = read.tile * TILE_ROWS + first + r;
                // SAFETY: a strip of a row of the block.
                unsafe {
                    let o = o.as_mut_ptr().cast::<f32>().add(row * width + strip * LANES);
                    s.store(o, s.mul(s.sum_shorts(sums[r]), s.splat(scales[first + r])));
                }
            }
        }
    }
}

/// The blocks of 32 keys that contain all keys that a tile sees of a span.
fn blocks_of_32(seen: &Seen) -> Range<usize> {
    seen.any.0 / BLOCK * BLOCK..seen.any.1.next_multiple_of(BLOCK)
}
