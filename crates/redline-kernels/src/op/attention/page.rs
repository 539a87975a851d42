//! Keys and values of one head in one page, as stored or unpacked for several tiles of rows.

use std::mem::MaybeUninit;
use std::ops::Range;

use redline_simd::{Isa, LANES};

use crate::format::Mac;
use crate::format::float32::F32Mac;
use crate::op::kv::{KvFormat, KvPages, KvShape, MAX_HEAD_DIM, PAGE_BLOCKS, PAGE_TOKENS};
use crate::tile::{TileArgs, tiles};

/// Keys and values of one head in one page, as stored.
pub(super) struct HeadPage<'a> {
    shape: KvShape,
    words: &'a [u32],
}

impl<'a> HeadPage<'a> {
    pub(super) fn new(kv: &'a KvPages, page: u32, layer: usize, head: usize) -> Self {
        Self { shape: kv.shape(layer), words: kv.head(page, layer, head) }
    }

    /// Logits of the keys of `blocks` for `rows` rows.
    ///
    /// # Safety
    /// The blocks lie within the page; `(q, distance)` holds the rows' input words, `(to, distance)` their logits.
    #[inline(always)]
    pub(super) unsafe fn keys_times<S: Isa, K: Mac>(
        &self,
        s: S,
        blocks: Range<usize>,
        x: (*const u32, usize),
        y: (*mut f32, usize),
        rows: usize,
    ) {
        // SAFETY: by contract.
        unsafe { keys::<S, K>(s, (self.words.as_ptr(), self.shape.steps()), blocks, x, y, rows) };
    }

    /// Adds the values of `slots`, weighted, to `rows` rows.
    ///
    /// # Safety
    /// The slots lie within the page; `(p, distance)` holds the rows' weights of these slots, `(o, distance)` their sums.
    #[inline(always)]
    pub(super) unsafe fn values_times<S: Isa, V: Mac>(
        &self,
        s: S,
        slots: Range<usize>,
        x: (*const u32, usize),
        y: (*mut f32, usize),
        rows: usize,
    ) {
        // SAFETY: by contract.
        unsafe {
            let from = (self.words.as_ptr().add(self.shape.key_words()), self.shape.value_strips());
            values::<S, V>(s, from, slots, x, y, rows);
        }
    }
}

/// Keys and values of one head in one page, unpacked to f32 in the order in which they are stored.
pub(super) struct Unpacked {
    /// `[blocks][dimensions][16 keys]`
    keys: MaybeUninit<[f32; PAGE_TOKENS * MAX_HEAD_DIM]>,
    /// `[strips of dimensions][64 tokens][16]`
    values: MaybeUninit<[f32; PAGE_TOKENS * MAX_HEAD_DIM]>,
}

impl Unpacked {
    pub(super) fn new() -> Self {
        Self { keys: MaybeUninit::uninit(), values: MaybeUninit::uninit() }
    }

    /// Unpacks the keys of a page of halves.
    #[inline(always)]
    pub(super) fn take_keys<S: Isa>(&mut self, s: S, page: &HeadPage<'_>) {
        let to = self.keys.as_mut_ptr().cast::<f32>();
        if page.shape.format == KvFormat::F16 {
            for row in 0..PAGE_BLOCKS * page.shape.steps() {
                // SAFETY: sixteen keys' values of a dimension, at most 64 keys of MAX_HEAD_DIM.
                unsafe {
                    s.store(
                        to.add(row * LANES),
                        s.load_f16(page.words.as_ptr().cast::<u16>().add(row * LANES)),
                    );
                }
            }
            return;
        }
        for step in 0..PAGE_BLOCKS * page.shape.steps() {
            // SAFETY: sixteen words of the keys are twice as many values, at most 64 keys of MAX_HEAD_DIM.
            unsafe {
                let [first, second] = s.split_bf16(s.load_words(page.words.as_ptr().add(step * LANES)));
                s.store(to.add(2 * step * LANES), first);
                s.store(to.add((2 * step + 1) * LANES), second);
            }
        }
    }

    /// Unpacks the values of a page of halves.
    #[inline(always)]
    pub(super) fn take_values<S: Isa>(&mut self, s: S, page: &HeadPage<'_>) {
        let to = self.values.as_mut_ptr().cast::<f32>();
        let from = page.words[page.shape.key_words()..].as_ptr().cast::<u16>();
        for row in 0..page.shape.value_strips() * PAGE_TOKENS {
            // SAFETY: a row of sixteen values, of which the page has 64 per strip.
            unsafe {
                let from = from.add(row * LANES);
                let values =
                    if page.shape.format == KvFormat::F16 { s.load_f16(from) } else { s.load_bf16(from) };
                s.store(to.add(row * LANES), values);
            }
        }
    }

    /// As [`HeadPage::keys_times`], with the unpacked keys of `dims` dimensions.
    ///
    /// # Safety
    /// As there; the inputs are f32.
    #[inline(always)]
    pub(super) unsafe fn keys_times<S: Isa>(
        &self,
        s: S,
        dims: usize,
        blocks: Range<usize>,
        x: (*const u32, usize),
        y: (*mut f32, usize),
        rows: usize,
    ) {
        // SAFETY: by contract.
        unsafe { keys::<S, F32Mac>(s, (self.keys.as_ptr().cast(), dims), blocks, x, y, rows) };
    }

    /// As [`HeadPage::values_times`], with the unpacked values.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn values_times<S: Isa>(
        &self,
        s: S,
        shape: KvShape,
        slots: Range<usize>,
        x: (*const u32, usize),
        y: (*mut f32, usize),
        rows: usize,
    ) {
        // SAFETY: by contract.
        unsafe {
            let from = (self.values.as_ptr().cast(), shape.value_strips());
            values::<S, F32Mac>(s, from, slots, x, y, rows);
        }
    }
}

/// Logits: keys `[blocks][steps][16]` times rows.
///
/// # Safety
/// The keys hold the blocks; `(x, distance)` holds the rows' input words, `(y, distance)` their logits.
#[inline(always)]
unsafe fn keys<S: Isa, K: Mac>(
    s: S,
    (w, steps): (*const u32, usize),
    blocks: Range<usize>,
    (x, x_stride): (*const u32, usize),
    (y, y_stride): (*mut f32, usize),
    rows: usize,
) {
    let w_stride = steps * K::WORDS;
    // SAFETY: by contract.
    unsafe {
        let w = w.add(blocks.start * w_stride);
        let args = TileArgs { w, w_stride, steps, x, x_stride, y, y_stride, resume: false, later: None };
        tiles::<S, K>(s, args, rows, blocks.len());
    }
}

/// Adds values `[strips][64 tokens][16]`, weighted, to rows.
///
/// # Safety
/// The values hold the slots; `(x, distance)` holds the rows' weights of these slots, `(y, distance)` their sums.
#[inline(always)]
unsafe fn values<S: Isa, V: Mac>(
    s: S,
    (w, strips): (*const u32, usize),
    slots: Range<usize>,
    (x, x_stride): (*const u32, usize),
    (y, y_stride): (*mut f32, usize),
    rows: usize,
) {
    // SAFETY: by contract.
    unsafe {
        let w = w.add(slots.start * V::WORDS);
        let (w_stride, steps) = (PAGE_TOKENS * V::WORDS, slots.len());
        let args = TileArgs { w, w_stride, steps, x, x_stride, y, y_stride, resume: true, later: None };
        tiles::<S, V>(s, args, rows, strips);
    }
}
