//! The scalar tier: arrays of sixteen lanes, any machine. It is the reference that other tiers are compared with.

use super::{Isa, LANES};

/// Sixteen lanes in an array.
#[derive(Clone, Copy, Debug)]
pub struct Scalar(());

impl Scalar {
    pub(crate) fn new() -> Self {
        Self(())
    }
}

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> [f32; LANES] {
    let mut out = [0f32; LANES];
    for (i, lane) in out.iter_mut().enumerate() {
        *lane = f(i);
    }
    out
}

// SAFETY: plain Rust, available everywhere.
unsafe impl Isa for Scalar {
    type F = [f32; LANES];
    type W = [u32; LANES];
    const TILE_STRIPS: usize = 1;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::F {
        // SAFETY: 64 readable bytes by contract.
        unsafe { p.cast::<[f32; LANES]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: Self::F) {
        // SAFETY: 64 writable bytes by contract.
        unsafe { p.cast::<[f32; LANES]>().write_unaligned(v) }
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        each(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        each(|i| if a[i] < b[i] { b[i] } else { a[i] })
    }
    #[inline(always)]
    fn select_lt(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F {
        each(|i| if a[i] < b[i] { x[i] } else { y[i] })
    }
    #[inline(always)]
    fn neg(self, a: Self::F) -> Self::F {
        each(|i| -a[i])
    }
    #[inline(always)]
    fn scale_by_exponent(self, p: Self::F, n: Self::F) -> Self::F {
        each(|i| f32::from_bits(p[i].to_bits().wrapping_add(n[i].to_bits() << 23)))
    }
    #[inline(always)]
    unsafe fn load_words(self, p: *const u32) -> Self::W {
        // SAFETY: 64 readable bytes by contract.
        unsafe { p.cast::<[u32; LANES]>().read_unaligned() }
    }
    #[inline(always)]
    fn splat_word(self, x: u32) -> Self::W {
        [x; LANES]
    }
    #[inline(always)]
    fn dot_bf16(self, acc: Self::F, w: Self::W, x: Self::W) -> Self::F {
        let high = |v: u32| f32::from_bits(v & 0xffff_0000);
        let low = |v: u32| f32::from_bits(v << 16);
        let first = each(|i| high(w[i]).mul_add(high(x[i]), acc[i]));
        each(|i| low(w[i]).mul_add(low(x[i]), first[i]))
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> Self::F {
        // SAFETY: 32 readable bytes by contract.
        let halves = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
        each(|i| f32::from_bits(u32::from(halves[i]) << 16))
    }
    #[inline(always)]
    fn add_words(self, a: Self::W, b: Self::W) -> Self::W {
        let mut out = a;
        for i in 0..LANES {
            out[i] = a[i].wrapping_add(b[i]);
        }
        out
    }
    #[inline(always)]
    fn words_to_array(self, v: Self::W) -> [u32; LANES] {
        v
    }
    #[inline(always)]
    fn prefetch(self, _p: *const u8) {}
}
