//! Floats: a block is one value.

use super::{Block, Contents, GgufType};
use crate::dtype::Dtype;

pub(super) const F32: Block = Block {
    ggml_type: GgufType::F32,
    name: "F32",
    number: 0,
    values: 1,
    bytes: 4,
    contents: Contents::Floats(|raw, out| Dtype::F32.decode(raw, out)),
};

pub(super) const F16: Block = Block {
    ggml_type: GgufType::F16,
    name: "F16",
    number: 1,
    values: 1,
    bytes: 2,
    contents: Contents::Floats(|raw, out| Dtype::F16.decode(raw, out)),
};

pub(super) const BF16: Block = Block {
    ggml_type: GgufType::Bf16,
    name: "BF16",
    number: 30,
    values: 1,
    bytes: 2,
    contents: Contents::Floats(|raw, out| Dtype::BF16.decode(raw, out)),
};
