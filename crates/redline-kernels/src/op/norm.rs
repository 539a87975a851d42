//! RMSNorm, LayerNorm and division by the length.
//!
//! Sums run in 16 lanes (lane = index mod 16, ascending), then the tree +8, +4, +2, +1; tails are padded with +0.
//! RMSNorm: `r = 1 / sqrt(sum(x^2) / n + eps)`; `(x * r) * w`. LayerNorm: mean first, then centred squares;
//! `fma((x - mean) * r, w, b)`. By the length: `r = 1 / sqrt(sum(x^2) + eps)`; `(x * r) * factor`. One row is one thread's work.

use redline_simd::{Isa, Kernel, LANES};

use crate::threads::Disjoint;
use crate::{Exec, Rows, RowsMut};

/// RMSNorm (Zhang and Sennrich 2019). `weight` has `x.width` values.
pub fn rms_norm(exec: Exec<'_>, x: Rows<'_>, weight: &[f32], eps: f32, out: &mut RowsMut<'_>) {
    assert!(x.width == weight.len() && x.width == out.width && x.rows == out.rows, "same shape");
    let (width, stride) = (out.width, out.stride);
    let to = Disjoint::new(out.data);
    exec.team.split(x.rows, 1, 8, |rows| {
        for r in rows {
            let x = x.row(r);
            // SAFETY: each row is written by the one member that owns it.
            let out = unsafe { to.get().add(r * stride) };
            exec.simd.run(Rms { x: x.as_ptr(), weight, eps, out, width });
        }
    });
}

/// RMSNorm of each head of a row separately, in place: `x` is `[rows, heads * head_dim]`, `weight` `[head_dim]`.
pub fn rms_norm_heads(
    exec: Exec<'_>,
    x: &mut RowsMut<'_>,
    at: usize,
    heads: usize,
    weight: &[f32],
    eps: f32,
) {
    let (width, stride) = (weight.len(), x.stride);
    assert!(at + heads * width <= x.width, "{heads} heads of {width} at {at} in {}", x.width);
    let to = Disjoint::new(x.data);
    exec.team.split(x.rows, 1, 8, |rows| {
        for r in rows {
            for head in 0..heads {
                // SAFETY: each row is written by the one member that owns it; the head lies within the row.
                let out = unsafe { to.get().add(r * stride + at + head * width) };
                exec.simd.run(Rms { x: out, weight, eps, out, width });
            }
        }
    });
}

/// Divides each head of a row by its length, in place, and multiplies it by `factor`: the `heads` heads of `width` values from value `at`
/// on.
pub fn l2_norm_heads(
    exec: Exec<'_>,
    x: &mut RowsMut<'_>,
    (at, heads, width): (usize, usize, usize),
    eps: f32,
    factor: f32,
) {
    let stride = x.stride;
    assert!(at + heads * width <= x.width, "{heads} heads of {width} at {at} in {}", x.width);
    let to = Disjoint::new(x.data);
    exec.team.split(x.rows, 1, 8, |rows| {
        for r in rows {
            for head in 0..heads {
                // SAFETY: each row is written by the one member that owns it; the head lies within the row.
                let x = unsafe { to.get().add(r * stride + at + head * width) };
                exec.simd.run(L2 { x, width, eps, factor });
            }
        }
    });
}

struct L2 {
    x: *mut f32,
    width: usize,
    eps: f32,
    factor: f32,
}

impl Kernel for L2 {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let mut squares = s.splat(0.0);
        for at in (0..self.width).step_by(LANES) {
            // SAFETY: as many values remain from `at`.
            let x = unsafe { s.load_partial(self.x.add(at), (self.width - at).min(LANES)) };
            squares = s.fma(x, x, squares);
        }
        let (r, factor) = (s.splat(1.0 / (s.reduce_add(squares) + self.eps).sqrt()), s.splat(self.factor));
        for at in (0..self.width).step_by(LANES) {
            let n = (self.width - at).min(LANES);
            // SAFETY: as above.
            unsafe {
                let x = self.x.add(at);
                s.store_partial(x, s.mul(s.mul(s.load_partial(x, n), r), factor), n);
            }
        }
    }
}

/// LayerNorm (Ba, Kiros and Hinton 2016). `weight` and `bias` have `x.width` values.
pub fn layer_norm(
    exec: Exec<'_>,
    x: Rows<'_>,
    weight: &[f32],
    bias: &[f32],
    eps: f32,
    out: &mut RowsMut<'_>,
) {
    assert!(x.width == weight.len() && x.width == bias.len(), "same width");
    assert!(x.width == out.width && x.rows == out.rows, "same shape");
    let (width, stride) = (out.width, out.stride);
    let to = Disjoint::new(out.data);
    exec.team.split(x.rows, 1, 8, |rows| {
        for r in rows {
            let x = x.row(r).as_ptr();
            // SAFETY: each row is written by the one member that owns it.
            let out = unsafe { to.get().add(r * stride) };
            exec.simd.run(Layer { x, weight, bias, eps, out, width });
        }
    });
}

/// [`layer_norm`] of each row, in place.
pub fn layer_norm_in_place(exec: Exec<'_>, x: &mut RowsMut<'_>, weight: &[f32], bias: &[f32], eps: f32) {
    assert!(x.width == weight.len() && x.width == bias.len(), "same width");
    let (width, stride) = (x.width, x.stride);
    let to = Disjoint::new(x.data);
    exec.team.split(x.rows, 1, 8, |rows| {
        for r in rows {
            // SAFETY: each row is written by the one member that owns it.
            let out = unsafe { to.get().add(r * stride) };
            exec.simd.run(Layer { x: out, weight, bias, eps, out, width });
        }
    });
}

/// `out` may be `x`.
struct Rms<'a> {
    x: *const f32,
    weight: &'a [f32],
    eps: f32,
    out: *mut f32,
    width: usize,
}

impl Kernel for Rms<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let mut squares = s.splat(0.0);
        for at in (0..self.width).step_by(LANES) {
            let n = (self.width - at).min(LANES);
            // SAFETY: `n` values remain from `at`.
            let x = unsafe { s.load_partial(self.x.add(at), n) };
            squares = s.fma(x, x, squares);
        }
        let r = s.splat(1.0 / (s.reduce_add(squares) / self.width as f32 + self.eps).sqrt());
        for at in (0..self.width).step_by(LANES) {
            let n = (self.width - at).min(LANES);
            // SAFETY: as above; input, weight and output have the same width.
            unsafe {
                let x = s.load_partial(self.x.add(at), n);
                let w = s.load_partial(self.weight.as_ptr().add(at), n);
                s.store_partial(self.out.add(at), s.mul(s.mul(x, r), w), n);
            }
        }
    }
}

/// `out` may be `x`.
struct Layer<'a> {
    x: *const f32,
    weight: &'a [f32],
    bias: &'a [f32],
    eps: f32,
    out: *mut f32,
    width: usize,
}

impl Kernel for Layer<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let width = self.width;
        let mut sum = s.splat(0.0);
        for at in (0..width).step_by(LANES) {
            let n = (width - at).min(LANES);
            // SAFETY: `n` values remain from `at`.
            sum = s.add(sum, unsafe { s.load_partial(self.x.add(at), n) });
        }
        let mean = s.splat(s.reduce_add(sum) / width as f32);
        let mut squares = s.splat(0.0);
        for at in (0..width).step_by(LANES) {
            let n = (width - at).min(LANES);
            // SAFETY: as above. The centred values go through `out`, so that lanes beyond the width stay +0.
            let d = unsafe {
                let x = s.load_partial(self.x.add(at), n);
                s.store_partial(self.out.add(at), s.sub(x, mean), n);
                s.load_partial(self.out.add(at), n)
            };
            squares = s.fma(d, d, squares);
        }
        let r = s.splat(1.0 / (s.reduce_add(squares) / width as f32 + self.eps).sqrt());
        for at in (0..width).step_by(LANES) {
            let n = (width - at).min(LANES);
            // SAFETY: as above; input, weight, bias and output have the same width.
            unsafe {
                let d = s.load_partial(self.out.add(at), n);
                let w = s.load_partial(self.weight.as_ptr().add(at), n);
                let b = s.load_partial(self.bias.as_ptr().add(at), n);
                s.store_partial(self.out.add(at), s.fma(s.mul(d, r), w, b), n);
            }
        }
    }
}
