//! Attention over keys and values that are floats. Tiles that read the same page process it together, so that it is unpacked once.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use redline_simd::{Isa, LANES};

use super::SPAN;
use super::block::{BLOCK_TILES, Block, MAX_ROWS, Products, ROWS, Seen, Values, softmax};
use super::page::{HeadPage, Unpacked};
use crate::format::Mac;
use crate::format::bf16::{self, pack_row};
use crate::op::kv::{MAX_HEAD_DIM, PAGE_TOKENS};

/// Queries, logits and values of a block; every part is written before it is read. `K` multiplies keys, `V` values.
pub(super) struct Floats<K, V> {
    /// Queries in the input words of the cache's format, `[rows][steps]`.
    words: MaybeUninit<[u32; ROWS * MAX_HEAD_DIM]>,
    /// If those words are pairs, the same values as f32, for unpacked pages: `[rows][dimensions of the keys]`.
    floats: MaybeUninit<[f32; ROWS * MAX_HEAD_DIM]>,
    /// `[rows][keys of a span]`
    logits: MaybeUninit<[f32; ROWS * SPAN]>,
    page: Unpacked,
    arithmetic: PhantomData<(K, V)>,
}

impl<S: Isa, K: Mac, V: Mac> Products<S> for Floats<K, V> {
    #[inline(always)]
    fn load_queries(&mut self, s: S, block: &Block<'_>) {
        let mut scaled = [0f32; MAX_HEAD_DIM];
        for t in 0..block.len() {
            let tile = block.tile(t);
            for r in 0..tile.rows {
                block.query(s, &tile, r, &mut scaled);
                self.load_query::<S>(block, t * MAX_ROWS + r, &scaled);
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
        self.logits(s, block, start, seen);
        let mut tops = [(0f32, 0f32); ROWS];
        for t in 0..block.len() {
            for r in seen[t].rows.0..seen[t].rows.1 {
                let row = t * MAX_ROWS + r;
                // SAFETY: the logits of row `r` were computed for all keys that it sees, in whole blocks.
                tops[row] = unsafe {
                    let o = o.as_mut_ptr().cast::<f32>().add(row * block.width());
                    for at in (0..block.width()).step_by(LANES) {
                        s.store(o.add(at), s.splat(0.0));
                    }
                    let logits = self.logits.as_mut_ptr().cast::<f32>().add(row * SPAN);
                    let (from, to) = seen[t].keys[r];
                    softmax(s, block.logit_terms(&block.tile(t), r, start), logits, from..to)
                };
            }
        }
        self.values(s, block, start, seen, o);
        tops
    }
}

impl<K: Mac, V: Mac> Floats<K, V> {
    pub(super) fn new() -> Self {
        Self {
            words: MaybeUninit::uninit(),
            floats: MaybeUninit::uninit(),
            logits: MaybeUninit::uninit(),
            page: Unpacked::new(),
            arithmetic: PhantomData,
        }
    }

    /// Bytes that heads of `head_dim` dimensions use.
    pub(super) const fn bytes(head_dim: usize) -> usize {
        let page = 2 * PAGE_TOKENS * head_dim;
        (ROWS * (2 * head_dim + SPAN) + page) * size_of::<f32>()
    }

    /// Stores a scaled query, padded with zeros, in the input words of the cache's format, and as f32 if those are pairs that the
    /// tier does not multiply.
    #[inline(always)]
    fn load_query<S: Isa>(&mut self, block: &Block<'_>, row: usize, scaled: &[f32; MAX_HEAD_DIM]) {
        let (shape, steps, dims) = (block.shape(), block.shape().steps(), block.shape().key_dims());
        // SAFETY: a row has at most MAX_HEAD_DIM words and as many values.
        let (words, floats) = unsafe {
            let words = self.words.as_mut_ptr().cast::<u32>().add(row * steps);
            let floats = self.floats.as_mut_ptr().cast::<f32>().add(row * dims);
            (std::slice::from_raw_parts_mut(words, steps), std::slice::from_raw_parts_mut(floats, dims))
        };
        if K::SPLIT {
            pack_row(&scaled[..shape.head_dim], words);
            if !S::DOT_BF16 {
                floats.iter_mut().zip(scaled).for_each(|(to, x)| *to = bf16::widen(bf16::round(*x)));
            }
        } else {
            words.iter_mut().zip(scaled).for_each(|(word, x)| *word = x.to_bits());
        }
    }

    /// The next adjacent tiles, from `first` on, that read the same page of the span, and the page.
    #[inline(always)]
    fn sharing<'b>(
        block: &'b Block<'_>,
        first: usize,
        seen: &[Seen; BLOCK_TILES],
        start: usize,
        page: usize,
    ) -> Option<(HeadPage<'b>, Range<usize>)> {
        let of =
            |t: usize| seen[t].slots(page).map(|_| block.tile(t).segment.pages[start / PAGE_TOKENS + page]);
        let (first, id) = (first..block.len()).find_map(|t| of(t).map(|id| (t, id)))?;
        let end = (first..block.len()).find(|&t| of(t) != Some(id)).unwrap_or(block.len());
        Some((HeadPage::new(block.job.kv, id, block.job.layer, block.kv_head), first..end))
    }

    /// Computes the logits of every row of every tile, page by page.
    #[inline(always)]
    fn logits<S: Isa>(&mut self, s: S, block: &Block<'_>, start: usize, seen: &[Seen; BLOCK_TILES]) {
        let (steps, dims) = (block.shape().steps(), block.shape().key_dims());
        for page in 0..SPAN / PAGE_TOKENS {
            let mut next = 0;
            while let Some((head, tiles)) = Self::sharing(block, next, seen, start, page) {
                next = tiles.end;
                let unpacked = tiles.len() > 1 && (K::WIDENS || K::SPLIT && !S::DOT_BF16);
                if unpacked {
                    self.page.take_keys(s, &head);
                }
                for t in tiles {
                    let Some(slots) = seen[t].slots(page) else { continue };
                    let blocks = slots.start / LANES..slots.end.div_ceil(LANES);
                    let (first, last) = seen[t].rows;
                    let row = t * MAX_ROWS + first;
                    // SAFETY: these blocks lie within the page; queries and logits hold every row of the tile.
                    unsafe {
                        let to = self.logits.as_mut_ptr().cast::<f32>();
                        let to = to.add(row * SPAN + page * PAGE_TOKENS + blocks.start * LANES);
                        if unpacked {
                            let floats = if K::SPLIT {
                                self.floats.as_ptr().cast()
                            } else {
                                self.words.as_ptr().cast::<u32>()
                            };
                            let q = floats.add(row * dims);
                            self.page.keys_times::<S>(s, dims, blocks, (q, dims), (to, SPAN), last - first);
                        } else {
                            let q = self.words.as_ptr().cast::<u32>().add(row * steps);
                            head.keys_times::<S, K>(s, blocks, (q, steps), (to, SPAN), last - first);
                        }
                    }
                }
            }
        }
    }

    /// `o[r] = sum of p[r][key] v[key]` over the keys each row sees, ascending, page by page.
    #[inline(always)]
    fn values<S: Isa>(
        &mut self,
        s: S,
        block: &Block<'_>,
        start: usize,
        seen: &[Seen; BLOCK_TILES],
        o: &mut Values,
    ) {
        for page in 0..SPAN / PAGE_TOKENS {
            let mut next = 0;
            while let Some((head, tiles)) = Self::sharing(block, next, seen, start, page) {
                next = tiles.end;
                let unpacked = tiles.len() > 1 && V::WIDENS;
                if unpacked {
                    self.page.take_values(s, &head);
                }
                for t in tiles {
                    let page = (&head, page, unpacked);
                    let (first, last) = seen[t].rows;
                    let row = |r: usize| t * MAX_ROWS + r;
                    // Keys that all rows see are processed together, the keys before and after them row by row.
                    let (low, high) = seen[t].all;
                    if low >= high {
                        for r in first..last {
                            let (a, b) = seen[t].keys[r];
                            self.weighted(s, block, page, a..b, (row(r), 1), o);
                        }
                        continue;
                    }
                    for r in first..last {
                        self.weighted(s, block, page, seen[t].keys[r].0..low, (row(r), 1), o);
                    }
                    self.weighted(s, block, page, low..high, (row(first), last - first), o);
                    for r in first..last {
                        self.weighted(s, block, page, high..seen[t].keys[r].1, (row(r), 1), o);
                    }
                }
            }
        }
    }

    /// Adds `p v` for the keys `keys` (counted in the span) of one page to `rows` rows from `row` on.
    #[inline(always)]
    fn weighted<S: Isa>(
        &mut self,
        s: S,
        block: &Block<'_>,
        (head, page, unpacked): (&HeadPage<'_>, usize, bool),
        keys: Range<usize>,
        (row, rows): (usize, usize),
        o: &mut Values,
    ) {
        let (begin, end) = (page * PAGE_TOKENS, (page + 1) * PAGE_TOKENS);
        let (from, to) = (keys.start.clamp(begin, end), keys.end.clamp(begin, end));
        if from >= to {
            return;
        }
        let slots = from - begin..to - begin;
        // SAFETY: these slots lie within the page; probabilities and sums hold every row.
        unsafe {
            let p = (self.logits.as_ptr().cast::<u32>().add(row * SPAN + from), SPAN);
            let o = (o.as_mut_ptr().cast::<f32>().add(row * block.width()), block.width());
            if unpacked {
                self.page.values_times::<S>(s, block.shape(), slots, p, o, rows);
            } else {
                head.values_times::<S, V>(s, slots, p, o, rows);
            }
        }
    }
}
