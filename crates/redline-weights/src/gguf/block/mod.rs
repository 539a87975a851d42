//! The types of GGML tensors: one descriptor each in [`ALL`], one file per family.
//!
//! Values are stored in blocks, and a row consists of whole blocks. Products of a finite scale and its integers have at most 23
//! significant bits, so they are exact in `f32`. A value is therefore the exact one, rounded once if an offset is added, and
//! fused instructions would not change it.

mod float;
mod groups;
mod super_blocks;
mod tables;
mod unread;

use std::fmt;

use super::integers::{GgufParts, Integers};

/// A type of GGML tensors that files can hold. [`Self::is_read`] says whether values can be read from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are GGML's own
pub enum GgufType {
    F32,
    F16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Q8K,
    Iq2Xxs,
    Iq2Xs,
    Iq3Xxs,
    Iq1S,
    Iq4Nl,
    Iq3S,
    Iq2S,
    Iq4Xs,
    I8,
    I16,
    I32,
    I64,
    F64,
    Iq1M,
    Bf16,
    Tq1_0,
    Tq2_0,
    Mxfp4,
    Nvfp4,
    Q1_0,
    Q2_0,
}

/// Converts whole blocks to `f32`.
type Decode = fn(&[u8], &mut [f32]);

/// What the bytes of a block are.
enum Contents {
    /// Values of the type are not read.
    Unread,
    /// Floats.
    Floats(Decode),
    /// Integers with scales.
    Integers(Integers),
}

/// How a type stores its values.
struct Block {
    ggml_type: GgufType,
    name: &'static str,
    /// Number of the type in files.
    number: u32,
    values: usize,
    bytes: usize,
    contents: Contents,
}

/// All types, in the order of [`GgufType`].
static ALL: [Block; 35] = [
    float::F32,
    float::F16,
    groups::Q4_0,
    groups::Q4_1,
    groups::Q5_0,
    groups::Q5_1,
    groups::Q8_0,
    unread::Q8_1,
    super_blocks::Q2_K,
    super_blocks::Q3_K,
    super_blocks::Q4_K,
    super_blocks::Q5_K,
    super_blocks::Q6_K,
    unread::Q8_K,
    unread::IQ2_XXS,
    unread::IQ2_XS,
    unread::IQ3_XXS,
    unread::IQ1_S,
    tables::IQ4_NL,
    unread::IQ3_S,
    unread::IQ2_S,
    tables::IQ4_XS,
    unread::I8,
    unread::I16,
    unread::I32,
    unread::I64,
    unread::F64,
    unread::IQ1_M,
    float::BF16,
    unread::TQ1_0,
    unread::TQ2_0,
    tables::MXFP4,
    unread::NVFP4,
    unread::Q1_0,
    unread::Q2_0,
];

/// Numbers of types that GGML has removed.
const REMOVED: [(u32, &str); 8] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

impl GgufType {
    /// All types, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.iter().map(|block| block.ggml_type)
    }

    /// The type of this number in files, or `None`.
    pub fn from_number(number: u32) -> Option<Self> {
        ALL.iter().find(|block| block.number == number).map(|block| block.ggml_type)
    }

    /// The name of a number whose type GGML has removed.
    pub(super) fn removed(number: u32) -> Option<&'static str> {
        REMOVED.iter().find(|(removed, _)| *removed == number).map(|&(_, name)| name)
    }

    fn block(self) -> &'static Block {
        &ALL[self as usize]
    }

    /// GGML's name, like `Q4_K`.
    pub fn name(self) -> &'static str {
        self.block().name
    }

    /// The number in files.
    pub fn number(self) -> u32 {
        self.block().number
    }

    /// Values of one block; a row is a multiple of it.
    pub fn block_values(self) -> usize {
        self.block().values
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        self.block().bytes
    }

    /// Whether values can be read from this type.
    pub fn is_read(self) -> bool {
        !matches!(self.block().contents, Contents::Unread)
    }

    /// Converts the bytes of whole blocks to `f32`, the values that GGML computes from them. Scales that are not finite
    /// give values that are not finite; which NaN they give is not defined. Returns false, and leaves `out` unchanged, if
    /// the type is not read, or if `blocks` is not as many whole blocks as `out` has values for.
    #[must_use]
    pub fn decode(self, blocks: &[u8], out: &mut [f32]) -> bool {
        let block = self.block();
        let count = blocks.len() / block.bytes;
        let fits = blocks.len() == count * block.bytes && out.len() == count * block.values;
        match &block.contents {
            Contents::Floats(decode) if fits => decode(blocks, out),
            Contents::Integers(integers) if fits => integers.decode(blocks, block.bytes, out, block.values),
            _ => return false,
        }
        true
    }

    /// Whether a value with this scale, as [`GgufType::split`] returns it, may be beyond the range of f32, or no number.
    pub(crate) fn may_exceed(self, scale: u16) -> bool {
        const F16_EXPONENT: u16 = 0x7c00;
        match self {
            // A power of two; the integers are at most 12.
            Self::Mxfp4 => scale >= 250,
            _ => scale & F16_EXPONENT == F16_EXPONENT,
        }
    }

    /// Reads the integers and scales of whole blocks as they are stored. Returns false, and leaves the parts unchanged, if the type
    /// does not store integers that are read, or if `blocks` is not as many whole blocks as the parts have room for.
    #[must_use]
    pub fn split(self, blocks: &[u8], parts: GgufParts<'_>) -> bool {
        let block = self.block();
        let count = blocks.len() / block.bytes;
        match &block.contents {
            Contents::Integers(integers)
                if blocks.len() == count * block.bytes && integers.fits(&parts, count, block.values) =>
            {
                integers.split(blocks, (block.bytes, block.values), parts);
                true
            }
            _ => false,
        }
    }
}

impl fmt::Display for GgufType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_stands_in_the_order_of_the_types() {
        for (place, block) in ALL.iter().enumerate() {
            let ggml_type = block.ggml_type;
            assert_eq!(ggml_type as usize, place, "{ggml_type}");
            assert_eq!(GgufType::from_number(block.number), Some(ggml_type));
            assert_eq!(
                ggml_type.name().replace('_', ""),
                format!("{ggml_type:?}").replace('_', "").to_uppercase()
            );
        }
        assert!(ALL.is_sorted_by(|a, b| a.number < b.number));
        assert_eq!(GgufType::from_number(99), None);
        assert!(REMOVED.iter().all(|&(number, _)| GgufType::from_number(number).is_none()));
    }

    #[test]
    fn sixteen_types_are_read() {
        let read: Vec<_> = GgufType::all().filter(|t| t.is_read()).map(GgufType::name).collect();
        let expected = "F32 F16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS BF16 MXFP4";
        assert_eq!(read.join(" "), expected);
    }

    #[test]
    fn only_whole_blocks_are_decoded() {
        for ggml_type in GgufType::all() {
            let (bytes, values) = (ggml_type.block_bytes(), ggml_type.block_values());
            let decoded = |blocks: usize, more: usize, count: usize| {
                let mut out = vec![7.0; count];
                let decoded = ggml_type.decode(&vec![0; blocks * bytes + more], &mut out);
                assert!(decoded || out.iter().all(|&value| value == 7.0));
                decoded
            };
            assert_eq!(decoded(3, 0, 3 * values), ggml_type.is_read(), "{ggml_type}");
            assert!(
                !decoded(3, 0, 2 * values) && !decoded(2, 0, 3 * values) && !decoded(3, 0, 3 * values + 1)
            );
            assert!(bytes == 1 || !decoded(2, 1, 2 * values));
        }
    }
}
