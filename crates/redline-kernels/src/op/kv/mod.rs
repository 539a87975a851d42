//! Keys and values in pages of 64 tokens, laid out so that attention is the same tile as a linear layer. Beside them, pages hold the last
//! inputs of layers that are convolutions (`inputs`). The state of a layer that is a recurrence has pages of its own (`states`).
//!
//! Per page, layer and KV head: keys as strips of 16 tokens, then values as strips of 16 dimensions ([`KvFormat`] says how).
//! Keys and values are always rounded to the cache's format before use, even within the pass that computed them, so a result
//! never depends on what was cached.

mod format;
mod inputs;
mod states;

use std::ops::Range;

use redline_simd::{Isa, Kernel, LANES, Simd};

pub(crate) use self::format::{BytePages, FormatVisitor, IntegerEncoding, MAX_SCALES, QueryScale};
pub use self::format::{KvFormat, KvShape, MAX_HEAD_DIM};
use self::format::{TOGETHER, write_tokens};
pub use self::inputs::ConvInputs;
pub(crate) use self::states::BLOCK_CHANNELS;
use self::states::BlockPlace;
pub use self::states::LayerState;
use crate::memory::{Buffer, OutOfMemory};
use crate::{Exec, Rows};

/// Number of tokens in a page.
pub const PAGE_TOKENS: usize = 64;
pub(crate) const PAGE_BLOCKS: usize = PAGE_TOKENS / LANES;

/// What a page holds of every layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageShape {
    /// Keys and values, layer by layer.
    pub keys: Vec<KvShape>,
    /// The last inputs of convolutions, layer by layer.
    pub inputs: Vec<ConvInputs>,
    /// The states of recurrences, layer by layer. They lie in pages of their own.
    pub states: Vec<LayerState>,
}

impl PageShape {
    /// Number of pages of a state; 0 without recurrences.
    pub fn state_pages(&self) -> usize {
        states::places(&self.states, self.words()).1
    }

    fn words(&self) -> usize {
        let keys = self.keys.iter().map(|shape| shape.kv_heads.checked_mul(shape.head_words()));
        let mut words = keys.chain(self.inputs.iter().map(|shape| Some(shape.words())));
        let sum = words.try_fold(0usize, |sum, words| sum.checked_add(words?));
        let block = self.states.iter().map(|state| state.largest_block()).max().unwrap_or(0);
        sum.expect("a page that memory can hold").max(block.next_multiple_of(LANES))
    }

    /// Bytes of a page.
    pub fn bytes(&self) -> usize {
        self.words() * size_of::<u32>()
    }
}

impl From<&[KvShape]> for PageShape {
    fn from(keys: &[KvShape]) -> Self {
        Self { keys: keys.to_vec(), ..Self::default() }
    }
}

/// A layer's part of every page.
#[derive(Clone, Copy, Debug)]
struct KvLayer {
    shape: KvShape,
    /// Its first word in the page.
    start: usize,
}

/// Maximum size of a slab in bytes, unless a single page is larger: several of the system's huge pages.
const SLAB_BYTES: usize = 16 << 20;
/// Minimum number of multiplications of a recurrence that several threads share.
const MIN_SHARED: usize = 1 << 16;

/// Where a page is.
#[derive(Clone, Copy, Debug)]
struct Place {
    slab: usize,
    /// Its first word in the slab.
    start: usize,
}

/// The pages of a cache. The caller decides which sequence owns a page.
#[derive(Debug)]
pub struct KvPages {
    layers: Vec<KvLayer>,
    /// The shape of inputs of each layer that keeps some, and their first word in a page.
    inputs: Vec<(ConvInputs, usize)>,
    /// The shape of each layer that is a recurrence, and the places of its blocks.
    states: Vec<(LayerState, Vec<BlockPlace>)>,
    /// Number of pages of a state.
    state_pages: usize,
    page_words: usize,
    /// Maximum number of pages.
    limit: usize,
    /// Memory for several pages each, so that the system's huge pages hold small pages too.
    slabs: Vec<Buffer<u32>>,
    /// Where each page is.
    pages: Vec<Place>,
    /// For every page, the number of the last check in which it was written. Every micro-batch of every pass is one check.
    written_in: Vec<u64>,
    /// Number of checks so far.
    checks: u64,
}

/// Copies ranges of the words of a page to those of another.
fn copy_ranges(
    slabs: &mut [Buffer<u32>],
    (from, to): (Place, Place),
    ranges: impl Iterator<Item = Range<usize>>,
) {
    if from.slab == to.slab {
        let slab = &mut slabs[from.slab];
        for range in ranges {
            slab.copy_within(from.start + range.start..from.start + range.end, to.start + range.start);
        }
    } else if let Ok([source, target]) = slabs.get_disjoint_mut([from.slab, to.slab]) {
        let (source, target) = (&source[from.start..], &mut target[to.start..]);
        for range in ranges {
            target[range.clone()].copy_from_slice(&source[range]);
        }
    }
}

/// The attention mask: which keys of its sequence a row sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionMask {
    /// The keys before it and its own.
    Causal,
    /// The first n keys of the sequence, including later ones. Rows that follow these see them too, and are seen by none. Positions matter
    /// only to layers with a window, in which every row must see a key.
    Bidirectional(usize),
}

/// Consecutive rows of a batch that belong to one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The sequence's pages; enough for its rows and for [`Segment::keys`] tokens.
    pub pages: &'a [u32],
    /// Position of the first row in the sequence.
    pub start: usize,
    /// The first row in the batch.
    pub first_row: usize,
    /// Number of rows.
    pub rows: usize,
    /// Attention mask of its rows.
    pub attention: AttentionMask,
}

impl Segment<'_> {
    /// Number of tokens of the sequence that any of its rows sees.
    pub fn keys(&self) -> usize {
        match self.attention {
            AttentionMask::Causal => self.start + self.rows,
            AttentionMask::Bidirectional(keys) => keys,
        }
    }
}

/// The pages of a batch during a pass, or of one of the micro-batches that it is cut into: those that it writes, which no other
/// micro-batch reads or writes, and those that none writes. So micro-batches may run on different threads.
#[derive(Debug)]
pub struct PassPages<'a> {
    pages: &'a KvPages,
    segments: &'a [Segment<'a>],
    /// The pages of the state of each segment's sequence; none without recurrences.
    states: &'a [&'a [u32]],
    /// Number of the last check before those of this batch.
    before: u64,
    /// Number of the check of these pages.
    own: u64,
    /// Whether there are other micro-batches.
    shared: bool,
}

impl<'a> PassPages<'a> {
    /// The segments whose rows may be stored.
    pub fn segments(&self) -> &'a [Segment<'a>] {
        self.segments
    }

    /// Stores the keys and values of all their rows; row r of `k` and `v` is `[kv_heads * head_dim]`.
    pub fn store(&mut self, exec: Exec<'_>, layer: usize, k: Rows<'_>, v: Rows<'_>) {
        let (pages, segments) = (self.pages, self.segments);
        let shape = pages.shape(layer);
        assert!(
            k.width == shape.kv_heads * shape.head_dim && v.width == k.width,
            "keys and values of every head"
        );
        assert!(k.rows == v.rows && rows_of(segments) <= k.rows, "rows of the batch");
        exec.team.split(rows_of(segments), 1, 8, |rows| {
            let before = segments.partition_point(|segment| segment.first_row + segment.rows <= rows.start);
            for segment in segments[before..].iter().take_while(|segment| segment.first_row < rows.end) {
                let end = rows.end - segment.first_row;
                let rows = rows.start.saturating_sub(segment.first_row)..end.min(segment.rows);
                exec.simd.run(Stored { pages, layer, segment, k, v, rows });
            }
        });
    }

    /// The address of the input of a layer at a position of a segment, `[channels]`. Threads may read and write different channels at
    /// the same time.
    pub(crate) fn input(&self, layer: usize, segment: &Segment<'_>, position: usize) -> *mut f32 {
        let (shape, start) = self.pages.inputs[layer];
        let place = self.pages.pages[segment.pages[position / PAGE_TOKENS] as usize];
        let slab = self.pages.slabs[place.slab].as_mut_ptr_shared();
        // SAFETY: the layer lies within the page, and the page within the slab.
        unsafe { slab.add(place.start + start + shape.word(position)).cast() }
    }

    /// The shape of a layer that is a recurrence, counted among those.
    pub(crate) fn state_shape(&self, layer: usize) -> LayerState {
        self.pages.states[layer].0
    }

    /// The address of a strip of sixteen columns of a head, `[rows][16]`, of the state of a segment's sequence. Threads may read and
    /// write different strips at the same time.
    pub(crate) fn state_strip(&self, layer: usize, segment: usize, head: usize, strip: usize) -> *mut f32 {
        let shape = self.state_shape(layer);
        self.state_block(layer, segment, head * shape.strips() + strip)
    }

    /// Divides a recurrence among threads: calls `run` with the index of every segment that has rows, every head, and every of `parts`
    /// parts of a head. `work` is the number of multiplications for a row.
    pub(crate) fn for_each_part(
        &self,
        exec: Exec<'_>,
        (heads, parts): (usize, usize),
        work: usize,
        run: impl Fn(usize, usize, usize) + Sync,
    ) {
        let segments = self.segments();
        let least = if rows_of(segments) * work < MIN_SHARED { usize::MAX } else { 1 };
        exec.team.split(segments.len() * heads * parts, 1, least, |items| {
            for item in items {
                let (part, head, index) = (item % parts, item / parts % heads, item / parts / heads);
                if segments[index].rows > 0 {
                    run(index, head, part);
                }
            }
        });
    }

    /// The address of the last inputs of a block of channels, `[inputs][BLOCK_CHANNELS]`, the oldest first.
    pub(crate) fn state_inputs(&self, layer: usize, segment: usize, block: usize) -> *mut f32 {
        let shape = self.state_shape(layer);
        self.state_block(layer, segment, shape.heads * shape.strips() + block)
    }

    fn state_block(&self, layer: usize, segment: usize, block: usize) -> *mut f32 {
        let place = self.pages.states[layer].1[block];
        let page = self.pages.pages[self.states[segment][place.page] as usize];
        let slab = self.pages.slabs[page.slab].as_mut_ptr_shared();
        // SAFETY: the block lies within the page, and the page within the slab.
        unsafe { slab.add(page.start + place.word).cast() }
    }

    /// Whether the input at a position is kept if a pass stores the tokens before `end`.
    pub(crate) fn keeps_input(&self, layer: usize, position: usize, end: usize) -> bool {
        self.pages.inputs[layer].0.holds(position, end)
    }

    /// The pages, to read those of `segments`.
    ///
    /// # Panics
    /// If another micro-batch writes one of them.
    pub(crate) fn read(&self, segments: &[Segment<'_>]) -> &KvPages {
        if self.shared {
            assert_segments(segments);
            assert!(
                segments.iter().all(|segment| self.may_read(segment)),
                "pages that another micro-batch writes"
            );
        }
        self.pages
    }

    /// Whether no other micro-batch writes a page of the segment.
    fn may_read(&self, segment: &Segment<'_>) -> bool {
        segment.pages[..segment.keys().div_ceil(PAGE_TOKENS)].iter().all(|&page| {
            // A page that was given back has a number that no page has, and is not read.
            let last = self.pages.written_in.get(page as usize).copied().unwrap_or_default();
            last <= self.before || last == self.own
        })
    }
}

impl KvPages {
    /// Creates a cache without pages of this shape. It never reserves memory for more than `limit` pages.
    pub fn new(shape: &PageShape, limit: usize) -> Self {
        // Panics if a sum in the layout below would overflow.
        let page_words = shape.words();
        let (places, state_pages) = states::places(&shape.states, page_words);
        let mut next = 0;
        let mut take = |words: usize| {
            next += words;
            next - words
        };
        let keys = shape.keys.iter().map(|&shape| {
            let KvShape { format, head_dim, kv_heads } = shape;
            assert!(format.holds(head_dim), "a head of {head_dim} values in {}", format.name());
            KvLayer { shape, start: take(kv_heads * shape.head_words()) }
        });
        let layers = keys.collect();
        let inputs = shape.inputs.iter().map(|&shape| {
            let ConvInputs { rows, slots, .. } = shape;
            assert!(rows.max(1) <= slots && slots <= PAGE_TOKENS, "{slots} slots for {rows} inputs");
            (shape, take(shape.words()))
        });
        Self {
            page_words,
            inputs: inputs.collect(),
            states: shape.states.iter().copied().zip(places).collect(),
            state_pages,
            layers,
            limit,
            slabs: Vec::new(),
            pages: Vec::new(),
            written_in: Vec::new(),
            checks: 0,
        }
    }

    /// The shape of the inputs of a layer, counted among those that keep some.
    pub(crate) fn input_shape(&self, layer: usize) -> ConvInputs {
        assert!(layer < self.inputs.len(), "inputs of layer {layer} of {}", self.inputs.len());
        self.inputs[layer].0
    }

    /// The shape of a layer.
    pub fn shape(&self, layer: usize) -> KvShape {
        self.layer(layer).shape
    }

    fn layer(&self, layer: usize) -> KvLayer {
        assert!(layer < self.layers.len(), "layer {layer} of {}", self.layers.len());
        self.layers[layer]
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether no page exists.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Adds a page of zeros and returns its number.
    ///
    /// # Errors
    /// If the system refuses memory.
    ///
    /// # Panics
    /// If there are as many pages as the limit allows.
    pub fn grow(&mut self) -> Result<u32, OutOfMemory> {
        let count = self.pages.len();
        assert!(count < self.limit, "at most {} pages", self.limit);
        let next = self.pages.last().map(|last| Place { start: last.start + self.page_words, ..*last });
        let has_room = |place: &Place| self.slabs[place.slab].len() - place.start >= self.page_words;
        let place = match next.filter(has_room) {
            Some(place) => place,
            None => {
                self.slabs.push(Buffer::zeroed(self.page_words * self.slab_pages())?);
                Place { slab: self.slabs.len() - 1, start: 0 }
            }
        };
        self.pages.push(place);
        self.written_in.push(0);
        Ok(count as u32)
    }

    /// Number of pages of the next slab: half as many as there are, so that at most a third of the memory is unused.
    fn slab_pages(&self) -> usize {
        let most = SLAB_BYTES / (self.page_words * size_of::<u32>()).max(1);
        (self.pages.len() / 2).min(most).min(self.limit - self.pages.len()).max(1)
    }

    /// Number of bytes of each slab, a piece of memory that holds pages. Tests watch memory grow.
    pub fn slab_bytes(&self) -> impl Iterator<Item = usize> {
        self.slabs.iter().map(Buffer::bytes)
    }

    /// The words of a page.
    fn words(&self, page: u32) -> &[u32] {
        let Place { slab, start } = self.pages[page as usize];
        &self.slabs[slab][start..][..self.page_words]
    }

    /// Copies what page `from` holds of its first `tokens` tokens to page `to`. What that holds of later tokens is undefined.
    pub fn copy(&mut self, from: u32, to: u32, tokens: usize) {
        let ranges = self.layers.iter().flat_map(|&KvLayer { shape, start }| {
            let heads = (0..shape.kv_heads).map(move |head| start + head * shape.head_words());
            heads.flat_map(move |first| shape.words_of(tokens).map(move |r| first + r.start..first + r.end))
        });
        let inputs = self.inputs.iter().map(|(shape, start)| *start..start + shape.words());
        let (from, to) = (self.pages[from as usize], self.pages[to as usize]);
        copy_ranges(&mut self.slabs, (from, to), ranges.chain(inputs));
    }

    /// Copies all words of page `from` to page `to`.
    pub fn copy_words(&mut self, from: u32, to: u32) {
        let (from, to) = (self.pages[from as usize], self.pages[to as usize]);
        copy_ranges(&mut self.slabs, (from, to), std::iter::once(0..self.page_words));
    }

    /// Sets all words of a page to 0.
    pub fn clear(&mut self, page: u32) {
        let Place { slab, start } = self.pages[page as usize];
        self.slabs[slab][start..][..self.page_words].fill(0);
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.page_words * size_of::<u32>()
    }

    /// Copies a page to `bytes`: its words, little-endian, which are the same on every tier.
    pub fn export(&self, page: u32, bytes: &mut Vec<u8>) {
        bytes.resize(self.page_bytes(), 0);
        let (to, _) = bytes.as_chunks_mut();
        for (to, word) in to.iter_mut().zip(self.words(page)) {
            *to = word.to_le_bytes();
        }
    }

    /// Copies what [`KvPages::export`] made of a page of the same layers to a page.
    ///
    /// # Panics
    /// If these are not the bytes of a page.
    pub fn import(&mut self, page: u32, bytes: &[u8]) {
        assert!(bytes.len() == self.page_bytes(), "{} bytes of {}", bytes.len(), self.page_bytes());
        let Place { slab, start } = self.pages[page as usize];
        let words = &mut self.slabs[slab][start..][..self.page_words];
        let (from, _) = bytes.as_chunks();
        for (word, from) in words.iter_mut().zip(from) {
            *word = u32::from_le_bytes(*from);
        }
    }

    /// Stores NaN as what a page holds of its tokens from `first` on. No result may depend on the contents of a
    /// page after the tokens of its sequence.
    pub fn poison(&mut self, page: u32, first: usize) {
        let Place { slab, start: first_word } = self.pages[page as usize];
        let words = &mut self.slabs[slab][first_word..][..self.page_words];
        let simd = Simd::best();
        for &KvLayer { shape, start } in &self.layers {
            let heads = &mut words[start..][..shape.kv_heads * shape.head_words()];
            for head in heads.chunks_mut(shape.head_words()) {
                simd.run(Poisoned { shape, head, slots: first..PAGE_TOKENS });
            }
        }
        for (shape, start) in &self.inputs {
            for unused in shape.unused(first) {
                words[start + unused.start..start + unused.end].fill(f32::NAN.to_bits());
            }
        }
    }

    /// The words of one head of one layer in one page: keys first. During a pass, only pages that no other micro-batch writes.
    pub(crate) fn head(&self, page: u32, layer: usize, head: usize) -> &[u32] {
        let KvLayer { shape, start } = self.layers[layer];
        let (words, place) = (shape.head_words(), self.pages[page as usize]);
        let first = start + head * words;
        assert!(
            head < shape.kv_heads && first + words <= self.page_words,
            "head {head} of {}",
            shape.kv_heads
        );
        // SAFETY: the head lies within its page, and the page within the slab. Other micro-batches write other pages of the slab, so
        // the reference covers the head alone. `PassPages::may_read` made sure that none writes this page meanwhile.
        unsafe {
            let slab = self.slabs[place.slab].as_mut_ptr_shared();
            std::slice::from_raw_parts(slab.add(place.start + first), words)
        }
    }

    /// The pages of a batch during a pass. Its rows may be stored by several threads at once, because segments are consecutive, and no
    /// page is written twice, neither by one segment nor by two. Takes time proportional to the number of written pages.
    ///
    /// # Panics
    /// If that does not hold, or a page does not exist.
    pub fn of_batch<'a>(&'a mut self, segments: &'a [Segment<'a>]) -> PassPages<'a> {
        self.of_batch_with_states(segments, &[])
    }

    /// As [`KvPages::of_batch`], with the pages of the state of each segment's sequence, which its rows are added to.
    ///
    /// # Panics
    /// As there; also if a page of a state is that of another one or is written as well, or if states are missing.
    pub fn of_batch_with_states<'a>(
        &'a mut self,
        segments: &'a [Segment<'a>],
        states: &'a [&'a [u32]],
    ) -> PassPages<'a> {
        let before = self.checks;
        let own = self.check(segments);
        if !self.states.is_empty() {
            assert!(states.len() == segments.len(), "{} states of {} segments", states.len(), segments.len());
            let count = self.state_pages;
            for (state, _) in states.iter().zip(segments).filter(|(_, segment)| segment.rows > 0) {
                assert!(state.len() == count, "a state of {} pages instead of {count}", state.len());
                for &page in *state {
                    let last = std::mem::replace(&mut self.written_in[page as usize], own);
                    assert!(last != own, "page {page} of a state is written twice in one batch");
                }
            }
        }
        PassPages { pages: self, segments, states, before, own, shared: false }
    }

    /// The pages of micro-batches that run at the same time, each as in [`KvPages::of_batch`], its rows counted from its first one;
    /// `None` if one reads what another writes. Takes time proportional to the number of pages.
    ///
    /// # Panics
    /// As in [`KvPages::of_batch`].
    pub fn of_micro_batches<'a>(
        &'a mut self,
        micro_batches: impl IntoIterator<Item = &'a [Segment<'a>]>,
    ) -> Option<Vec<PassPages<'a>>> {
        let before = self.checks;
        let checked = micro_batches.into_iter().map(|segments| (segments, self.check(segments)));
        let checked: Vec<_> = checked.collect();
        let pages = &*self;
        let of = |(segments, own)| PassPages { pages, segments, states: &[], before, own, shared: true };
        let all: Vec<_> = checked.into_iter().map(of).collect();
        let separate = all.iter().all(|it| it.segments.iter().all(|segment| it.may_read(segment)));
        separate.then_some(all)
    }

    /// Checks segments of a pass, and returns the number of that check.
    fn check(&mut self, segments: &[Segment<'_>]) -> u64 {
        assert_segments(segments);
        self.checks += 1;
        for segment in segments.iter().filter(|segment| segment.rows > 0) {
            let written = segment.start / PAGE_TOKENS..(segment.start + segment.rows).div_ceil(PAGE_TOKENS);
            for &page in &segment.pages[written] {
                let last = std::mem::replace(&mut self.written_in[page as usize], self.checks);
                assert!(last != self.checks, "page {page} is written twice in one batch");
            }
        }
        self.checks
    }
}

/// Stores NaN in some slots of a head.
struct Poisoned<'a> {
    shape: KvShape,
    head: &'a mut [u32],
    slots: Range<usize>,
}

impl Kernel for Poisoned<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { shape, head, slots } = self;
        let nan = &[f32::NAN; MAX_HEAD_DIM][..shape.head_dim];
        for slot in slots {
            // SAFETY: the words of one head, borrowed mutably.
            unsafe { write_tokens(s, shape, head.as_mut_ptr(), slot, [nan], [nan]) };
        }
    }
}

/// Stores some rows of a segment.
struct Stored<'a> {
    pages: &'a KvPages,
    layer: usize,
    segment: &'a Segment<'a>,
    k: Rows<'a>,
    v: Rows<'a>,
    rows: Range<usize>,
}

impl Kernel for Stored<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { pages, layer, segment, k, v, rows } = self;
        let KvLayer { shape, start } = pages.layer(layer);
        // Head by head, so that the cache lines that sixteen tokens share stay in the first-level cache.
        for head in 0..shape.kv_heads {
            let at = start + head * shape.head_words();
            let columns = head * shape.head_dim..(head + 1) * shape.head_dim;
            let row_of = |r: usize| {
                let row = segment.first_row + r;
                (&k.row(row)[columns.clone()], &v.row(row)[columns.clone()])
            };
            let mut next = rows.start;
            while next < rows.end {
                let slot = (segment.start + next) % PAGE_TOKENS;
                let page = pages.pages[segment.pages[(segment.start + next) / PAGE_TOKENS] as usize];
                // SAFETY: the head lies within the page; `PassPages` excludes readers: it is borrowed mutably, and no other
                // micro-batch reads its pages; a token's words are written by the one member that owns its row, and `KvPages::check`
                // made sure that no two rows of the batch are the same token of the same page. Tokens that are written together
                // may share words, and all of their rows are this member's.
                unsafe {
                    let words = pages.slabs[page.slab].as_mut_ptr_shared().add(page.start + at);
                    if slot % TOGETHER == 0 && rows.end - next >= TOGETHER {
                        // Rows are far apart, so no hardware expects the next ones.
                        for row in next + TOGETHER..rows.end.min(next + 2 * TOGETHER) {
                            let (k, v) = row_of(row);
                            for column in (0..shape.head_dim).step_by(LANES) {
                                s.prefetch(k[column..].as_ptr().cast());
                                s.prefetch(v[column..].as_ptr().cast());
                            }
                        }
                        let rows: [_; TOGETHER] = std::array::from_fn(|i| row_of(next + i));
                        write_tokens(s, shape, words, slot, rows.map(|row| row.0), rows.map(|row| row.1));
                        next += TOGETHER;
                    } else {
                        let (k, v) = row_of(next);
                        write_tokens(s, shape, words, slot, [k], [v]);
                        next += 1;
                    }
                }
            }
        }
    }
}

/// Number of rows of a batch up to the end of its last segment; segments are consecutive.
pub(crate) fn rows_of(segments: &[Segment<'_>]) -> usize {
    segments.last().map_or(0, |segment| segment.first_row + segment.rows)
}

/// Asserts that every row of a batch belongs to at most one segment, and that segments have pages for every key that their rows
/// see. Then no sum of a segment's fields overflows.
pub(crate) fn assert_segments(segments: &[Segment<'_>]) {
    let mut next_row = 0;
    for segment in segments {
        assert!(next_row <= segment.first_row, "segments follow each other without overlap");
        next_row = segment.first_row.checked_add(segment.rows).expect("rows of the batch");
        let end = segment.start.checked_add(segment.rows).expect("positions of a sequence");
        assert!(segment.rows == 0 || segment.keys() > 0, "rows see a key");
        assert!(end.max(segment.keys()) <= segment.pages.len() * PAGE_TOKENS, "pages for every row and key");
    }
}
