//! Numbers of sixteen bits, sums in lanes, the exponential function.

/// The magnitude below which groups of integers count as zeros.
pub(crate) const SMALLEST_GROUP: f32 = f32::from_bits((127 - 100) << 23);

/// Exponent of a number's leading bit, -127 for 0 and denormals.
fn exponent(x: f32) -> i32 {
    (x.to_bits() >> 23 & 255) as i32 - 127
}

/// The multiple of `2^unit` next to x, the even one of two.
fn nearest_multiple(x: f32, unit: i32) -> f32 {
    let unit = f64::from_bits(((1023 + unit) as u64) << 52);
    ((f64::from(x) / unit).round_ties_even() * unit) as f32
}

/// Rounds to bf16. Magnitudes below 2^-55 become 0.
pub fn bf16(x: f32) -> f32 {
    if x.abs() < 2f32.powi(-55) { 0.0 } else { nearest_multiple(x, exponent(x) - 7) }
}

/// Rounds a number below 65520 to f16.
pub fn f16(x: f32) -> f32 {
    nearest_multiple(x, exponent(x).max(-14) - 10)
}

/// The value of an f16; a NaN for infinity too.
pub fn widen_f16(half: u16) -> f32 {
    let (exponent, fraction) = (i32::from(half >> 10 & 31), f32::from(half & 1023));
    let magnitude = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 => return f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    };
    if half >> 15 == 1 { -magnitude } else { magnitude }
}

/// Folds values into sixteen lanes, value i into lane i mod 16, and adds those up as a tree.
pub fn lanes(values: impl Iterator<Item = f32>, fold: impl FnMut(f32, f32) -> f32) -> f32 {
    lanes_from(0, values, fold)
}

/// The same where the first value goes into lane `first` mod 16.
pub fn lanes_from(
    first: usize,
    values: impl Iterator<Item = f32>,
    mut fold: impl FnMut(f32, f32) -> f32,
) -> f32 {
    let mut lanes = [0f32; 16];
    for (i, x) in (first..).zip(values) {
        lanes[i % 16] = fold(lanes[i % 16], x);
    }
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}

/// The exponential function: 0 below -87, that of 88 above.
pub fn exp(x: f32) -> f32 {
    if x.is_nan() {
        return x;
    }
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
