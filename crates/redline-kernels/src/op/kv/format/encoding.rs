//! What a format of keys and values defines: its layout, how a token is written, and the products that attention computes.

use redline_simd::Isa;

use super::{KvFormat, KvShape, MAX_HEAD_DIM};
use crate::Arithmetic;
use crate::format::Mac;

/// Sizes from which the layout of a page follows. Strips of keys hold sixteen tokens.
pub(in crate::op::kv) struct Layout {
    /// The name used by `--kv-format`.
    pub(super) name: &'static str,
    /// The arithmetic of query-key products, and of probability-value products.
    pub(super) arithmetics: [Arithmetic; 2],
    /// Dimensions of a key are padded to a multiple of this.
    pub(super) key_padding: usize,
    /// Number of dimensions of a key in a step: in the words that a register of a strip takes at a time.
    pub(super) dims_per_step: usize,
    /// Number of words of a step of keys, for sixteen tokens.
    pub(super) step_words: usize,
    /// Number of dimensions in a strip of values.
    pub(super) value_dims: usize,
    /// Number of words of one token in a strip of values.
    pub(super) value_words: usize,
    /// Number of adjacent tokens that share words of values.
    pub(super) value_tokens: usize,
    /// Number of dimensions that share a scale.
    pub(super) scale_dims: usize,
    /// Bytes of a scale; 0 for formats without scales.
    pub(super) scale_bytes: usize,
    /// Whether queries, keys and values are rotated ([`crate::op::hadamard`]); heads then have a power of two of dimensions.
    pub(super) rotated: bool,
}

impl Layout {
    /// Common to formats of floats.
    pub(super) const FLOATS: Self = Self {
        name: "",
        arithmetics: [Arithmetic::F32; 2],
        key_padding: 1,
        dims_per_step: 1,
        step_words: redline_simd::LANES,
        value_dims: redline_simd::LANES,
        value_words: redline_simd::LANES,
        value_tokens: 1,
        scale_dims: MAX_HEAD_DIM,
        scale_bytes: 0,
        rotated: false,
    };
}

/// A format of keys and values.
pub(super) trait Encoding {
    /// Its layout.
    const LAYOUT: Layout;
    /// Calls the visitor with the format's products.
    fn visit<V: FormatVisitor>(visitor: V) -> V::Output;
    /// Writes one token of one head.
    ///
    /// # Safety
    /// `words` is valid for the words of a head, and no other thread touches those of this slot. Bytes that tokens do not share
    /// are written as bytes.
    unsafe fn write<S: Isa>(s: S, shape: KvShape, words: *mut u32, slot: usize, k: &[f32], v: &[f32]);
    /// Writes `N` adjacent tokens of one head.
    ///
    /// # Safety
    /// As [`Encoding::write`] for the slots from `slot` on. If they are [`TOGETHER`], `slot` is a multiple of that.
    #[inline(always)]
    unsafe fn write_tokens<S: Isa, const N: usize>(
        s: S,
        shape: KvShape,
        words: *mut u32,
        slot: usize,
        k: [&[f32]; N],
        v: [&[f32]; N],
    ) {
        for i in 0..N {
            // SAFETY: by contract.
            unsafe { Self::write(s, shape, words, slot + i, k[i], v[i]) };
        }
    }
}

/// Number of tokens that are written together where a thread has so many: in some formats they share words.
pub(in crate::op::kv) const TOGETHER: usize = 4;

/// Work that depends on the products of a format.
pub(crate) trait FormatVisitor {
    /// What the work returns.
    type Output;
    /// Keys and values are floats: `K` multiplies keys, `V` values.
    fn floats<K: Mac, V: Mac>(self) -> Self::Output;
    /// Keys and values are integers with scales.
    fn integers<F: IntegerEncoding>(self) -> Self::Output;
}

/// Maximum number of groups of dimensions with a scale of their own.
pub(crate) const MAX_SCALES: usize = MAX_HEAD_DIM / 32;

/// The scale of a quantised query, and what is added to the sums of each group of dimensions to cancel the offset of keys.
#[derive(Clone, Copy, Default)]
pub(crate) struct QueryScale {
    pub(crate) scale: f32,
    pub(crate) starts: [i32; MAX_SCALES],
}

/// Products of integers, which are exact sums.
pub(crate) trait IntegerEncoding {
    /// The format.
    const FORMAT: KvFormat;
    /// [`QueryScale::starts`] is the sum of a group of the query times the negative of this.
    fn offset<S: Isa>() -> i32;
    /// Logits of the sixteen keys of a strip for `R` queries.
    ///
    /// # Safety
    /// `words` is valid for the words of a head, `queries` for `[key dimensions / 4][R]` words.
    unsafe fn logits<S: Isa, const R: usize>(
        s: S,
        shape: KvShape,
        words: *const u32,
        strip: usize,
        queries: (*const u32, &[QueryScale]),
    ) -> [S::F; R];
    /// Scales of the values of sixteen tokens from `slot` on, in a group of dimensions.
    ///
    /// # Safety
    /// `words` is valid for the words of a head, which has that group; `slot` is a multiple of sixteen.
    unsafe fn value_scales<S: Isa>(
        s: S,
        shape: KvShape,
        words: *const u32,
        group: usize,
        slot: usize,
    ) -> S::F;
    /// Adds the products of 32 tokens to sums as those of [`Isa::dot_shorts`]. `head` is its shape and words, `place` the number
    /// of a vector of sixteen dimensions and the slot of the first token, `x` the inputs and the words between them.
    ///
    /// # Safety
    /// The words are valid for those of a head, which has these dimensions; the slot is a multiple of 32; inputs as there.
    unsafe fn add_values<S: Isa, const R: usize>(
        s: S,
        sums: &mut [[S::W; 2]; R],
        head: (KvShape, *const u32),
        place: (usize, usize),
        x: (*const u32, usize),
    );
}
