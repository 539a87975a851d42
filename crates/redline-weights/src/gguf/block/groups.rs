//! Integers of 4, 5 and 8 bits in blocks of 32, with a 16-bit scale `d`, and in the types `_1` an offset `m` too.
//!
//! Byte `i` of the nibbles holds value `i` in its lower half and value `16 + i` in its upper half.

use super::{Block, Contents, GgufType};
use crate::gguf::integers::{Integers, Numbers, half};

pub(super) const Q4_0: Block = Block {
    ggml_type: GgufType::Q4_0,
    name: "Q4_0",
    number: 2,
    values: 32,
    bytes: 18,
    contents: Contents::Integers(Integers::new(q4_0)),
};

pub(super) const Q4_1: Block = Block {
    ggml_type: GgufType::Q4_1,
    name: "Q4_1",
    number: 3,
    values: 32,
    bytes: 20,
    contents: Contents::Integers(Integers { minima: true, ..Integers::new(q4_1) }),
};

pub(super) const Q5_0: Block = Block {
    ggml_type: GgufType::Q5_0,
    name: "Q5_0",
    number: 6,
    values: 32,
    bytes: 22,
    contents: Contents::Integers(Integers::new(q5_0)),
};

pub(super) const Q5_1: Block = Block {
    ggml_type: GgufType::Q5_1,
    name: "Q5_1",
    number: 7,
    values: 32,
    bytes: 24,
    contents: Contents::Integers(Integers { minima: true, ..Integers::new(q5_1) }),
};

pub(super) const Q8_0: Block = Block {
    ggml_type: GgufType::Q8_0,
    name: "Q8_0",
    number: 8,
    values: 32,
    bytes: 34,
    contents: Contents::Integers(Integers::new(q8_0)),
};

/// Half of the values of a block.
const HALF: usize = 16;

/// `[d: 2][nibbles: 16]`: `d * (q - 8)`.
fn q4_0(block: &[u8], to: Numbers<'_>) {
    *to.scale = half(block, 0);
    for (i, &pair) in block[2..].iter().enumerate() {
        to.codes[i] = (pair & 15).cast_signed() - 8;
        to.codes[HALF + i] = (pair >> 4).cast_signed() - 8;
    }
}

/// `[d: 2][m: 2][nibbles: 16]`: `d * q + m`.
fn q4_1(block: &[u8], to: Numbers<'_>) {
    *to.scale = half(block, 0);
    if let Some(minimum) = to.minimum {
        *minimum = half(block, 2);
    }
    for (i, &pair) in block[4..].iter().enumerate() {
        to.codes[i] = (pair & 15).cast_signed();
        to.codes[HALF + i] = (pair >> 4).cast_signed();
    }
}

/// `[d: 2][fifth bits: 4][nibbles: 16]`: `d * (q - 16)`. Bit `i` of the fifth bits belongs to value `i`.
fn q5_0(block: &[u8], to: Numbers<'_>) {
    *to.scale = half(block, 0);
    let fifth = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
    for (i, &pair) in block[6..].iter().enumerate() {
        let [low, high] = with_fifth(pair, fifth, i);
        to.codes[i] = low - 16;
        to.codes[HALF + i] = high - 16;
    }
}

/// `[d: 2][m: 2][fifth bits: 4][nibbles: 16]`: `d * q + m`.
fn q5_1(block: &[u8], to: Numbers<'_>) {
    *to.scale = half(block, 0);
    if let Some(minimum) = to.minimum {
        *minimum = half(block, 2);
    }
    let fifth = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
    for (i, &pair) in block[8..].iter().enumerate() {
        [to.codes[i], to.codes[HALF + i]] = with_fifth(pair, fifth, i);
    }
}

/// Values `i` and `16 + i` of five bits.
fn with_fifth(pair: u8, fifth: u32, i: usize) -> [i8; 2] {
    let bit = |place: usize| ((fifth >> place & 1) as u8) << 4;
    [pair & 15 | bit(i), pair >> 4 | bit(HALF + i)].map(u8::cast_signed)
}

/// `[d: 2][signed bytes: 32]`: `d * q`.
fn q8_0(block: &[u8], to: Numbers<'_>) {
    *to.scale = half(block, 0);
    for (code, &byte) in to.codes.iter_mut().zip(&block[2..]) {
        *code = byte.cast_signed();
    }
}
