//! Reproducible pseudo-random numbers.

/// The step of SplitMix64 (Steele, Lea and Flood 2014): its `n`th number is [`mix`] of the seed plus `n` steps.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64.
pub fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
