//! The K types: blocks of 256 integers of 2 to 6 bits. Each 16 or 32 of them have a scale, which is an integer of 4 to 8
//! bits times the 16-bit scale `d` of the block. In `Q2_K`, `Q4_K` and `Q5_K` they have an offset, an integer times `dmin`.
//!
//! A value is `(d * scale) * q - (dmin * offset)`.

use super::{Block, Contents, GgufType};
use crate::gguf::integers::{Integers, Numbers, half};

pub(super) const Q2_K: Block = Block {
    ggml_type: GgufType::Q2K,
    name: "Q2_K",
    number: 10,
    values: 256,
    bytes: 84,
    contents: Contents::Integers(Integers { sub_groups: 16, minima: true, ..Integers::new(q2_k) }),
};

pub(super) const Q3_K: Block = Block {
    ggml_type: GgufType::Q3K,
    name: "Q3_K",
    number: 11,
    values: 256,
    bytes: 110,
    contents: Contents::Integers(Integers { sub_groups: 16, ..Integers::new(q3_k) }),
};

pub(super) const Q4_K: Block = Block {
    ggml_type: GgufType::Q4K,
    name: "Q4_K",
    number: 12,
    values: 256,
    bytes: 144,
    contents: Contents::Integers(Integers { sub_groups: 8, minima: true, ..Integers::new(q4_k) }),
};

pub(super) const Q5_K: Block = Block {
    ggml_type: GgufType::Q5K,
    name: "Q5_K",
    number: 13,
    values: 256,
    bytes: 176,
    contents: Contents::Integers(Integers { sub_groups: 8, minima: true, ..Integers::new(q5_k) }),
};

pub(super) const Q6_K: Block = Block {
    ggml_type: GgufType::Q6K,
    name: "Q6_K",
    number: 14,
    values: 256,
    bytes: 210,
    contents: Contents::Integers(Integers { sub_groups: 16, ..Integers::new(q6_k) }),
};

/// Reads two bits of each value: byte `j` of each 32 bytes holds the values `j`, `32 + j`, `64 + j` and `96 + j` of 128.
fn two_bits(bytes: &[u8], codes: &mut [i8]) {
    for (bytes, codes) in bytes.as_chunks::<32>().0.iter().zip(codes.as_chunks_mut::<128>().0) {
        for (part, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (code, byte) in codes.iter_mut().zip(bytes) {
                *code = (byte >> (2 * part) & 3).cast_signed();
            }
        }
    }
}

/// Reads four bits of each value: byte `j` of each `N` bytes holds the values `j` and `N + j` of `2 N`.
fn nibbles<const N: usize>(bytes: &[u8], codes: &mut [i8]) {
    for (bytes, codes) in bytes.as_chunks::<N>().0.iter().zip(codes.chunks_exact_mut(2 * N)) {
        let (first, second) = codes.split_at_mut(N);
        for ((first, second), byte) in first.iter_mut().zip(second).zip(bytes) {
            *first = (byte & 15).cast_signed();
            *second = (byte >> 4).cast_signed();
        }
    }
}

/// Adds one bit, worth `worth`, to each value: bit `k` of byte `j` of 32 belongs to the value `32 k + j`.
fn add_bit(bytes: &[u8], worth: i8, codes: &mut [i8]) {
    for (k, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (code, byte) in codes.iter_mut().zip(bytes) {
            *code += (byte >> k & 1).cast_signed() * worth;
        }
    }
}

/// Stores the factors `d` and, if it is stored, `dmin`.
fn factors(block: &[u8], d: usize, dmin: usize, to: &mut Numbers<'_>) {
    *to.scale = half(block, d);
    if let Some(minimum) = &mut to.minimum {
        **minimum = half(block, dmin);
    }
}

/// `[scales and offsets: 16][two bits: 64][d: 2][dmin: 2]`; a byte for each 16 values has the scale in its lower half and the
/// offset in its upper half.
fn q2_k(block: &[u8], mut to: Numbers<'_>) {
    factors(block, 80, 82, &mut to);
    for (group, &byte) in block[..16].iter().enumerate() {
        to.sub_scales[group] = (byte & 15).cast_signed();
        to.sub_minima[group] = byte >> 4;
    }
    two_bits(&block[16..80], to.codes);
}

/// `[third bits: 32][two bits: 64][scales: 12][d: 2]`, without offsets; 4 is subtracted from values whose third bit is not
/// set. The scales of 16 values have six bits: four in the nibbles of eight bytes, two in the four bytes after them.
fn q3_k(block: &[u8], to: Numbers<'_>) {
    *to.scale = half(block, 108);
    let (third, pairs, scales) = (&block[..32], &block[32..96], &block[96..108]);
    for (group, scale) in to.sub_scales[..16].iter_mut().enumerate() {
        let low = scales[group % 8] >> (group / 8 * 4) & 15;
        let high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
        *scale = (low | high << 4).cast_signed() - 32;
    }
    two_bits(pairs, to.codes);
    add_bit(third, 4, to.codes);
    to.codes.iter_mut().for_each(|code| *code -= 4);
}

/// Scales and offsets of the values `32 group ..`, six bits each, from twelve bytes: the lower six bits of a byte for groups 0 to 3.
/// The upper two bits of these bytes, and the nibbles of the last four, are those of groups 4 to 7.
fn scales_and_offsets(packed: &[u8], to: &mut Numbers<'_>) {
    for group in 0..4 {
        let (scale, offset, nibbles) = (packed[group], packed[group + 4], packed[group + 8]);
        to.sub_scales[group] = (scale & 63).cast_signed();
        to.sub_minima[group] = offset & 63;
        to.sub_scales[group + 4] = (nibbles & 15 | scale >> 6 << 4).cast_signed();
        to.sub_minima[group + 4] = nibbles >> 4 | offset >> 6 << 4;
    }
}

/// `[d: 2][dmin: 2][scales and offsets: 12][nibbles: 128]`.
fn q4_k(block: &[u8], mut to: Numbers<'_>) {
    factors(block, 0, 2, &mut to);
    scales_and_offsets(&block[4..16], &mut to);
    nibbles::<32>(&block[16..], to.codes);
}

/// `[d: 2][dmin: 2][scales and offsets: 12][fifth bits: 32][nibbles: 128]`.
fn q5_k(block: &[u8], mut to: Numbers<'_>) {
    factors(block, 0, 2, &mut to);
    scales_and_offsets(&block[4..16], &mut to);
    nibbles::<32>(&block[48..], to.codes);
    add_bit(&block[16..48], 16, to.codes);
}

/// `[nibbles: 128][upper two bits: 64][signed scales: 16][d: 2]`, without offsets; 32 is subtracted from the six bits. Byte `j`
/// of each 64 nibble bytes holds the values `j` and `64 + j` of 128.
fn q6_k(block: &[u8], to: Numbers<'_>) {
    *to.scale = half(block, 208);
    for (scale, &byte) in to.sub_scales[..16].iter_mut().zip(&block[192..208]) {
        *scale = byte.cast_signed();
    }
    let mut upper = [0; 256];
    two_bits(&block[128..192], &mut upper);
    nibbles::<64>(&block[..128], to.codes);
    for (code, upper) in to.codes.iter_mut().zip(upper) {
        *code += upper * 16 - 32;
    }
}
