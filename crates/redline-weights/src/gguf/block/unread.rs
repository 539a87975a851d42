//! Types that files can hold, but whose values are not read: only their names and sizes are known.

use super::{Block, Contents, GgufType};

const fn block(ggml_type: GgufType, name: &'static str, number: u32, values: usize, bytes: usize) -> Block {
    Block { ggml_type, name, number, values, bytes, contents: Contents::Unread }
}

pub(super) const Q8_1: Block = block(GgufType::Q8_1, "Q8_1", 9, 32, 36);
pub(super) const Q8_K: Block = block(GgufType::Q8K, "Q8_K", 15, 256, 292);
pub(super) const IQ2_XXS: Block = block(GgufType::Iq2Xxs, "IQ2_XXS", 16, 256, 66);
pub(super) const IQ2_XS: Block = block(GgufType::Iq2Xs, "IQ2_XS", 17, 256, 74);
pub(super) const IQ3_XXS: Block = block(GgufType::Iq3Xxs, "IQ3_XXS", 18, 256, 98);
pub(super) const IQ1_S: Block = block(GgufType::Iq1S, "IQ1_S", 19, 256, 50);
pub(super) const IQ3_S: Block = block(GgufType::Iq3S, "IQ3_S", 21, 256, 110);
pub(super) const IQ2_S: Block = block(GgufType::Iq2S, "IQ2_S", 22, 256, 82);
pub(super) const I8: Block = block(GgufType::I8, "I8", 24, 1, 1);
pub(super) const I16: Block = block(GgufType::I16, "I16", 25, 1, 2);
pub(super) const I32: Block = block(GgufType::I32, "I32", 26, 1, 4);
pub(super) const I64: Block = block(GgufType::I64, "I64", 27, 1, 8);
pub(super) const F64: Block = block(GgufType::F64, "F64", 28, 1, 8);
pub(super) const IQ1_M: Block = block(GgufType::Iq1M, "IQ1_M", 29, 256, 56);
pub(super) const TQ1_0: Block = block(GgufType::Tq1_0, "TQ1_0", 34, 256, 54);
pub(super) const TQ2_0: Block = block(GgufType::Tq2_0, "TQ2_0", 35, 256, 66);
pub(super) const NVFP4: Block = block(GgufType::Nvfp4, "NVFP4", 40, 64, 36);
pub(super) const Q1_0: Block = block(GgufType::Q1_0, "Q1_0", 41, 128, 18);
pub(super) const Q2_0: Block = block(GgufType::Q2_0, "Q2_0", 42, 64, 18);
