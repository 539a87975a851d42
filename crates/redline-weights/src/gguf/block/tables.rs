//! Nibbles that are indices into a table of sixteen integers.

use super::{Block, GgufType, each, f16};

pub(super) const IQ4_NL: Block = Block {
    ggml_type: GgufType::Iq4Nl,
    name: "IQ4_NL",
    number: 20,
    values: 32,
    bytes: 18,
    decode: Some(|raw, out| each(raw, out, iq4_nl)),
};

pub(super) const IQ4_XS: Block = Block {
    ggml_type: GgufType::Iq4Xs,
    name: "IQ4_XS",
    number: 23,
    values: 256,
    bytes: 136,
    decode: Some(|raw, out| each(raw, out, iq4_xs)),
};

pub(super) const MXFP4: Block = Block {
    ggml_type: GgufType::Mxfp4,
    name: "MXFP4",
    number: 39,
    values: 32,
    bytes: 17,
    decode: Some(|raw, out| each(raw, out, mxfp4)),
};

/// The values of `IQ4_NL` and `IQ4_XS`.
const NON_LINEAR: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// Twice the values of the four-bit floats (E2M1) of MXFP4. Both zeros are +0.
const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Sixteen bytes of nibbles times a scale: the lower halves, then the upper halves.
fn look_up(nibbles: &[u8], table: &[i8; 16], scale: f32, out: &mut [f32]) {
    for (i, &pair) in nibbles.iter().enumerate() {
        out[i] = scale * f32::from(table[usize::from(pair & 15)]);
        out[16 + i] = scale * f32::from(table[usize::from(pair >> 4)]);
    }
}

/// `[d: 2][nibbles: 16]`: `d * table[q]`.
fn iq4_nl(block: &[u8; 18], out: &mut [f32; 32]) {
    look_up(&block[2..], &NON_LINEAR, f16(block, 0), out);
}

/// `[d: 2][upper bits of scales: 2][lower bits of scales: 4][nibbles: 128]`: `(d * (scale - 32)) * table[q]`, with a scale of six
/// bits for each 32 values.
fn iq4_xs(block: &[u8; 136], out: &mut [f32; 256]) {
    let d = f16(block, 0);
    let upper = u16::from_le_bytes([block[2], block[3]]);
    for (group, values) in out.chunks_exact_mut(32).enumerate() {
        let low = block[4 + group / 2] >> (group % 2 * 4) & 15;
        let high = (upper >> (2 * group) & 3) as u8;
        let scale = d * f32::from(i16::from(low | high << 4) - 32);
        look_up(&block[8 + 16 * group..][..16], &NON_LINEAR, scale, values);
    }
}

/// `[exponent: 1][nibbles: 16]`: `2^(exponent - 128) * table[q]`, which is the scale `2^(exponent - 127)` times the four-bit float.
/// The exponent 255, NaN in the standard of the format, is 2^127 here, as in GGML.
fn mxfp4(block: &[u8; 17], out: &mut [f32; 32]) {
    let exponent = u32::from(block[0]);
    // The two smallest scales are subnormal.
    let bits = if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 };
    look_up(&block[1..], &E2M1, f32::from_bits(bits), out);
}
