//! Nibbles that are indices into a table of sixteen integers.

use super::{Block, Contents, GgufType};
use crate::gguf::integers::{Integers, Numbers, half};

pub(super) const IQ4_NL: Block = Block {
    ggml_type: GgufType::Iq4Nl,
    name: "IQ4_NL",
    number: 20,
    values: 32,
    bytes: 18,
    contents: Contents::Integers(Integers { table: Some(&NON_LINEAR), ..Integers::new(iq4_nl) }),
};

pub(super) const IQ4_XS: Block = Block {
    ggml_type: GgufType::Iq4Xs,
    name: "IQ4_XS",
    number: 23,
    values: 256,
    bytes: 136,
    contents: Contents::Integers(Integers {
        table: Some(&NON_LINEAR),
        sub_groups: 8,
        ..Integers::new(iq4_xs)
    }),
};

pub(super) const MXFP4: Block = Block {
    ggml_type: GgufType::Mxfp4,
    name: "MXFP4",
    number: 39,
    values: 32,
    bytes: 17,
    contents: Contents::Integers(Integers { table: Some(&E2M1), scale: power, ..Integers::new(mxfp4) }),
};

/// The values of `IQ4_NL` and `IQ4_XS`.
static NON_LINEAR: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// Twice the values of the four-bit floats (E2M1) of MXFP4. Both zeros are +0.
static E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Sixteen bytes of nibbles: the lower halves, then the upper halves.
fn indices(nibbles: &[u8], codes: &mut [i8]) {
    for (i, &pair) in nibbles.iter().enumerate() {
        codes[i] = (pair & 15).cast_signed();
        codes[16 + i] = (pair >> 4).cast_signed();
    }
}

/// `[d: 2][nibbles: 16]`: `d * table[q]`.
fn iq4_nl(block: &[u8], to: Numbers<'_>) {
    *to.scale = half(block, 0);
    indices(&block[2..], to.codes);
}

/// `[d: 2][upper bits of scales: 2][lower bits of scales: 4][nibbles: 128]`: `(d * (scale - 32)) * table[q]`, with a scale of six
/// bits for each 32 values.
fn iq4_xs(block: &[u8], to: Numbers<'_>) {
    *to.scale = half(block, 0);
    let upper = half(block, 2);
    for (group, scale) in to.sub_scales[..8].iter_mut().enumerate() {
        let low = block[4 + group / 2] >> (group % 2 * 4) & 15;
        let high = (upper >> (2 * group) & 3) as u8;
        *scale = (low | high << 4).cast_signed() - 32;
    }
    for (nibbles, codes) in block[8..].chunks_exact(16).zip(to.codes.chunks_exact_mut(32)) {
        indices(nibbles, codes);
    }
}

/// `[exponent: 1][nibbles: 16]`: `2^(exponent - 128) * table[q]`, which is the scale `2^(exponent - 127)` times the four-bit float.
fn mxfp4(block: &[u8], to: Numbers<'_>) {
    *to.scale = u16::from(block[0]);
    indices(&block[1..], to.codes);
}

/// `2^(exponent - 128)`. The exponent 255, NaN in the standard of the format, is 2^127 here, as in GGML.
fn power(exponent: u16) -> f32 {
    let exponent = u32::from(exponent);
    // The two smallest scales are subnormal.
    f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 })
}
