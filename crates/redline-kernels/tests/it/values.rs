//! Test values, and a bench to run kernels on.

use redline_kernels::{Exec, Simd, Team};

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [-1, 1).
    pub(crate) fn value(&mut self) -> f32 {
        (self.next() >> 40) as f32 / 8_388_608.0 - 1.0
    }

    pub(crate) fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.value()).collect()
    }

    /// Values over the whole range of magnitudes, zeros of both signs, denormals and tiny ones among them.
    pub(crate) fn awkward(&mut self, n: usize) -> Vec<f32> {
        (0..n)
            .map(|_| match self.next() % 12 {
                0 => 0.0,
                1 => -0.0,
                2 => self.value() * 2f32.powi(-60),
                3 => self.value() * 2f32.powi(-140),
                4 => self.value() * 2f32.powi(20),
                _ => self.value(),
            })
            .collect()
    }
}

/// Runs `f` on every variant with 1, 2 and 3 threads, and with fewer and more devices than threads.
pub(crate) fn everywhere(mut f: impl FnMut(Exec<'_>, &str)) {
    for (threads, devices) in [(1, 1), (2, 1), (3, 2), (2, 5)] {
        let team = Team::with_devices(threads, devices).unwrap();
        for simd in Simd::variants() {
            f(
                Exec { simd, team: &team },
                &format!("{} with {threads} threads as {devices} devices", simd.name()),
            );
        }
    }
}

/// Same bits; any NaN equals any other.
pub(crate) fn same(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()))
}
