//! Attention over keys and values of bytes with tile registers. Two tiles that read the same pages of a span are the sixteen rows of a
//! register. The sums are exact, and everything else is computed as in [`super::integers`], so results are the same.

use std::mem::MaybeUninit;
use std::ops::Range;

use redline_simd::{AttentionUnit, Isa, LANES, TILE_BYTES, TILE_ROWS, Tiles};

use super::SPAN;
use super::block::{BLOCK_TILES, Block, MAX_ROWS, Products, ROWS, Seen, Values, exponentials, largest_logit};
use super::integers::{LARGEST, PAGES, Pages, page_words, quantise_query, shape_of, weight};
use crate::op::kv::{
    BytePages, IntegerEncoding, KvFormat, KvShape, MAX_HEAD_DIM, PAGE_BLOCKS, PAGE_TOKENS, QueryScale,
};
use crate::op::quantise::scale_of;

/// The format of keys and values that tile registers multiply.
pub(super) const FORMAT: KvFormat = BytePages::FORMAT;
/// Minimum number of rows of the tiles of a block, on average: with fewer, vectors are as fast or faster.
const MIN_ROWS: usize = 5;
/// Rows of queries in memory. A register takes sixteen, so eight after the last tile are read too.
const QUERY_ROWS: usize = ROWS + TILE_ROWS - MAX_ROWS;
/// Words of the sums of a group's values for two strips: two parts each.
const SUMS: usize = 2 * 2 * TILE_ROWS * LANES;
/// Bytes of the weights of a page: those of the high parts, then of the low ones.
const WEIGHT_BYTES: usize = 2 * TILE_ROWS * TILE_BYTES;

/// Whether the products of a block are computed with tile registers where there are some.
pub(super) fn fit(block: &Block<'_>) -> bool {
    let rows: usize = (0..block.len()).map(|t| block.tile(t).rows).sum();
    block.shape().format == FORMAT && rows >= MIN_ROWS * block.len()
}

/// Dimensions of a key that are multiplied at a time.
fn depth(shape: KvShape) -> usize {
    if shape.key_dims() % TILE_BYTES == 0 { TILE_BYTES } else { TILE_BYTES / 2 }
}

/// Queries, logits and values of a block; every part is written before it is read, except that rows which a tile lacks have any
/// contents.
pub(super) struct Registers {
    unit: AttentionUnit,
    /// Quantised queries: `[rows]` of [`KvShape::key_dims`] bytes.
    queries: MaybeUninit<[u32; QUERY_ROWS * MAX_HEAD_DIM / 4]>,
    /// The scale of each row's query.
    scales: [QueryScale; ROWS],
    /// Products of two tiles, then logits, then weighted probabilities: `[16 rows][keys of a span]`.
    logits: MaybeUninit<[f32; TILE_ROWS * SPAN]>,
    /// Weights of two tiles as integers, for each page `[2 parts][16 rows][64]` bytes.
    weights: MaybeUninit<[[u32; WEIGHT_BYTES / 4]; PAGES]>,
    /// Weighted values: `[2 strips][2 parts][16 rows][16 dimensions]`.
    sums: MaybeUninit<[i32; SUMS]>,
}

/// Adjacent tiles of a block, at most two. The pages of a span that both of them read are the same.
struct Group<'a> {
    block: &'a Block<'a>,
    tiles: Range<usize>,
    /// The keys that each of them sees.
    seen: &'a [Seen; BLOCK_TILES],
    pages: Pages<'a>,
}

/// What is known of a row's keys of a span.
#[derive(Clone, Copy, Default)]
struct Row {
    max: f32,
    /// The sum of the probabilities.
    sum: f32,
    /// The largest weighted one.
    largest: f32,
}

impl<'a> Group<'a> {
    /// The group that begins with tile `first`, which sees some keys of the span that begins at `start`.
    fn new(block: &'a Block<'a>, first: usize, start: usize, seen: &'a [Seen; BLOCK_TILES]) -> Self {
        let pages = |t: usize| -> Pages<'a> {
            std::array::from_fn(|page| {
                seen[t].slots(page).and_then(|_| page_words(block, t, start / PAGE_TOKENS + page))
            })
        };
        let (mut tiles, mut both) = (first..first + 1, pages(first));
        if first + 1 < block.len() && seen[first + 1].rows.1 > 0 {
            let second = pages(first + 1);
            let is_same = |page: usize| match (both[page], second[page]) {
                (Some(a), Some(b)) => std::ptr::eq(a, b),
                _ => true,
            };
            if (0..PAGES).all(is_same) {
                both = std::array::from_fn(|page| both[page].or(second[page]));
                tiles.end += 1;
            }
        }
        Self { block, tiles, seen, pages: both }
    }

    /// Its rows: the row of the registers, the tile, and the row of the tile.
    fn rows(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<'a> {
        let (tiles, block) = (self.tiles.clone(), self.block);
        tiles
            .enumerate()
            .flat_map(move |(i, t)| (0..block.tile(t).rows).map(move |r| (i * MAX_ROWS + r, t, r)))
    }

    /// The keys that row `r` of tile `t` sees, and the blocks of sixteen that hold them.
    fn keys(&self, t: usize, r: usize) -> (Range<usize>, Range<usize>) {
        let (from, to) = self.seen[t].keys[r];
        if from < to { (from..to, from / LANES * LANES..to.next_multiple_of(LANES)) } else { (0..0, 0..0) }
    }

    /// The blocks of sixteen keys of a page that any row sees.
    fn strips(&self, page: usize) -> Range<usize> {
        let slots = self.tiles.clone().filter_map(|t| self.seen[t].slots(page));
        let slots = slots.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0);
        slots.start / LANES..slots.end.div_ceil(LANES)
    }
}

impl<S: Isa> Products<S> for Registers {
    #[inline(always)]
    fn load_queries(&mut self, s: S, block: &Block<'_>) {
        let words = shape_of::<BytePages>(block).key_dims() / 4;
        let mut scaled = [0f32; MAX_HEAD_DIM];
        for t in 0..block.len() {
            let tile = block.tile(t);
            for r in 0..tile.rows {
                let row = t * MAX_ROWS + r;
                // SAFETY: there is room for every row of a block.
                let packed = unsafe {
                    let to = self.queries.as_mut_ptr().cast::<u32>().add(row * words);
                    to.write_bytes(0, words);
                    std::slice::from_raw_parts_mut(to, words)
                };
                let scale = &mut self.scales[row];
                quantise_query::<S, BytePages>(s, block, (&tile, r), &mut scaled, packed, scale);
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
        let mut next = 0;
        let mut weighed: Option<(Group<'_>, [f32; TILE_ROWS])> = None;
        while next < block.len() {
            if seen[next].rows.1 == 0 {
                next += 1;
                continue;
            }
            let group = Group::new(block, next, start, seen);
            next = group.tiles.end;
            self.keys(&group);
            // Each of these ends a row with a chain of dependent instructions, beside which the next row begins.
            let mut rows = [Row::default(); TILE_ROWS];
            for (row, t, r) in group.rows() {
                rows[row].max = self.scale(s, &group, (row, t, r), start);
            }
            // The weights of the group before have reached the cache by now.
            if let Some((group, scales)) = &weighed {
                self.values(s, group, scales, o);
            }
            for (row, t, r) in group.rows() {
                rows[row] = self.weigh(s, &group, (row, t, r), rows[row].max);
                tops[t * MAX_ROWS + r] = (rows[row].max, rows[row].sum);
            }
            let mut scales = [0f32; TILE_ROWS];
            for (row, t, r) in group.rows() {
                scales[row] = self.pack(s, &group, (row, t, r), rows[row].largest);
            }
            weighed = Some((group, scales));
        }
        if let Some((group, scales)) = &weighed {
            self.values(s, group, scales, o);
        }
        tops
    }
}

impl Registers {
    pub(super) fn new(machine: Tiles, shape: KvShape) -> Self {
        Self {
            unit: machine.configure_attention(depth(shape)),
            queries: MaybeUninit::uninit(),
            scales: [QueryScale::default(); ROWS],
            logits: MaybeUninit::uninit(),
            weights: MaybeUninit::uninit(),
            sums: MaybeUninit::uninit(),
        }
    }

    /// Bytes that heads of this shape use.
    pub(super) fn bytes(shape: KvShape) -> usize {
        let queries = QUERY_ROWS * shape.key_dims() + ROWS * (size_of::<f32>() + size_of::<i32>());
        let sums = SUMS * size_of::<i32>();
        queries + TILE_ROWS * SPAN * size_of::<f32>() + PAGES * WEIGHT_BYTES + sums
    }

    /// Multiplies the queries of a group with every block of sixteen keys of which a row sees any.
    #[inline(always)]
    fn keys(&mut self, group: &Group<'_>) {
        let shape = shape_of::<BytePages>(group.block);
        let (depth, dims) = (depth(shape), shape.key_dims());
        let queries = self.queries.as_ptr().cast::<u8>().wrapping_add(group.tiles.start * MAX_ROWS * dims);
        let to = self.logits.as_mut_ptr().cast::<i32>();
        for page in 0..PAGES {
            let (Some(words), strips) = (group.pages[page], group.strips(page)) else { continue };
            macro_rules! strips {
                ($unit:ident: $($strip:literal)*) => {
                    // SAFETY: a page has four strips of keys, and a span as many logits; queries hold sixteen rows.
                    unsafe {
                        $(if strips.contains(&$strip) {
                            let keys = words.as_ptr().add($strip * shape.key_strip_words()).cast();
                            $unit.multiply_keys::<$strip>(queries, dims, keys, depth, dims / depth);
                        })*
                        $(if strips.contains(&$strip) {
                            $unit.store::<$strip>(to.add(page * PAGE_TOKENS + $strip * LANES), SPAN);
                        })*
                    }
                };
            }
            // A group is two tiles, a page four strips of keys and a row of weights.
            const { assert!(TILE_ROWS == 2 * MAX_ROWS && PAGE_BLOCKS == 4 && PAGE_TOKENS == TILE_BYTES) };
            let unit = &mut self.unit;
            strips!(unit: 0 1 2 3);
        }
    }

    /// The logits of a row of the registers.
    #[inline(always)]
    fn row(&mut self, row: usize) -> *mut f32 {
        // SAFETY: there are sixteen rows.
        unsafe { self.logits.as_mut_ptr().cast::<f32>().add(row * SPAN) }
    }

    /// Turns the products of row `r` of tile `t` into logits, and returns their maximum.
    #[inline(always)]
    fn scale<S: Isa>(
        &mut self,
        s: S,
        group: &Group<'_>,
        (row, t, r): (usize, usize, usize),
        start: usize,
    ) -> f32 {
        let shape = shape_of::<BytePages>(group.block);
        let (seen, blocks) = group.keys(t, r);
        if seen.is_empty() {
            return 0.0;
        }
        let QueryScale { scale, starts } = self.scales[t * MAX_ROWS + r];
        let (scale, offset) = (s.splat(scale), s.splat_word(starts[0] as u32));
        let logits = self.row(row);
        // SAFETY: products were computed for all blocks of sixteen keys of which the row sees any, whose pages are there.
        unsafe {
            for at in blocks.step_by(LANES) {
                let words = group.pages[at / PAGE_TOKENS].expect("a page whose keys a row sees");
                let key_scales = s.load(words.as_ptr().add(shape.scales() + at % PAGE_TOKENS).cast());
                let product = s.to_float(s.add_words(s.load_words(logits.add(at).cast()), offset));
                s.store(logits.add(at), s.mul(product, s.mul(key_scales, scale)));
            }
            let terms = group.block.logit_terms(&group.block.tile(t), r, start);
            largest_logit(s, terms, logits, seen)
        }
    }

    /// Turns the logits of row `r` of tile `t`, of which `max` is the largest, into weighted probabilities.
    #[inline(always)]
    fn weigh<S: Isa>(
        &mut self,
        s: S,
        group: &Group<'_>,
        (row, t, r): (usize, usize, usize),
        max: f32,
    ) -> Row {
        let (seen, _) = group.keys(t, r);
        if seen.is_empty() {
            return Row::default();
        }
        let of = (shape_of::<BytePages>(group.block), &group.pages);
        let mut largest = s.splat_word(0);
        // SAFETY: as in `scale`; the slots lie within the span.
        let sum = unsafe {
            exponentials(s, self.row(row), seen, max, |at, p| {
                let w = weight::<S, BytePages>(s, of, 0, at, p);
                largest = s.max_magnitude(largest, w);
                w
            })
        };
        Row { max, sum, largest: f32::from_bits(s.max_word(largest)) }
    }

    /// Rounds the weights of row `r` of tile `t`, of which `largest` is the largest; those of the other keys of its pages are 0. Returns
    /// their scale.
    #[inline(always)]
    fn pack<S: Isa>(
        &mut self,
        s: S,
        group: &Group<'_>,
        (row, t, r): (usize, usize, usize),
        largest: f32,
    ) -> f32 {
        let (_, blocks) = group.keys(t, r);
        let (scale, inv) = scale_of(largest, LARGEST);
        let (inv, blocks) = (s.splat(inv), if largest.is_finite() { blocks } else { 0..0 });
        let weighted = self.row(row).cast_const();
        for page in (0..PAGES).filter(|page| group.pages[*page].is_some()) {
            // SAFETY: the weighted probabilities of these blocks were computed; weights hold all pages of a span.
            unsafe {
                let to = self.weights.as_mut_ptr().cast::<u32>().add(page * WEIGHT_BYTES / 4);
                let to = to.add(row * TILE_BYTES / 4);
                let mut rounded = [s.splat_word(0); PAGE_BLOCKS];
                for (block, rounded) in rounded.iter_mut().enumerate() {
                    let at = page * PAGE_TOKENS + block * LANES;
                    if blocks.contains(&at) {
                        *rounded = s.to_nearest(s.mul(s.load(weighted.add(at)), inv));
                    }
                }
                let [high, low] = s.split_bytes(rounded);
                s.store_words(to, high);
                s.store_words(to.add(TILE_ROWS * TILE_BYTES / 4), low);
            }
        }
        scale
    }

    /// Computes the weighted values of a group.
    #[inline(always)]
    fn values<S: Isa>(&mut self, s: S, group: &Group<'_>, scales: &[f32; TILE_ROWS], o: &mut Values) {
        let (block, width) = (group.block, group.block.width());
        let shape = shape_of::<BytePages>(block);
        for first in (0..shape.value_vectors()).step_by(2) {
            // If the number of strips is odd, the last one is multiplied twice.
            let second = (first + 1).min(shape.value_vectors() - 1);
            let strip = |words: &[u32], strip: usize| {
                words[shape.key_words() + strip * shape.value_strip_words()..].as_ptr().cast()
            };
            self.unit.clear();
            for page in 0..PAGES {
                let Some(words) = group.pages[page] else { continue };
                let weights = self.weights.as_ptr().cast::<u8>().wrapping_add(page * WEIGHT_BYTES);
                // SAFETY: the weights of the page were written, and both strips lie in it.
                unsafe { self.unit.add_values(weights, strip(words, first), strip(words, second)) };
            }
            let sums = self.sums.as_mut_ptr().cast::<i32>();
            let part = TILE_ROWS * LANES;
            // SAFETY: there is room for four registers of sums; `o` has room for every row.
            unsafe {
                self.unit.store::<0>(sums, LANES);
                self.unit.store::<1>(sums.add(part), LANES);
                self.unit.store::<2>(sums.add(2 * part), LANES);
                self.unit.store::<3>(sums.add(3 * part), LANES);
                for (row, t, r) in group.rows() {
                    let o = o.as_mut_ptr().cast::<f32>().add((t * MAX_ROWS + r) * width);
                    for (i, strip) in (first..=second).enumerate() {
                        let at = sums.add(2 * i * part + row * LANES).cast::<u32>();
                        let [high, low] =
                            [at, at.add(part)].map(|at| s.to_float(s.load_words(at.cast_const())));
                        // Each part is below 2^24, so it is exact as f32, and the sum is rounded once.
                        let sum = s.fma(high, s.splat(256.0), low);
                        s.store(o.add(strip * LANES), s.mul(sum, s.splat(scales[row])));
                    }
                }
            }
        }
    }
}
