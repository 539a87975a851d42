//! Keys and values in pages of 64 tokens, laid out so that attention is the same tile as a linear layer.
//!
//! Per page, layer and KV head: keys as strips of 16 tokens, `[4][steps of head_dim][16]` words, then values as strips of
//! 16 dimensions, `[strips][64 tokens][16]`. Keys and values are used only after they passed through the cache's
//! format, also within the pass that computed them: a result never depends on what was cached.

use redline_simd::LANES;

use crate::format::{Format, bf16};
use crate::memory::{Buffer, OutOfMemory};
use crate::{Arithmetic, Exec, Rows};

/// Tokens of a page.
pub const PAGE_TOKENS: usize = 64;
pub(crate) const PAGE_BLOCKS: usize = PAGE_TOKENS / LANES;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// 32-bit floats.
    F32,
    /// bf16; queries are rounded alike.
    Bf16,
}

impl KvFormat {
    /// Every format there is.
    pub const ALL: &[KvFormat] = &[Self::F32, Self::Bf16];

    /// The name used by `--kv-format`.
    pub fn name(self) -> &'static str {
        self.strips().name()
    }

    /// The format of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.name() == name)
    }

    /// What multiplies queries with keys, and probabilities with values.
    pub fn arithmetics(self) -> [Arithmetic; 2] {
        match self {
            Self::F32 => [Arithmetic::F32; 2],
            Self::Bf16 => [Arithmetic::Bf16, Arithmetic::F32],
        }
    }

    /// The format of weights whose strips the keys are laid out as.
    pub(crate) fn strips(self) -> Format {
        match self {
            Self::F32 => Format::F32,
            Self::Bf16 => Format::Bf16,
        }
    }
}

/// Shape of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// How keys and values are stored.
    pub format: KvFormat,
    /// Layers of the model.
    pub layers: usize,
    /// KV heads of a layer.
    pub kv_heads: usize,
    /// Values of a head.
    pub head_dim: usize,
}

impl KvShape {
    pub(crate) fn steps(self) -> usize {
        self.format.strips().steps(self.head_dim)
    }
    /// Dimensions of a key, those included that fill its last step.
    pub(crate) fn key_dims(self) -> usize {
        self.steps() * self.format.strips().k_per_step()
    }
    pub(crate) fn value_strips(self) -> usize {
        self.head_dim.div_ceil(LANES)
    }
    /// Words of one row of sixteen value dimensions.
    pub(crate) fn value_words(self) -> usize {
        match self.format {
            KvFormat::F32 => LANES,
            KvFormat::Bf16 => LANES / 2,
        }
    }
    pub(crate) fn key_words(self) -> usize {
        PAGE_BLOCKS * self.steps() * LANES
    }
    fn head_words(self) -> usize {
        self.key_words() + self.value_strips() * PAGE_TOKENS * self.value_words()
    }
    fn page_words(self) -> usize {
        let heads = self.layers.checked_mul(self.kv_heads);
        heads.and_then(|heads| heads.checked_mul(self.head_words())).expect("a page that memory can hold")
    }
    /// Bytes of one page.
    pub fn page_bytes(self) -> usize {
        self.page_words() * size_of::<u32>()
    }
}

/// The pages of a cache. Which sequence owns a page is decided above.
#[derive(Debug)]
pub struct KvPages {
    shape: KvShape,
    pages: Vec<Buffer<u32>>,
}

/// Which keys of its sequence a row sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Those before it and its own.
    Before,
    /// The first so many of the sequence, also those after it; at least all of the batch.
    All(usize),
}

/// Consecutive rows of a batch that belong to one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The sequence's pages; enough for [`Segment::keys`] tokens.
    pub pages: &'a [u32],
    /// Position of the first row in the sequence.
    pub start: usize,
    /// The first row in the batch.
    pub first_row: usize,
    /// Number of rows.
    pub rows: usize,
    /// What its rows see.
    pub sight: Sight,
}

impl Segment<'_> {
    /// Tokens of the sequence that its rows see, together.
    pub fn keys(&self) -> usize {
        match self.sight {
            Sight::Before => self.start + self.rows,
            Sight::All(keys) => keys,
        }
    }
}

impl KvPages {
    /// A cache without pages.
    pub fn new(shape: KvShape) -> Self {
        Self { shape, pages: Vec::new() }
    }

    /// The shape.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Pages that exist.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether no page exists.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Adds a page of zeros; returns its number.
    pub fn grow(&mut self) -> Result<u32, OutOfMemory> {
        self.pages.push(Buffer::zeroed(self.shape.page_words())?);
        Ok((self.pages.len() - 1) as u32)
    }

    /// Copies page `from` to page `to`.
    pub fn copy(&mut self, from: u32, to: u32) {
        if let Ok([from, to]) = self.pages.get_disjoint_mut([from as usize, to as usize]) {
            to.copy_from_slice(from);
        }
    }

    /// Stores NaN as the keys and values of the tokens of a page from `first` on, as a pass stores others. No result may
    /// depend on what a page holds behind the tokens of its sequence.
    pub fn poison(&mut self, page: u32, first: usize) {
        let shape = self.shape;
        let nan = vec![f32::NAN; shape.head_dim];
        for head in self.pages[page as usize].chunks_mut(shape.head_words()) {
            for slot in first..PAGE_TOKENS {
                // SAFETY: the words of one head, borrowed mutably; `nan` holds a value for every dimension.
                unsafe { write_token(shape, head.as_mut_ptr(), slot, &nan, &nan) };
            }
        }
    }

    /// The words of one head of one layer in one page: keys first.
    pub(crate) fn head(&self, page: u32, layer: usize, head: usize) -> &[u32] {
        let words = self.shape.head_words();
        &self.pages[page as usize][(layer * self.shape.kv_heads + head) * words..][..words]
    }

    /// Stores the keys and values of all rows of a batch: row r of `k` and `v` is `[kv_heads * head_dim]`.
    pub fn store(
        &mut self,
        exec: Exec<'_>,
        layer: usize,
        segments: &[Segment<'_>],
        k: Rows<'_>,
        v: Rows<'_>,
    ) {
        let shape = self.shape;
        assert!(layer < shape.layers, "layer {layer} of {}", shape.layers);
        assert!(
            k.width == shape.kv_heads * shape.head_dim && v.width == k.width,
            "keys and values of every head"
        );
        assert_segments(segments);
        for segment in segments {
            assert!(segment.first_row + segment.rows <= k.rows && k.rows == v.rows, "rows of the batch");
            assert!(segment.keys() <= segment.pages.len() * PAGE_TOKENS, "pages for every key");
            let pages = &self.pages;
            exec.team.split(segment.rows, 1, 8, |rows| {
                // Head by head: the lines that sixteen tokens share stay in the first-level cache meanwhile.
                for head in 0..shape.kv_heads {
                    let at = (layer * shape.kv_heads + head) * shape.head_words();
                    let columns = head * shape.head_dim..(head + 1) * shape.head_dim;
                    for r in rows.clone() {
                        let position = segment.start + r;
                        let page = &pages[segment.pages[position / PAGE_TOKENS] as usize];
                        let row = segment.first_row + r;
                        let (k, v) = (&k.row(row)[columns.clone()], &v.row(row)[columns.clone()]);
                        // SAFETY: the head lies within the page; `&mut self` excludes readers; a token's words are
                        // written by the one member that owns its row, and no two rows of a batch are the same token.
                        unsafe {
                            let words = page.as_mut_ptr_shared().add(at);
                            write_token(shape, words, position % PAGE_TOKENS, k, v);
                        }
                    }
                }
            });
        }
    }
}

/// Every row of a batch belongs to one segment, and no page stands twice in one: then no two members write the same words.
pub(crate) fn assert_segments(segments: &[Segment<'_>]) {
    let ordered = segments.windows(2).all(|w| w[0].first_row + w[0].rows <= w[1].first_row);
    assert!(ordered, "segments follow each other without overlap");
    for segment in segments {
        let end = segment.start + segment.rows;
        assert!(end <= segment.keys(), "rows up to {end} see {} keys", segment.keys());
        let written = &segment.pages[(segment.start / PAGE_TOKENS).min(segment.pages.len())..];
        debug_assert!(
            written.iter().enumerate().all(|(i, page)| !written[..i].contains(page)),
            "distinct pages"
        );
    }
}

/// Writes one token of one head.
///
/// # Safety
/// `words` is valid for the words of a head, and no other thread touches those of this slot.
unsafe fn write_token(shape: KvShape, words: *mut u32, slot: usize, k: &[f32], v: &[f32]) {
    let strips = shape.format.strips();
    let per_step = strips.k_per_step();
    // SAFETY: keys and values of this slot lie within the head's words.
    unsafe {
        let keys = words.add(slot / LANES * shape.steps() * LANES + slot % LANES);
        for (d, &x) in k.iter().enumerate() {
            strips.insert(&mut *keys.add(d / per_step * LANES), d, x);
        }
        for (strip, v) in v.chunks(LANES).enumerate() {
            let row = words.add(shape.key_words() + (strip * PAGE_TOKENS + slot) * shape.value_words());
            write_value(shape.format, row, v);
        }
    }
}

/// # Safety
/// `row` is valid for the words of sixteen value dimensions.
unsafe fn write_value(format: KvFormat, row: *mut u32, v: &[f32]) {
    // SAFETY: at most sixteen values by the caller's chunking.
    unsafe {
        match format {
            KvFormat::F32 => {
                for (i, x) in v.iter().enumerate() {
                    *row.add(i) = x.to_bits();
                }
            }
            KvFormat::Bf16 => {
                for (i, &x) in v.iter().enumerate() {
                    *row.cast::<u16>().add(i) = bf16::round(x);
                }
            }
        }
    }
}
