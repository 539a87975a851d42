//! Activations: GELU (exact, and in its tanh form, `gelu_new`), SiLU, tanh and ReLU, after a linear layer or as gates.
//!
//! `gelu_new(x) = 0.5 x (1 + tanh u) = x / (1 + exp(-2u))`, `u = sqrt(2/pi) (x + 0.044715 x^3)`; `silu(x) = x / (1 + exp(-x))`:
//! the second forms have no cancellation. True divisions, exp of [`super::exp`].
//!
//! `gelu(x) = x Phi(x) = max(x, 0) - |x| Phi(-|x|)` (Hendrycks and Gimpel 2016). `ln(2 Phi(-m)) + m^2 / 2` is smooth in m; here it is a
//! polynomial P of degree 10, fitted to it for m up to 5.5 (error 2e-7) and constant beyond, where Phi(-m) is below 2e-8. For `m = |x|`:
//! `e = exp(fma(x^2, -1/2, P(min(m, 5.5))))`, `fma(-m, 1/2 e, max(x, 0))`, without a division. The error is at most 2.4e-7, and 7.3e-8
//! times |x| where |x| is above 1. An infinite x gives NaN.
//!
//! Clamped SwiGLU (gpt-oss), with `g = min(gate, limit)` and `u = max(min(up, limit), -limit)`: `(g / (exp(-(alpha * g)) + 1)) * (u + 1)`,
//! one rounding for each operation. A NaN stays one.

use redline_simd::{Isa, Kernel, LANES};

use super::exp::exp;
use super::softcap::soft_capped;
use crate::threads::Disjoint;
use crate::{Exec, Rows, RowsMut};

/// An element-wise function after a linear layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActivationFunction {
    /// Nothing.
    #[default]
    None,
    /// GELU in its tanh form (`gelu_new`, `gelu_pytorch_tanh`).
    GeluNew,
    /// `x / (1 + exp(-x))` (SiLU, swish).
    Silu,
    /// GELU with the distribution function of the normal distribution (`gelu`).
    Gelu,
    /// The hyperbolic tangent.
    Tanh,
    /// `x`, or +0 if that is negative (ReLU).
    Relu,
}

/// What becomes of a gate and of the values beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gating {
    /// `function(gate) * up`
    Function(ActivationFunction),
    /// Clamped SwiGLU: `g / (1 + exp(-alpha g)) * (u + 1)`, where `g` is the gate, at most `limit`, and `u` is `up` between `-limit` and
    /// `limit`.
    Clamped {
        /// Factor on the gate in the sigmoid.
        alpha: f32,
        /// Positive.
        limit: f32,
    },
}

#[inline(always)]
pub(crate) fn apply<S: Isa>(s: S, activation: ActivationFunction, x: S::F) -> S::F {
    match activation {
        ActivationFunction::None => x,
        ActivationFunction::GeluNew => gelu_new(s, x),
        ActivationFunction::Silu => silu(s, x),
        ActivationFunction::Gelu => gelu(s, x),
        ActivationFunction::Tanh => soft_capped(s, x, s.splat(1.0)),
        ActivationFunction::Relu => relu(s, x),
    }
}

/// -2 sqrt(2/pi)
const GELU_SCALE: f32 = -1.595_769;

#[inline(always)]
fn gelu_new<S: Isa>(s: S, x: S::F) -> S::F {
    let square = s.mul(x, x);
    let inner = s.fma(s.mul(square, x), s.splat(0.044_715), x);
    let e = exp(s, s.mul(inner, s.splat(GELU_SCALE)));
    s.div(x, s.add(e, s.splat(1.0)))
}

#[inline(always)]
fn silu<S: Isa>(s: S, x: S::F) -> S::F {
    s.div(x, s.add(exp(s, s.neg(x)), s.splat(1.0)))
}

/// A NaN stays one.
#[inline(always)]
fn relu<S: Isa>(s: S, x: S::F) -> S::F {
    let zero = s.splat(0.0);
    s.select_lt(x, zero, zero, x)
}

/// The magnitude up to which P is fitted.
const FITTED: f32 = 5.5;
/// P, from the power 10 to the power 0.
const LN_TAIL: [f32; 11] = [
    -1.245_006_2e-8,
    3.951_477_4e-7,
    -5.375_522e-6,
    3.952_381_3e-5,
    -1.456_343_9e-4,
    -1.039_827_55e-4,
    4.947_283e-3,
    -3.644_189e-2,
    1.817_233e-1,
    -7.978_881_6e-1,
    1.271_995_7e-8,
];

#[inline(always)]
fn gelu<S: Isa>(s: S, x: S::F) -> S::F {
    let (zero, most) = (s.splat(0.0), s.splat(FITTED));
    let magnitude = s.select_lt(x, zero, s.neg(x), x);
    let near = s.select_lt(magnitude, most, magnitude, most);
    let mut p = s.splat(LN_TAIL[0]);
    for coefficient in &LN_TAIL[1..] {
        p = s.fma(p, near, s.splat(*coefficient));
    }
    let e = exp(s, s.fma(s.mul(x, x), s.splat(-0.5), p));
    s.fma(s.neg(magnitude), s.mul(s.splat(0.5), e), relu(s, x))
}

/// `out[r][i] = function(x[r][i]) * x[r][width + i]`, or what `gating` says, where `x` holds gate and up side by side, `[rows, 2 * width]`.
pub fn gate(exec: Exec<'_>, gating: Gating, x: Rows<'_>, out: &mut RowsMut<'_>) {
    let (width, stride) = (out.width, out.stride);
    assert!(x.width == 2 * width && x.rows == out.rows, "gate and up of {width} values, got {}", x.width);
    let to = Disjoint::new(out.data);
    exec.team.split(x.rows, 1, 4, |rows| {
        for r in rows {
            let (gate, up) = x.row(r).split_at(width);
            // SAFETY: each row is written by the one member that owns it.
            let out = unsafe { std::slice::from_raw_parts_mut(to.get().add(r * stride), width) };
            exec.simd.run(Gate { gating, gate, up, out });
        }
    });
}

struct Gate<'a> {
    gating: Gating,
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Gate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        // Chosen once for a row, not for every vector.
        let function = match self.gating {
            Gating::Function(function) => function,
            Gating::Clamped { alpha, limit } => {
                return self.with(s, |gate, up| clamped(s, (alpha, limit), gate, up));
            }
        };
        match function {
            ActivationFunction::None => self.with(s, |gate, up| s.mul(gate, up)),
            ActivationFunction::GeluNew => self.with(s, |gate, up| s.mul(gelu_new(s, gate), up)),
            ActivationFunction::Silu => self.with(s, |gate, up| s.mul(silu(s, gate), up)),
            ActivationFunction::Gelu => self.with(s, |gate, up| s.mul(gelu(s, gate), up)),
            ActivationFunction::Tanh => self.with(s, |gate, up| s.mul(apply(s, function, gate), up)),
            ActivationFunction::Relu => self.with(s, |gate, up| s.mul(relu(s, gate), up)),
        }
    }
}

#[inline(always)]
fn clamped<S: Isa>(s: S, (alpha, limit): (f32, f32), gate: S::F, up: S::F) -> S::F {
    let (high, low) = (s.splat(limit), s.splat(-limit));
    let gate = s.select_lt(high, gate, high, gate);
    let up = s.select_lt(high, up, high, up);
    let up = s.select_lt(up, low, low, up);
    let e = exp(s, s.neg(s.mul(gate, s.splat(alpha))));
    s.mul(s.div(gate, s.add(e, s.splat(1.0))), s.add(up, s.splat(1.0)))
}

impl Gate<'_> {
    #[inline(always)]
    fn with<S: Isa>(self, s: S, values: impl Fn(S::F, S::F) -> S::F) {
        for at in (0..self.out.len()).step_by(LANES) {
            let n = (self.out.len() - at).min(LANES);
            // SAFETY: gate, up and out have the same length; `n` lanes remain from `at`.
            unsafe {
                let gate = s.load_partial(self.gate.as_ptr().add(at), n);
                let up = s.load_partial(self.up.as_ptr().add(at), n);
                s.store_partial(self.out.as_mut_ptr().add(at), values(gate, up), n);
            }
        }
    }
}
