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

/// Sum in 16 lanes, ascending, then the tree.
pub(crate) fn lanes(values: impl Iterator<Item = f32>, mut fold: impl FnMut(f32, f32) -> f32) -> f32 {
    let mut lanes = [0f32; 16];
    for (i, x) in values.enumerate() {
        lanes[i % 16] = fold(lanes[i % 16], x);
    }
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}

/// The exponential function in its documented order.
pub(crate) fn exp(x: f32) -> f32 {
    if x < -87.0 {
        return 0.0;
    }
    let x = x.min(88.0);
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    let r = (-n).mul_add(-2.121_944_4e-4, (-n).mul_add(0.693_359_4, x));
    let coefficients = [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1];
    let p = coefficients.iter().fold(1.987_569_1e-4_f32, |p, c| p.mul_add(r, *c));
    (p.mul_add(r * r, r) + 1.0) * f32::from_bits(((n as i32 + 127) as u32) << 23)
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

/// Rounds to bf16 as the format does, flushing below 2^-55.
pub(crate) fn bf16(x: f32) -> f32 {
    redline_kernels::format::bf16::widen(redline_kernels::format::bf16::round(x))
}

/// The f32 of the same value (IEEE binary16), from its definition.
pub(crate) fn widen_f16(half: u16) -> f32 {
    let (exponent, fraction) = (i32::from(half >> 10 & 31), f32::from(half & 1023));
    let magnitude = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 => return f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    };
    if half >> 15 == 1 { -magnitude } else { magnitude }
}

/// Rounds to f16 and back, by its definition.
pub(crate) fn f16(x: f32) -> f32 {
    let exponent = (x.abs().to_bits() >> 23) as i32 - 127;
    let unit = 2f64.powi(exponent.max(-14) - 10);
    ((f64::from(x) / unit).round_ties_even() * unit) as f32
}
