//! The values of every type equal those of the package `gguf`, bit by bit, in 20,000 random blocks each.
//!
//! The blocks are made here and in `make.py` by one generator. The first 4,096 have chosen scales, every pair of sixteen:
//! zeros, subnormal numbers, infinities and NaNs among them. All NaNs count as equal; everything else, the sign of zeros
//! included, must have the same bits.

use redline_weights::GgufType;

use super::{GAMMA, bits, digest, mix};

const EXPECTED: &str = include_str!("blocks.txt");
const SCALES: [u16; 16] = [
    0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c00, 0xbc00, 0x2e66, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01,
    0xfe00, 0x7f80, 0xffff,
];
const CHOSEN: usize = 4096;
const BLOCKS: usize = 20_000;

/// The places of 16-bit scales in a block.
fn scales(name: &str) -> &'static [usize] {
    match name {
        "F32" => &[2],
        "Q4_0" | "Q5_0" | "Q8_0" | "IQ4_NL" | "IQ4_XS" => &[0],
        "Q4_1" | "Q5_1" | "Q4_K" | "Q5_K" => &[0, 2],
        "Q2_K" => &[80, 82],
        "Q3_K" => &[108],
        "Q6_K" => &[208],
        _ => &[],
    }
}

pub(super) fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    let words = (1..=count.div_ceil(8) as u64).map(|nth| mix(seed.wrapping_add(nth.wrapping_mul(GAMMA))));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(count);
    bytes
}

fn blocks(ggml_type: GgufType) -> Vec<u8> {
    let size = ggml_type.block_bytes();
    if size == 2 {
        return (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    }
    let mut blocks = random_bytes(ggml_type.number().into(), BLOCKS * size);
    for (nth, block) in blocks.chunks_exact_mut(size).take(CHOSEN).enumerate() {
        for (&place, scale) in scales(ggml_type.name()).iter().zip([nth % 16, nth / 16 % 16]) {
            block[place..place + 2].copy_from_slice(&SCALES[scale].to_le_bytes());
        }
        if ggml_type == GgufType::Mxfp4 {
            block[0] = nth as u8;
        }
    }
    blocks
}

#[test]
fn values_equal_those_of_the_reference() {
    let expected: Vec<Vec<&str>> = EXPECTED.lines().map(|line| line.split(' ').collect()).collect();
    let mut names: Vec<_> = GgufType::all().filter(|t| t.is_read()).map(GgufType::name).collect();
    names.sort_unstable();
    let mut listed: Vec<_> = expected.iter().map(|line| line[0]).collect();
    listed.sort_unstable();
    assert_eq!(names, listed);
    for line in expected {
        let ggml_type = GgufType::all().find(|t| t.name() == line[0]).unwrap();
        let blocks = blocks(ggml_type);
        let mut values = vec![0.0; blocks.len() / ggml_type.block_bytes() * ggml_type.block_values()];
        assert!(ggml_type.decode(&blocks, &mut values));
        let some = &values[(CHOSEN + 2) * ggml_type.block_values()..][..8];
        let some: Vec<_> = some.iter().map(|&value| format!("{:08x}", bits(value))).collect();
        assert_eq!(some, line[2..], "{ggml_type}");
        assert_eq!(format!("{:016x}", digest(&values)), line[1], "{ggml_type}");
        // Infinite scales, or values beyond the range of f32.
        assert!(values.iter().any(|value| !value.is_finite()), "{ggml_type}");
    }
}
