//! GGUF files: valid ones, hostile ones, damaged ones, and the values of every type.

pub(crate) mod attacks;
mod blocks;
mod damage;
mod metadata;
mod parts;
mod read;

use std::path::{Path, PathBuf};

/// The files that `make.py` wrote.
fn made(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/gguf").join(name)
}

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of SplitMix64.
fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// The bits of a value, the same for every NaN: IEEE 754 does not say which NaN an operation returns.
fn bits(value: f32) -> u32 {
    if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() }
}

/// A digest of values and their order.
fn digest(values: &[f32]) -> u64 {
    let words = values.iter().zip(1u64..);
    let words = words.map(|(&value, nth)| mix(u64::from(bits(value)).wrapping_add(nth.wrapping_mul(GAMMA))));
    words.fold(0, u64::wrapping_add)
}
