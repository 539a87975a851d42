//! Activations: GELU (exact, and in its tanh form, `gelu_new`), SiLU, tanh, ReLU and its square, after a linear layer or as gates.
//!
//! `gelu_new(x) = 0.5 x (1 + tanh u) = x / (1 + exp(-2u))`, `u = sqrt(2/pi) (x + 0.044715 x^3)`; `silu(x) = x / (1 + exp(-x))`:
//! the second forms have no cancellation. True divisions, exp of [`super::exp`].
//!
//! `gelu(x) = x Phi(x) = max(x, 0) - |x| Phi(-|x|)` (Hendrycks and Gimpel 2016). The fourth root of Phi(-m) is smooth and falls from 0.84
//! almost linearly; here it is `(6.25 - m) Q(m)`, 0 from 6.25 on, with a polynomial Q of degree 9 that makes the largest error of the
//! result small (2.5e-8 before rounding). For `t = max(-|x|, -6.25)`: `p = (t + 6.25) * Q`, `p4 = (p * p) * (p * p)`, `fma(-|x|, p4,
//! max(x, 0))`: 9 fma for Q, no exp and no division. The error is at most 2.7e-7, and 1.6e-7 times |x| where |x| is
//! above 1. An infinite x gives NaN.
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
    /// The square of [`Self::Relu`] (So et al. 2021).
    SquaredRelu,
}

/// What becomes of a gate and of the values beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gating {
    /// `function(gate) * up`
    Function(ActivationFunction),
    /// SiLU of the gate times a factor: `silu(factor * gate) * up`.
    ScaledSilu(f32),
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
        ActivationFunction::SquaredRelu => {
            let x = relu(s, x);
            s.mul(x, x)
        }
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
pub(super) fn silu<S: Isa>(s: S, x: S::F) -> S::F {
    s.div(x, s.add(exp(s, s.neg(x)), s.splat(1.0)))
}

/// A NaN stays one.
#[inline(always)]
fn relu<S: Isa>(s: S, x: S::F) -> S::F {
    s.max(x, s.splat(0.0))
}

/// The magnitude from which Phi(-m) counts as 0.
const FITTED: f32 = 6.25;
/// Q as a polynomial in -m, from the power 9 to the power 0.
const ROOT_TAIL: [f32; 10] = [
    3.104_799_6e-8,
    2.859_324e-7,
    -2.465_718_4e-6,
    -3.712_845_5e-5,
    -7.940_546_5e-5,
    4.863_382_5e-4,
    6.639_672e-4,
    -8.887_811e-3,
    5.309_096e-3,
    1.345_433_3e-1,
];

#[inline(always)]
fn gelu<S: Isa>(s: S, x: S::F) -> S::F {
    let negative = s.neg(s.max(x, s.neg(x)));
    let t = s.max(negative, s.splat(-FITTED));
    let mut q = s.splat(ROOT_TAIL[0]);
    for coefficient in &ROOT_TAIL[1..] {
        q = s.fma(q, t, s.splat(*coefficient));
    }
    let root = s.mul(s.add(t, s.splat(FITTED)), q);
    let square = s.mul(root, root);
    s.fma(negative, s.mul(square, square), relu(s, x))
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
            Gating::ScaledSilu(factor) => {
                let factor = s.splat(factor);
                return self.with(s, |gate, up| s.mul(silu(s, s.mul(gate, factor)), up));
            }
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
            ActivationFunction::SquaredRelu => self.with(s, |gate, up| s.mul(apply(s, function, gate), up)),
        }
    }
}

/// What the values of a row are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputGate {
    /// `gate / (1 + exp(-gate))`
    Silu,
    /// `1 / (1 + exp(-gate))`
    Sigmoid,
    /// [`ActivationFunction::GeluNew`]
    GeluNew,
}

/// `x[r][i] *= function(gate[r][i])`
pub fn gate_output(exec: Exec<'_>, function: OutputGate, gate: Rows<'_>, x: &mut RowsMut<'_>) {
    let (width, stride) = (x.width, x.stride);
    assert!(gate.width == width && gate.rows == x.rows, "a gate of each of {width} values");
    let to = Disjoint::new(x.data);
    exec.team.split(x.rows, 1, 4, |rows| {
        for r in rows {
            // SAFETY: each row is written by the one member that owns it.
            let x = unsafe { std::slice::from_raw_parts_mut(to.get().add(r * stride), width) };
            exec.simd.run(GateOutput { function, gate: gate.row(r), x });
        }
    });
}

struct GateOutput<'a> {
    function: OutputGate,
    gate: &'a [f32],
    x: &'a mut [f32],
}

impl Kernel for GateOutput<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let one = s.splat(1.0);
        for at in (0..self.x.len()).step_by(LANES) {
            let n = (self.x.len() - at).min(LANES);
            // SAFETY: gates and values have the same length; `n` lanes remain from `at`.
            unsafe {
                let gate = s.load_partial(self.gate.as_ptr().add(at), n);
                let factor = match self.function {
                    OutputGate::Silu => silu(s, gate),
                    OutputGate::Sigmoid => s.div(one, s.add(exp(s, s.neg(gate)), one)),
                    OutputGate::GeluNew => gelu_new(s, gate),
                };
                let x = self.x.as_mut_ptr().add(at);
                s.store_partial(x, s.mul(s.load_partial(x, n), factor), n);
            }
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
