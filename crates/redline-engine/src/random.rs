//! Random numbers as a pure function of seed and counter. There is no shared stream, so nothing depends on what else runs.

/// A number in [0, 1) for a seed and a counter (SplitMix64's finaliser over both).
pub(crate) fn uniform(seed: u64, counter: u64) -> f64 {
    let mix = |z: u64| {
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let z = mix(mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ counter);
    (mix(z.wrapping_add(0x9e37_79b9_7f4a_7c15)) >> 11) as f64 / (1u64 << 53) as f64
}
