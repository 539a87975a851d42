//! Random numbers as a pure function of seed and counter. There is no shared stream, so nothing depends on what else runs.

use redline_models::random::{STEP, mix};

/// A number in [0, 1) for a seed and a counter (SplitMix64's finaliser over both).
pub(crate) fn uniform(seed: u64, counter: u64) -> f64 {
    let z = mix(mix(seed.wrapping_add(STEP)) ^ counter);
    (mix(z.wrapping_add(STEP)) >> 11) as f64 / (1u64 << 53) as f64
}
