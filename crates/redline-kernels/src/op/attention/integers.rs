//! Attention over keys and values that are integers with scales, whose products are exact sums.
//!
//! Order, per query row and head: the scaled query (rotated, if the format rotates) is quantised like an input of a linear layer, as
//! one group; a logit is the exact sum of its products, or of those of each group of dimensions, times scales in the order that
//! the format states: `f32(I) * (s_k * s_q)` in `w8`. In a span, `p` and `l` are those of the float formats. For every group of
//! dimensions with a scale of its own, the weight of a value is `w = p * s_v` (+0 where p is not above 0), `W` the largest of
//! them; `P = w * (16383 / W)` rounded to nearest even, 14 bits; `o = f32(sum of P v) * (W / 16383)`, where the sum is exact. If
//! `W` is below 2^-100, `o` is +0; if a weight is not finite, `o` is NaN. Because the sums are exact, their order, the tiles and
//! the keys that a row does not see (P = 0) have no effect.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES};

use super::SPAN;
use super::block::{BLOCK_TILES, Block, MAX_ROWS, Products, ROWS, Seen, Tile, Values, softmax, softmax_with};
use crate::format::BLOCK;
use crate::op::kv::{
    IntegerEncoding, KvShape, MAX_HEAD_DIM, MAX_SCALES, PAGE_BLOCKS, PAGE_TOKENS, QueryScale,
};
use crate::op::quantise::{GroupScale, scale_of};

/// Number of pages in a span.
pub(super) const PAGES: usize = SPAN / PAGE_TOKENS;
/// Largest weight of a value: 14 bits.
pub(super) const LARGEST: f32 = 16383.0;
/// Number of words of the weights of a tile's rows.
const WEIGHT_WORDS: usize = MAX_ROWS * SPAN / 2;
/// Words of a line of the cache.
const LINE: usize = 16;

/// Queries, logits and values of a block; every part is written before it is read.
pub(super) struct Integers<F> {
    /// Quantised queries, for each tile `[dimensions / 4][rows of the tile]` words.
    queries: MaybeUninit<[u32; ROWS * MAX_HEAD_DIM / 4]>,
    /// The scale of each row's query.
    scales: [QueryScale; ROWS],
    /// Logits of a tile, then the probabilities: `[rows][keys of a span]`.
    logits: MaybeUninit<[f32; MAX_ROWS * SPAN]>,
    /// Weights of a tile as integers, for each group of dimensions `[keys / 4][rows of the tile][2]` words.
    weights: MaybeUninit<[u32; WEIGHT_WORDS * MAX_SCALES]>,
    format: PhantomData<F>,
}

/// The scale of a row's weights in each group of dimensions.
type WeightScales = [f32; MAX_SCALES];

/// The words of each page of a span that is read.
pub(super) type Pages<'a> = [Option<&'a [u32]>; PAGES];

/// A tile and the pages that it reads of a span.
struct Read<'a> {
    block: &'a Block<'a>,
    /// The tile's number in the block.
    tile: usize,
    /// The first key of the span.
    start: usize,
    seen: &'a Seen,
    /// The words of each page, if the tile sees any of its keys.
    pages: Pages<'a>,
    /// The words of the pages of the next span, which are prefetched meanwhile.
    next: Pages<'a>,
}

impl<'a> Read<'a> {
    fn new(block: &'a Block<'a>, tile: usize, start: usize, seen: &'a Seen) -> Self {
        let words = |page| page_words(block, tile, start / PAGE_TOKENS + page);
        let pages = std::array::from_fn(|page| seen.slots(page).and_then(|_| words(page)));
        // Other tiles of the block read mostly the same pages.
        let next = std::array::from_fn(|page| words(PAGES + page).filter(|_| tile == 0));
        Self { block, tile, start, seen, pages, next }
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

/// The words of page `page` of a tile's sequence; `None` if the page has no keys, because another micro-batch may then write it.
pub(super) fn page_words<'a>(block: &'a Block<'_>, tile: usize, page: usize) -> Option<&'a [u32]> {
    let segment = block.tile(tile).segment;
    let id = segment.pages[..segment.keys().div_ceil(PAGE_TOKENS)].get(page)?;
    Some(block.job.kv.head(*id, block.job.layer, block.kv_head))
}

/// Calls a method with the number of rows as a constant.
macro_rules! with_rows {
    ($rows:expr, $most:expr, $object:ident . $method:ident :: <$S:ident> ($($argument:expr),*)) => {
        match $rows {
            1 => $object.$method::<$S, 1>($($argument),*),
            2 => $object.$method::<$S, 2>($($argument),*),
            3 if $most >= 3 => $object.$method::<$S, 3>($($argument),*),
            4 if $most >= 4 => $object.$method::<$S, 4>($($argument),*),
            5 if $most >= 5 => $object.$method::<$S, 5>($($argument),*),
            6 if $most >= 6 => $object.$method::<$S, 6>($($argument),*),
            7 if $most >= 7 => $object.$method::<$S, 7>($($argument),*),
            8 if $most >= 8 => $object.$method::<$S, 8>($($argument),*),
            rows => unreachable!("a tile of {rows} rows"),
        }
    };
}

impl<S: Isa, F: IntegerEncoding> Products<S> for Integers<F> {
    #[inline(always)]
    fn load_queries(&mut self, s: S, block: &Block<'_>) {
        let words = shape_of::<F>(block).key_dims() / 4;
        let (mut scaled, mut packed) = ([0f32; MAX_HEAD_DIM], [0; MAX_HEAD_DIM / 4]);
        for t in 0..block.len() {
            let tile = block.tile(t);
            for r in 0..tile.rows {
                let packed = &mut packed[..words];
                let scale = &mut self.scales[t * MAX_ROWS + r];
                quantise_query::<S, F>(s, block, (&tile, r), &mut scaled, packed, scale);
                for (step, &word) in packed.iter().enumerate() {
                    // SAFETY: a tile has room for MAX_ROWS queries.
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
            with_rows!(rows, integer_rows::<S>(), self.logits::<S>(s, &read));
            let mut scales = [[0f32; MAX_SCALES]; MAX_ROWS];
            for r in 0..rows {
                (tops[t * MAX_ROWS + r], scales[r]) = self.weigh(s, &read, r, rows);
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

impl<F: IntegerEncoding> Integers<F> {
    pub(super) fn new() -> Self {
        Self {
            queries: MaybeUninit::uninit(),
            scales: [QueryScale::default(); ROWS],
            logits: MaybeUninit::uninit(),
            weights: MaybeUninit::uninit(),
            format: PhantomData,
        }
    }

    /// Bytes that heads of `head_dim` dimensions in `groups` groups with a scale use.
    pub(super) const fn bytes(head_dim: usize, groups: usize) -> usize {
        let scales = size_of::<f32>() + groups * size_of::<i32>();
        let logits = MAX_ROWS * SPAN * size_of::<f32>();
        ROWS * (head_dim + scales) + logits + WEIGHT_WORDS * groups * size_of::<u32>()
    }

    /// The address of a tile's quantised queries.
    #[inline(always)]
    fn query_words(&mut self, tile: usize) -> *mut u32 {
        // SAFETY: a block has that many tiles.
        unsafe { self.queries.as_mut_ptr().cast::<u32>().add(tile * MAX_ROWS * MAX_HEAD_DIM / 4) }
    }

    /// Computes the logits of all `R` rows of a tile, for every block of sixteen keys of which a row sees any.
    #[inline(always)]
    fn logits<S: Isa, const R: usize>(&mut self, s: S, read: &Read<'_>) {
        let shape = shape_of::<F>(read.block);
        let strip = shape.key_strip_words();
        let scale_words = (shape.head_words() - shape.scales()) / PAGE_BLOCKS;
        let queries = self.query_words(read.tile);
        let scales = &self.scales[read.tile * MAX_ROWS..][..R];
        let to = self.logits.as_mut_ptr().cast::<f32>();
        for page in 0..PAGES {
            let (Some(words), Some(slots)) = (read.pages[page], read.seen.slots(page)) else { continue };
            for keys in slots.start / LANES..slots.end.div_ceil(LANES) {
                read.prefetch(s, page, keys * strip..(keys + 1) * strip);
                let scales_at = shape.scales() + keys * scale_words;
                read.prefetch(s, page, scales_at..scales_at + scale_words);
                // SAFETY: the strip lies within the page; queries and logits hold R rows.
                unsafe {
                    let logits = F::logits::<S, R>(s, shape, words.as_ptr(), keys, (queries, scales));
                    for r in 0..R {
                        s.store(to.add(r * SPAN + page * PAGE_TOKENS + keys * LANES), logits[r]);
                    }
                }
            }
        }
    }

    /// Turns the logits of row `r` of `rows` into weights of its values. Returns maximum and sum, and the scales of the weights.
    #[inline(always)]
    fn weigh<S: Isa>(&mut self, s: S, read: &Read<'_>, r: usize, rows: usize) -> ((f32, f32), WeightScales) {
        let of = (shape_of::<F>(read.block), &read.pages);
        let groups = of.0.scale_groups();
        let (from, to) = read.seen.keys[r];
        let mut scales = [0.0; MAX_SCALES];
        if from >= to {
            for group in 0..groups {
                // SAFETY: no weight is read of an empty range.
                unsafe {
                    self.pack::<S>(s, read, (r, rows), group, 0..0, (std::ptr::null(), s.splat_word(0)))
                };
            }
            return ((0.0, 0.0), scales);
        }
        let keys = from / LANES * LANES..to.next_multiple_of(LANES);
        let terms = read.block.logit_terms(&read.block.tile(read.tile), r, read.start);
        // SAFETY: logits were computed for all blocks of sixteen keys of which the row sees any.
        unsafe {
            let logits = self.logits.as_mut_ptr().cast::<f32>().add(r * SPAN);
            let mut largest = s.splat_word(0);
            if groups == 1 {
                let top = softmax_with(s, terms, logits, from..to, |at, p| {
                    let w = weight::<S, F>(s, of, 0, at, p);
                    largest = s.max_magnitude(largest, w);
                    w
                });
                scales[0] = self.pack(s, read, (r, rows), 0, keys, (logits, largest));
                return (top, scales);
            }
            let top = softmax(s, terms, logits, from..to);
            let mut weighted = [0f32; SPAN];
            for group in 0..groups {
                largest = s.splat_word(0);
                for at in keys.clone().step_by(LANES) {
                    let w = weight::<S, F>(s, of, group, at, s.load(logits.add(at)));
                    s.store(weighted.as_mut_ptr().add(at), w);
                    largest = s.max_magnitude(largest, w);
                }
                let weights = (weighted.as_ptr(), largest);
                scales[group] = self.pack(s, read, (r, rows), group, keys.clone(), weights);
            }
            (top, scales)
        }
    }

    /// Rounds the weights of row `r` of `rows` in a group of dimensions: those of `keys`, of which `largest` holds the largest
    /// magnitudes. The others of the span are 0. Returns their scale.
    ///
    /// # Safety
    /// `weighted` is valid for reading `keys`, which are whole blocks of sixteen.
    #[inline(always)]
    unsafe fn pack<S: Isa>(
        &mut self,
        s: S,
        read: &Read<'_>,
        (r, rows): (usize, usize),
        group: usize,
        keys: Range<usize>,
        (weighted, largest): (*const f32, S::W),
    ) -> f32 {
        let largest = f32::from_bits(s.max_word(largest));
        let (scale, inv) = scale_of(largest, LARGEST);
        // SAFETY: weights hold every row; `weighted` by contract.
        unsafe {
            let weights = self.weights.as_mut_ptr().cast::<u32>().add(group * WEIGHT_WORDS);
            let weights = weights.cast::<[u32; 2]>().add(r);
            for at in blocks_of_32(read.seen).step_by(LANES) {
                let rounded = if keys.contains(&at) && largest.is_finite() {
                    s.to_nearest(s.mul(s.load(weighted.add(at)), s.splat(inv)))
                } else {
                    s.splat_word(0)
                };
                for (group, words) in s.pack_shorts(rounded).into_iter().enumerate() {
                    weights.add((at / 4 + group) * rows).write(words);
                }
            }
        }
        scale
    }

    /// Computes the weighted values of `R` of a tile's `rows` rows, from `first` on.
    #[inline(always)]
    fn values<S: Isa, const R: usize>(
        &self,
        s: S,
        read: &Read<'_>,
        first: usize,
        rows: usize,
        scales: &[WeightScales; MAX_ROWS],
        o: &mut Values,
    ) {
        let (shape, width) = (shape_of::<F>(read.block), read.block.width());
        let whole = blocks_of_32(read.seen);
        let stored = (shape.scales() - shape.key_words()) / shape.value_vectors();
        for strip in 0..shape.value_vectors() {
            let group = shape.scale_group(strip);
            let mut sums = [[s.splat_word(0); 2]; R];
            for page in 0..PAGES {
                let Some(words) = read.pages[page] else { continue };
                if first == 0 {
                    let at = shape.key_words() + strip * stored;
                    read.prefetch(s, page, at..at + stored);
                }
                let (begin, end) = (page * PAGE_TOKENS, (page + 1) * PAGE_TOKENS);
                for key in (whole.start.max(begin)..whole.end.min(end)).step_by(BLOCK) {
                    // SAFETY: 32 tokens of the strip lie within the page; weights hold all rows of these.
                    unsafe {
                        let weights = self.weights.as_ptr().cast::<u32>().add(group * WEIGHT_WORDS);
                        let weights = weights.add((key / 4 * rows + first) * 2);
                        let (place, x) = ((strip, key - begin), (weights, rows * 2));
                        F::add_values::<S, R>(s, &mut sums, (shape, words.as_ptr()), place, x);
                    }
                }
            }
            for r in 0..R {
                let row = read.tile * MAX_ROWS + first + r;
                // SAFETY: a vector of a row of the block.
                unsafe {
                    let o = o.as_mut_ptr().cast::<f32>().add(row * width + strip * LANES);
                    s.store(o, s.mul(s.sum_shorts(sums[r]), s.splat(scales[first + r][group])));
                }
            }
        }
    }
}

/// Writes the query of row `r` of a tile as integers to `packed`, which has [`KvShape::key_dims`] bytes, and its scale. Bytes after the
/// query stay zero. `scaled` holds the scaled query meanwhile.
#[inline(always)]
pub(super) fn quantise_query<S: Isa, F: IntegerEncoding>(
    s: S,
    block: &Block<'_>,
    (tile, r): (&Tile<'_>, usize),
    scaled: &mut [f32; MAX_HEAD_DIM],
    packed: &mut [u32],
    scale: &mut QueryScale,
) {
    let shape = shape_of::<F>(block);
    block.query(s, tile, r, scaled);
    let head = &scaled[..shape.head_dim];
    let group = GroupScale::new(s, head);
    let (packed, _) = packed.as_chunks_mut::<{ LANES / 4 }>();
    scale.scale = group.scale;
    let packed = packed.chunks_mut(shape.scale_dims() / LANES);
    for (start, (values, packed)) in scale.starts.iter_mut().zip(head.chunks(shape.scale_dims()).zip(packed))
    {
        let mut sum = s.splat_word(0);
        for (values, to) in values.chunks(LANES).zip(packed) {
            let q = group.round(s, values);
            sum = s.add_words(sum, q);
            *to = s.pack_bytes(q);
        }
        *start = -F::offset::<S>() * s.sum_words(sum);
    }
}

/// The weights of sixteen values from key `at` of the span on, in a group of dimensions: their probabilities times their scales.
///
/// # Safety
/// `at` is a multiple of sixteen, below [`SPAN`].
#[inline(always)]
pub(super) unsafe fn weight<S: Isa, F: IntegerEncoding>(
    s: S,
    (shape, pages): (KvShape, &Pages<'_>),
    group: usize,
    at: usize,
    p: S::F,
) -> S::F {
    let zero = s.splat(0.0);
    let Some(words) = pages[at / PAGE_TOKENS] else { return zero };
    // SAFETY: the slot lies within the page.
    let scales = unsafe { F::value_scales(s, shape, words.as_ptr(), group, at % PAGE_TOKENS) };
    s.select_lt(zero, p, s.mul(p, scales), zero)
}

/// The shape of a block's keys and values, with a format that is known at compile time, so that sizes need no divisions.
#[inline(always)]
pub(super) fn shape_of<F: IntegerEncoding>(block: &Block<'_>) -> KvShape {
    KvShape { format: F::FORMAT, ..block.shape() }
}

/// Maximum number of rows in a tile.
const fn integer_rows<S: Isa>() -> usize {
    if S::DOT_ROWS < MAX_ROWS { S::DOT_ROWS } else { MAX_ROWS }
}

/// [`integer_rows`] of a tier.
pub(super) struct IntegerRows;

impl Kernel for IntegerRows {
    type Output = usize;
    const DOTS_BYTES: bool = true;
    #[inline(always)]
    fn run<S: Isa>(self, _: S) -> usize {
        integer_rows::<S>()
    }
}

/// The blocks of 32 keys that contain all keys that a tile sees of a span.
fn blocks_of_32(seen: &Seen) -> Range<usize> {
    seen.any.0 / BLOCK * BLOCK..seen.any.1.next_multiple_of(BLOCK)
}
