//! Formats of keys and values: one file each, one line each in the list below. The sizes of a page follow from their layouts.

mod bf16;
mod encoding;
mod float16;
mod float32;
mod w4;
mod w8;

use std::ops::Range;

use redline_simd::{Isa, LANES};

pub(in crate::op::kv) use self::encoding::TOGETHER;
use self::encoding::{Encoding, Layout};
pub(crate) use self::encoding::{FormatVisitor, IntegerEncoding, MAX_SCALES, QueryScale};
pub(crate) use self::w8::W8 as BytePages;
use super::{PAGE_BLOCKS, PAGE_TOKENS};
use crate::Arithmetic;
use crate::op::hadamard::MAX_VALUES;

/// Maximum dimension of a head.
pub const MAX_HEAD_DIM: usize = 512;

/// Makes [`KvFormat`] of the list of formats.
macro_rules! formats {
    ($($(#[doc = $doc:literal])* $name:ident: $file:ident,)*) => {
        /// Format of keys and values.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum KvFormat {
            $($(#[doc = $doc])* $name,)*
        }

        impl KvFormat {
            /// All formats.
            pub const ALL: &[KvFormat] = &[$(Self::$name),*];

            #[inline(always)]
            fn layout(self) -> &'static Layout {
                match self {
                    $(Self::$name => &<$file::$name as Encoding>::LAYOUT),*
                }
            }

            /// Calls the visitor with the format's products.
            #[inline(always)]
            pub(crate) fn visit<V: FormatVisitor>(self, visitor: V) -> V::Output {
                match self {
                    $(Self::$name => <$file::$name as Encoding>::visit(visitor)),*
                }
            }
        }

        /// Writes `N` adjacent tokens of one head.
        ///
        /// # Safety
        /// `words` is valid for the words of a head, and no other thread touches those of these slots. If they are [`TOGETHER`],
        /// `slot` is a multiple of that.
        #[inline(always)]
        pub(super) unsafe fn write_tokens<S: Isa, const N: usize>(
            s: S,
            shape: KvShape,
            words: *mut u32,
            slot: usize,
            k: [&[f32]; N],
            v: [&[f32]; N],
        ) {
            // SAFETY: by contract.
            unsafe {
                match shape.format {
                    $(KvFormat::$name => $file::$name::write_tokens(s, shape, words, slot, k, v)),*
                }
            }
        }
    };
}

formats! {
    /// 32-bit floats.
    F32: float32,
    /// bf16; queries are rounded in the same way.
    Bf16: bf16,
    /// f16, which other engines use; queries stay f32.
    F16: float16,
    /// 8-bit integers with one scale per token and head, for keys and for values; queries are rounded to eight bits per row and
    /// head, and the weights of the values to fourteen.
    W8: w8,
    /// 4-bit integers with one scale per token and 32 dimensions, after a rotation of each head, whose dimension must be a power
    /// of two; queries and the weights of the values as for `W8`.
    W4: w4,
}

impl KvFormat {
    /// The name used by `--kv-format`.
    pub fn name(self) -> &'static str {
        self.layout().name
    }

    /// Finds a format by name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.name() == name)
    }

    /// The arithmetic of query-key products, and of probability-value products.
    pub fn arithmetics(self) -> [Arithmetic; 2] {
        self.layout().arithmetics
    }

    /// Whether queries, keys and values are rotated before they are rounded, and results back.
    pub(crate) fn is_rotated(self) -> bool {
        self.layout().rotated
    }

    /// Whether the format can hold heads of this dimension: one that rotates heads needs a power of two
    /// up to 256.
    pub fn holds(self, head_dim: usize) -> bool {
        let rotates = head_dim.is_power_of_two() && head_dim <= MAX_VALUES;
        head_dim <= MAX_HEAD_DIM && (!self.is_rotated() || rotates)
    }
}

/// Shape of the keys and values of one layer. Layers of a model may have different shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Format of keys and values.
    pub format: KvFormat,
    /// KV heads.
    pub kv_heads: usize,
    /// Dimension of a head.
    pub head_dim: usize,
}

impl KvShape {
    /// Number of steps of a key.
    #[inline(always)]
    pub(crate) fn steps(self) -> usize {
        let Layout { key_padding, dims_per_step, .. } = self.format.layout();
        self.head_dim.next_multiple_of(*key_padding).div_ceil(*dims_per_step)
    }
    /// Number of dimensions of a key, including the padding of its last step.
    #[inline(always)]
    pub(crate) fn key_dims(self) -> usize {
        self.steps() * self.format.layout().dims_per_step
    }
    /// Number of vectors of sixteen dimensions of a value.
    #[inline(always)]
    pub(crate) fn value_vectors(self) -> usize {
        self.head_dim.div_ceil(LANES)
    }
    /// Number of strips in which values are stored.
    #[inline(always)]
    pub(crate) fn value_strips(self) -> usize {
        self.head_dim.div_ceil(self.format.layout().value_dims)
    }
    /// Words of one token in a strip of values.
    #[inline(always)]
    fn value_words(self) -> usize {
        self.format.layout().value_words
    }
    /// Words of a strip of keys.
    #[inline(always)]
    pub(crate) fn key_strip_words(self) -> usize {
        self.steps() * self.format.layout().step_words
    }
    /// Words of a strip of values.
    #[inline(always)]
    pub(crate) fn value_strip_words(self) -> usize {
        PAGE_TOKENS * self.value_words()
    }
    #[inline(always)]
    pub(crate) fn key_words(self) -> usize {
        PAGE_BLOCKS * self.key_strip_words()
    }
    /// First word of the scales of keys; those of values follow.
    #[inline(always)]
    pub(crate) fn scales(self) -> usize {
        self.key_words() + self.value_strips() * self.value_strip_words()
    }
    #[inline(always)]
    pub(crate) fn head_words(self) -> usize {
        self.scales() + self.scales_of(PAGE_TOKENS) * 2 * self.scale_groups()
    }
    /// Number of groups of dimensions with a scale of their own.
    #[inline(always)]
    pub(crate) fn scale_groups(self) -> usize {
        self.head_dim.div_ceil(self.format.layout().scale_dims)
    }
    /// Number of dimensions that share a scale.
    #[inline(always)]
    pub(crate) fn scale_dims(self) -> usize {
        self.format.layout().scale_dims
    }
    /// The group of a vector of sixteen dimensions.
    #[inline(always)]
    pub(crate) fn scale_group(self, vector: usize) -> usize {
        vector * LANES / self.format.layout().scale_dims
    }
    /// Number of words of the scales of `tokens` tokens, in one group of dimensions.
    #[inline(always)]
    fn scales_of(self, tokens: usize) -> usize {
        (tokens * self.format.layout().scale_bytes).div_ceil(size_of::<u32>())
    }
    /// The first word of the strip of keys that holds a slot.
    ///
    /// # Safety
    /// `words` is valid for the words of a head.
    #[inline(always)]
    unsafe fn keys_of(self, words: *mut u32, slot: usize) -> *mut u32 {
        // SAFETY: the strip lies within the head's words.
        unsafe { words.add(slot / LANES * self.key_strip_words()) }
    }
    /// The first word of a strip of values.
    ///
    /// # Safety
    /// `words` is valid for the words of a head, which has that strip.
    #[inline(always)]
    unsafe fn values_of(self, words: *mut u32, strip: usize) -> *mut u32 {
        // SAFETY: by contract.
        unsafe { words.add(self.key_words() + strip * self.value_strip_words()) }
    }
    /// Words of a head that hold the first `tokens` tokens of a page; some hold others too.
    pub(crate) fn words_of(self, tokens: usize) -> impl Iterator<Item = Range<usize>> {
        let keys = tokens.div_ceil(LANES) * self.key_strip_words();
        let values = tokens.next_multiple_of(self.format.layout().value_tokens) * self.value_words();
        let (strips, scales) = (self.key_words(), self.scales());
        let (count, all) = (self.scales_of(tokens), self.scales_of(PAGE_TOKENS));
        let values = (0..self.value_strips()).map(move |i| (strips + i * self.value_strip_words(), values));
        let scales = (0..2 * self.scale_groups()).map(move |group| (scales + group * all, count));
        let parts = std::iter::once((0, keys)).chain(values).chain(scales);
        parts.filter(|(_, count)| *count > 0).map(|(first, count)| first..first + count)
    }
}
