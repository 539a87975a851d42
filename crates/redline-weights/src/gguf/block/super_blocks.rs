//! The K types: blocks of 256 integers of 2 to 6 bits. Each 16 or 32 of them have a scale, which is an integer of 4 to 8
//! bits times the 16-bit scale `d` of the block. In `Q2_K`, `Q4_K` and `Q5_K` they have an offset, an integer times `dmin`.
//!
//! A value is `(d * scale) * q - (dmin * offset)`.

use super::{Block, GgufType, each, f16};

pub(super) const Q2_K: Block = Block {
    ggml_type: GgufType::Q2K,
    name: "Q2_K",
    number: 10,
    values: 256,
    bytes: 84,
    decode: Some(|raw, out| each(raw, out, q2_k)),
};

pub(super) const Q3_K: Block = Block {
    ggml_type: GgufType::Q3K,
    name: "Q3_K",
    number: 11,
    values: 256,
    bytes: 110,
    decode: Some(|raw, out| each(raw, out, q3_k)),
};

pub(super) const Q4_K: Block = Block {
    ggml_type: GgufType::Q4K,
    name: "Q4_K",
    number: 12,
    values: 256,
    bytes: 144,
    decode: Some(|raw, out| each(raw, out, q4_k)),
};

pub(super) const Q5_K: Block = Block {
    ggml_type: GgufType::Q5K,
    name: "Q5_K",
    number: 13,
    values: 256,
    bytes: 176,
    decode: Some(|raw, out| each(raw, out, q5_k)),
};

pub(super) const Q6_K: Block = Block {
    ggml_type: GgufType::Q6K,
    name: "Q6_K",
    number: 14,
    values: 256,
    bytes: 210,
    decode: Some(|raw, out| each(raw, out, q6_k)),
};

/// Two bits of value `i`: byte `j` of each 32 bytes holds the values `j`, `32 + j`, `64 + j` and `96 + j` of 128.
fn two_bits(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3
}

/// Four bits of value `i`: byte `j` of each 32 bytes holds the values `j` and `32 + j` of 64.
fn nibble(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15
}

/// One bit of value `i`: bit `k` of byte `j` of 32 belongs to the value `32 k + j`.
fn one_bit(bytes: &[u8], i: usize) -> u8 {
    bytes[i % 32] >> (i / 32) & 1
}

/// `[scales and offsets: 16][two bits: 64][d: 2][dmin: 2]`; a byte for each 16 values has the scale in its lower half and the
/// offset in its upper half.
fn q2_k(block: &[u8; 84], out: &mut [f32; 256]) {
    let (d, dmin) = (f16(block, 80), f16(block, 82));
    for (group, values) in out.chunks_exact_mut(16).enumerate() {
        let (scale, offset) = (d * f32::from(block[group] & 15), dmin * f32::from(block[group] >> 4));
        for (i, value) in values.iter_mut().enumerate() {
            *value = scale * f32::from(two_bits(&block[16..80], group * 16 + i)) - offset;
        }
    }
}

/// `[third bits: 32][two bits: 64][scales: 12][d: 2]`, without offsets; 4 is subtracted from values whose third bit is not
/// set. The scales of 16 values have six bits: four in the nibbles of eight bytes, two in the four bytes after them.
fn q3_k(block: &[u8; 110], out: &mut [f32; 256]) {
    let d = f16(block, 108);
    let (third, pairs, scales) = (&block[..32], &block[32..96], &block[96..108]);
    for (group, values) in out.chunks_exact_mut(16).enumerate() {
        let low = scales[group % 8] >> (group / 8 * 4) & 15;
        let high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
        let scale = d * f32::from(i16::from(low | high << 4) - 32);
        for (i, value) in values.iter_mut().enumerate() {
            let i = group * 16 + i;
            let q = i16::from(two_bits(pairs, i)) - 4 * i16::from(1 - one_bit(third, i));
            *value = scale * f32::from(q);
        }
    }
}

/// Scale and offset of the values `32 group ..`, six bits each, from twelve bytes: the lower six bits of a byte for groups 0 to 3.
/// The upper two bits of these bytes, and the nibbles of the last four, are those of groups 4 to 7.
fn scale_and_offset(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (packed[group] & 63, packed[group + 4] & 63);
    }
    let (scale, offset, nibbles) = (packed[group - 4], packed[group], packed[group + 4]);
    (nibbles & 15 | scale >> 6 << 4, nibbles >> 4 | offset >> 6 << 4)
}

/// `[d: 2][dmin: 2][scales and offsets: 12][nibbles: 128]`.
fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let (d, dmin) = (f16(block, 0), f16(block, 2));
    for (group, values) in out.chunks_exact_mut(32).enumerate() {
        let (scale, offset) = scale_and_offset(&block[4..16], group);
        let (scale, offset) = (d * f32::from(scale), dmin * f32::from(offset));
        for (i, value) in values.iter_mut().enumerate() {
            *value = scale * f32::from(nibble(&block[16..], group * 32 + i)) - offset;
        }
    }
}

/// `[d: 2][dmin: 2][scales and offsets: 12][fifth bits: 32][nibbles: 128]`.
fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (d, dmin) = (f16(block, 0), f16(block, 2));
    let (fifth, nibbles) = (&block[16..48], &block[48..]);
    for (group, values) in out.chunks_exact_mut(32).enumerate() {
        let (scale, offset) = scale_and_offset(&block[4..16], group);
        let (scale, offset) = (d * f32::from(scale), dmin * f32::from(offset));
        for (i, value) in values.iter_mut().enumerate() {
            let i = group * 32 + i;
            *value = scale * f32::from(nibble(nibbles, i) | one_bit(fifth, i) << 4) - offset;
        }
    }
}

/// `[nibbles: 128][upper two bits: 64][signed scales: 16][d: 2]`, without offsets; 32 is subtracted from the six bits. Byte `j`
/// of each 64 nibble bytes holds the values `j` and `64 + j` of 128.
fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let d = f16(block, 208);
    let (nibbles, upper, scales) = (&block[..128], &block[128..192], &block[192..208]);
    for (group, values) in out.chunks_exact_mut(16).enumerate() {
        let scale = d * f32::from(scales[group].cast_signed());
        for (i, value) in values.iter_mut().enumerate() {
            let i = group * 16 + i;
            let low = nibbles[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
            *value = scale * f32::from(i16::from(low | two_bits(upper, i) << 4) - 32);
        }
    }
}
