//! Formats of keys and values, and the sizes that follow from them.
//!
//! | format | keys, `[4 strips of 16 tokens]` | values, `[strips of 16 dimensions]` | scales |
//! |---|---|---|---|
//! | `f32` | `[dimensions][16]` f32 | `[64 tokens][16]` f32 | |
//! | `bf16` | `[dimensions / 2][16][2]` bf16, pairs swapped | `[64 tokens][16]` bf16 | |
//! | `f16` | `[dimensions][16]` f16 | `[64 tokens][16]` f16 | |
//! | `w8` | `[dimensions / 4][16][4]` bytes, 128 too high | `[64 tokens / 4][16][4]` signed bytes | `[64]` f32 each, keys first |

use std::ops::Range;

use redline_simd::LANES;

use super::{PAGE_BLOCKS, PAGE_TOKENS};
use crate::Arithmetic;
use crate::format::BLOCK;

/// Maximum dimension of a head.
pub const MAX_HEAD_DIM: usize = 256;

/// Format of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// 32-bit floats.
    F32,
    /// bf16; queries are rounded in the same way.
    Bf16,
    /// f16, which other engines use; queries stay f32.
    F16,
    /// 8-bit integers with one scale per token and head, for keys and for values; queries are rounded to eight bits per row and
    /// head, and the weights of the values to fourteen.
    W8,
}

impl KvFormat {
    /// All formats.
    pub const ALL: &[KvFormat] = &[Self::F32, Self::Bf16, Self::F16, Self::W8];

    /// The name used by `--kv-format`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::W8 => "w8",
        }
    }

    /// Finds a format by name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.name() == name)
    }

    /// The arithmetic of query-key products, and of probability-value products.
    pub fn arithmetics(self) -> [Arithmetic; 2] {
        match self {
            Self::F32 | Self::F16 => [Arithmetic::F32; 2],
            Self::Bf16 => [Arithmetic::Bf16, Arithmetic::F32],
            Self::W8 => [Arithmetic::Int8; 2],
        }
    }

    /// Number of dimensions of a key in a step: in the words that a register of a strip takes at a time.
    fn dims_per_step(self) -> usize {
        match self {
            Self::F32 | Self::F16 => 1,
            Self::Bf16 => 2,
            Self::W8 => 4,
        }
    }

    /// Number of words of a step of keys, for sixteen tokens.
    fn step_words(self) -> usize {
        match self {
            Self::F32 | Self::Bf16 | Self::W8 => LANES,
            Self::F16 => LANES / 2,
        }
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
    pub(crate) fn steps(self) -> usize {
        let padded =
            if self.format == KvFormat::W8 { self.head_dim.next_multiple_of(BLOCK) } else { self.head_dim };
        padded.div_ceil(self.format.dims_per_step())
    }
    /// Number of dimensions of a key, including the padding of its last step.
    pub(crate) fn key_dims(self) -> usize {
        self.steps() * self.format.dims_per_step()
    }
    pub(crate) fn value_strips(self) -> usize {
        self.head_dim.div_ceil(LANES)
    }
    /// Words of one token's sixteen value dimensions.
    pub(crate) fn value_words(self) -> usize {
        match self.format {
            KvFormat::F32 => LANES,
            KvFormat::Bf16 | KvFormat::F16 => LANES / 2,
            KvFormat::W8 => LANES / 4,
        }
    }
    /// Words of a strip of keys.
    pub(crate) fn key_strip_words(self) -> usize {
        self.steps() * self.format.step_words()
    }
    /// Words of a strip of values.
    pub(crate) fn value_strip_words(self) -> usize {
        PAGE_TOKENS * self.value_words()
    }
    pub(crate) fn key_words(self) -> usize {
        PAGE_BLOCKS * self.key_strip_words()
    }
    /// First word of the scales of keys; those of values follow.
    pub(crate) fn scales(self) -> usize {
        self.key_words() + self.value_strips() * self.value_strip_words()
    }
    pub(crate) fn head_words(self) -> usize {
        self.scales() + self.scales_of(PAGE_TOKENS) * 2
    }
    /// Number of scales of the keys, or values, of `tokens` tokens.
    fn scales_of(self, tokens: usize) -> usize {
        if self.format == KvFormat::W8 { tokens } else { 0 }
    }
    /// Words of a head that hold the first `tokens` tokens of a page; some hold others too.
    pub(crate) fn words_of(self, tokens: usize) -> impl Iterator<Item = Range<usize>> {
        let keys = tokens.div_ceil(LANES) * self.key_strip_words();
        // Four int8 tokens share words.
        let values = tokens.next_multiple_of(4) * self.value_words();
        let (strips, scales, count) = (self.key_words(), self.scales(), self.scales_of(tokens));
        let values = (0..self.value_strips()).map(move |i| (strips + i * self.value_strip_words(), values));
        let scales = [scales, scales + PAGE_TOKENS].map(move |first| (first, count));
        let parts = std::iter::once((0, keys)).chain(values).chain(scales);
        parts.filter(|(_, count)| *count > 0).map(|(first, count)| first..first + count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_takes_the_bytes_of_its_format() {
        let words = |format, head_dim| KvShape { format, kv_heads: 1, head_dim }.head_words();
        let bytes = |format| words(format, 64) * 4 / PAGE_TOKENS;
        assert_eq!(
            KvFormat::ALL.iter().map(|&format| bytes(format)).collect::<Vec<_>>(),
            [512, 256, 256, 136]
        );
        // Dimensions are padded: keys to the step, or to 32 for integers; values to sixteen.
        let padded = KvFormat::ALL.iter().map(|&format| words(format, 17) * 4 / PAGE_TOKENS);
        assert_eq!(
            padded.collect::<Vec<_>>(),
            [4 * 17 + 4 * 32, 2 * 18 + 2 * 32, 2 * 17 + 2 * 32, 32 + 32 + 8]
        );
    }

    #[test]
    fn names_are_read_back() {
        for &format in KvFormat::ALL {
            assert_eq!(KvFormat::parse(format.name()), Some(format));
        }
        assert_eq!(KvFormat::parse("w4"), None);
    }
}
