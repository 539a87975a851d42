//! Activations and gates, norms, rotations.

use crate::number::{exp, lanes};

/// `x / (1 + exp(-x))`
pub fn silu(x: f32) -> f32 {
    x / (exp(-x) + 1.0)
}

/// `1 / (1 + exp(-x))`
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (exp(-x) + 1.0)
}

/// GELU in its tanh form.
pub fn gelu_new(x: f32) -> f32 {
    let inner = (x * x * x).mul_add(0.044_715, x);
    x / (exp(inner * -1.595_769) + 1.0)
}

/// GELU, with a polynomial for the fourth root of the tail of the normal distribution.
pub fn gelu(x: f32) -> f32 {
    let t = if x.abs() < 6.25 { -x.abs() } else { -6.25 };
    let q = [
        1.345_433_3e-1f32,
        5.309_096e-3,
        -8.887_811e-3,
        6.639_672e-4,
        4.863_382_5e-4,
        -7.940_546_5e-5,
        -3.712_845_5e-5,
        -2.465_718_4e-6,
        2.859_324e-7,
        3.104_799_6e-8,
    ];
    let q = q.into_iter().rev().fold(0f32, |sum, c| sum.mul_add(t, c));
    let root = (6.25 + t) * q;
    (-x.abs()).mul_add((root * root) * (root * root), relu(x))
}

/// `log(1 + exp(x))`
pub fn softplus(x: f32) -> f32 {
    relu(x) + libm::log1pf(exp(-x.abs()))
}

/// The hyperbolic tangent; +0 for -0.
pub fn tanh(x: f32) -> f32 {
    let e = exp(-2.0 * x.abs());
    let t = (1.0 - e) / (1.0 + e);
    if x < 0.0 { -t } else { t }
}

/// `x`, or 0 if that is negative.
pub fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// The square of [`relu`].
pub fn squared_relu(x: f32) -> f32 {
    relu(x) * relu(x)
}

/// Clamped SwiGLU. A NaN stays one.
pub fn clamped_swiglu(gate: f32, up: f32, alpha: f32, limit: f32) -> f32 {
    let at_most = |x: f32| if limit < x { limit } else { x };
    let (gate, up) = (at_most(gate), at_most(up));
    let up = if up < -limit { -limit } else { up };
    gate / (exp(-(gate * alpha)) + 1.0) * (up + 1.0)
}

/// `cap * tanh(x / cap)`
pub fn soft_capped(x: f32, cap: f32) -> f32 {
    tanh(x / cap) * cap
}

/// RMSNorm.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let sum = lanes(x.iter().copied(), |acc, x| x.mul_add(x, acc));
    let r = 1.0 / (sum / x.len() as f32 + eps).sqrt();
    x.iter().zip(weight).map(|(x, w)| (x * r) * w).collect()
}

/// LayerNorm.
pub fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32) -> Vec<f32> {
    let mean = lanes(x.iter().copied(), |acc, x| acc + x) / x.len() as f32;
    let squares = lanes(x.iter().map(|x| x - mean), |acc, d| d.mul_add(d, acc));
    let r = 1.0 / (squares / x.len() as f32 + eps).sqrt();
    x.iter().zip(weight.iter().zip(bias)).map(|(x, (w, b))| ((x - mean) * r).mul_add(*w, *b)).collect()
}

/// Rotates a head in place: the pairs of dimensions i and `i + inverse_frequencies.len()`, or of neighbours 2i and 2i + 1.
pub fn rotate(
    head: &mut [f32],
    position: u32,
    inverse_frequencies: &[f64],
    factor: f64,
    are_neighbours: bool,
) {
    let half = inverse_frequencies.len();
    for (i, frequency) in inverse_frequencies.iter().enumerate() {
        let angle = f64::from(position) * frequency;
        let (sin, cos) = ((libm::sin(angle) * factor) as f32, (libm::cos(angle) * factor) as f32);
        let (first, second) = if are_neighbours { (2 * i, 2 * i + 1) } else { (i, i + half) };
        let (x0, x1) = (head[first], head[second]);
        head[first] = x0.mul_add(cos, -(x1 * sin));
        head[second] = x1.mul_add(cos, x0 * sin);
    }
}
