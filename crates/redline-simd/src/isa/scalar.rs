//! The scalar tier: arrays of sixteen lanes, for any machine. Other tiers are compared with it.
//!
//! What takes many instructions per lane is not inlined: a call costs little beside it, while copies in every kernel would take
//! most of the time of a build.

use super::{Isa, LANES};

/// Sixteen lanes in an array. `FMA`: the machine has an instruction for a multiply-add, otherwise it is a call for each lane.
#[derive(Clone, Copy, Debug)]
pub struct Scalar<const FMA: bool>(());

impl<const FMA: bool> Scalar<FMA> {
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

/// As [`Isa::fma`], on machines that have no instruction for it.
#[inline(never)]
fn multiply_add(a: [f32; LANES], b: [f32; LANES], c: [f32; LANES]) -> [f32; LANES] {
    each(|i| a[i].mul_add(b[i], c[i]))
}

#[inline(never)]
fn round_all(values: [f32; LANES]) -> [u32; LANES] {
    values.map(|x| x.round_ties_even() as i32 as u32)
}

#[inline(never)]
fn widen_all(halves: [u16; LANES]) -> [f32; LANES] {
    halves.map(widen_f16)
}

#[inline(never)]
fn narrow_all(values: [f32; LANES]) -> [u16; LANES] {
    values.map(narrow_f16)
}

/// The f32 of the same value (IEEE binary16).
pub fn widen_f16(half: u16) -> f32 {
    let sign = u32::from(half >> 15) << 31;
    let (exponent, fraction) = (u32::from(half >> 10 & 0x1f), u32::from(half & 0x3ff));
    let magnitude = match exponent {
        // Denormals are multiples of 2^-24; the product is exact.
        0 => (fraction as f32 * f32::from_bits((127 - 24) << 23)).to_bits(),
        31 => 0x7f80_0000 | fraction << 13,
        _ => (exponent + 127 - 15) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

/// Rounds to IEEE binary16, to nearest even. A NaN becomes quiet, and keeps its sign and the high bits of its payload.
fn narrow_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let (sign, magnitude) = ((bits >> 16 & 0x8000) as u16, bits & 0x7fff_ffff);
    let rounded = if magnitude > 0x7f80_0000 {
        0x7e00 | (magnitude >> 13 & 0x3ff) as u16
    } else if magnitude >= 0x477f_f000 {
        // 65520 and above are nearer to 2^16 than to the largest f16.
        0x7c00
    } else if magnitude < 0x3880_0000 {
        // Denormals: the last bit of 0.5 + x is worth 2^-24, so this addition rounds as needed.
        ((f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()) as u16
    } else {
        let rebased = magnitude - ((127 - 15) << 23);
        ((rebased + 0xfff + (rebased >> 13 & 1)) >> 13) as u16
    };
    sign | rounded
}

/// Adds four products of unsigned and signed bytes to every lane.
#[inline(always)]
fn dot_bytes(acc: &mut [u32; LANES], w: [u32; LANES], x: u32) {
    let x = x.to_le_bytes().map(|b| i32::from(b as i8));
    for (acc, w) in acc.iter_mut().zip(w) {
        let w = w.to_le_bytes().map(i32::from);
        let sum = w[0] * x[0] + w[1] * x[1] + w[2] * x[2] + w[3] * x[3];
        *acc = acc.wrapping_add(sum as u32);
    }
}

// SAFETY: plain Rust, available everywhere.
unsafe impl<const FMA: bool> Isa for Scalar<FMA> {
    type F = [f32; LANES];
    type W = [u32; LANES];
    const TILE_STRIPS: usize = 1;
    const DOT_ROWS: usize = 2;
    const DOT_CHAINS: usize = 1;
    const DOT_BF16: bool = false;
    const DOT_U8_OFFSET: bool = true;
    const SHORT_ROWS: usize = 4;

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
        if FMA { each(|i| a[i].mul_add(b[i], c[i])) } else { multiply_add(a, b, c) }
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
    fn swap_lanes<const D: usize>(self, v: Self::F) -> Self::F {
        each(|i| v[i ^ D])
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
        let ([w_high, w_low], [x_high, x_low]) = (self.split_bf16(w), self.split_bf16(x));
        self.fma(w_low, x_low, self.fma(w_high, x_high, acc))
    }
    #[inline(always)]
    fn split_bf16(self, w: Self::W) -> [Self::F; 2] {
        [each(|i| f32::from_bits(w[i] & 0xffff_0000)), each(|i| f32::from_bits(w[i] << 16))]
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> Self::F {
        // SAFETY: 32 readable bytes by contract.
        let halves = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
        each(|i| f32::from_bits(u32::from(halves[i]) << 16))
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> Self::F {
        // SAFETY: 32 readable bytes by contract.
        let halves = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
        widen_all(halves)
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: Self::F) {
        // SAFETY: 32 writable bytes by contract.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(narrow_all(v)) }
    }
    #[inline(always)]
    fn to_float(self, v: Self::W) -> Self::F {
        each(|i| v[i] as i32 as f32)
    }
    #[inline(always)]
    fn to_nearest(self, v: Self::F) -> Self::W {
        round_all(v)
    }
    #[inline(always)]
    fn max_magnitude(self, m: Self::W, x: Self::F) -> Self::W {
        let mut out = m;
        for i in 0..LANES {
            out[i] = m[i].max(x[i].to_bits() & 0x7fff_ffff);
        }
        out
    }
    #[inline(always)]
    fn pack_bytes(self, v: Self::W) -> [u32; LANES / 4] {
        let mut out = [0; LANES / 4];
        for (i, lane) in v.iter().enumerate() {
            out[i / 4] |= (lane & 0xff) << (i % 4 * 8);
        }
        out
    }
    #[inline(never)]
    unsafe fn dot_u8<const K: usize, const R: usize, const C: usize>(
        self,
        acc: &mut [[Self::W; R]; C],
        w: *const u32,
        x: *const u32,
    ) {
        for i in 0..K / 4 {
            // SAFETY: vector `i` of those of K and its inputs, by contract.
            let w = unsafe { self.load_words(w.add(i * LANES)) };
            for (r, acc) in acc[0].iter_mut().enumerate() {
                // SAFETY: as above.
                dot_bytes(acc, w, unsafe { *x.add(i * R + r) });
            }
        }
    }
    #[inline(never)]
    unsafe fn dot_u4<const K: usize, const R: usize, const C: usize>(
        self,
        acc: &mut [[Self::W; R]; C],
        w: *const u32,
        x: *const u32,
    ) {
        for i in 0..K / 8 {
            // SAFETY: vector `i` of those of K and its inputs, by contract.
            let w = unsafe { self.load_words(w.add(i * LANES)) };
            let (low, high) = (w.map(|w| w & 0x0f0f_0f0f), w.map(|w| w >> 4 & 0x0f0f_0f0f));
            for (r, acc) in acc[0].iter_mut().enumerate() {
                // SAFETY: as above.
                let (first, second) = unsafe { (*x.add(2 * i * R + r), *x.add((2 * i + 1) * R + r)) };
                dot_bytes(acc, low, first);
                dot_bytes(acc, high, second);
            }
        }
    }
    #[inline(always)]
    unsafe fn dot_split<const HIGH: usize, const R: usize>(
        self,
        acc: &mut [Self::W; R],
        w: *const u32,
        x: *const u32,
    ) {
        // SAFETY: the vectors and inputs of the contract.
        unsafe {
            let more = self.load_words(w.add(4 / HIGH * LANES));
            for i in 0..8 / HIGH {
                let half = self.load_words(w.add(i / 2 * LANES)).map(|w| w >> (i % 2 * 4) & 0x0f0f_0f0f);
                let mut weights = half;
                for (weight, more) in weights.iter_mut().zip(more) {
                    *weight |= (more >> (HIGH * i) & (0x0101_0101 * ((1 << HIGH) - 1))) << 4;
                }
                for (r, acc) in acc.iter_mut().enumerate() {
                    dot_bytes(acc, weights, *x.add(i * R + r));
                }
            }
        }
    }
    #[inline(never)]
    unsafe fn dot_table<const R: usize, const C: usize>(
        self,
        acc: &mut [[Self::W; R]; C],
        w: *const u32,
        x: *const u32,
        table: &[i8; 16],
    ) {
        let entry = |nibble: u8| table[usize::from(nibble & 15)].cast_unsigned() ^ 128;
        for i in 0..4 {
            // SAFETY: vector `i` of 4 and its inputs, by contract.
            let w = unsafe { self.load_words(w.add(i * LANES)) };
            let low = w.map(|w| u32::from_le_bytes(w.to_le_bytes().map(entry)));
            let high = w.map(|w| u32::from_le_bytes(w.to_le_bytes().map(|byte| entry(byte >> 4))));
            for (r, acc) in acc[0].iter_mut().enumerate() {
                // SAFETY: as above.
                let (first, second) = unsafe { (*x.add(2 * i * R + r), *x.add((2 * i + 1) * R + r)) };
                dot_bytes(acc, low, first);
                dot_bytes(acc, high, second);
            }
        }
    }
    #[inline(always)]
    fn mul_words(self, mut a: Self::W, b: Self::W) -> Self::W {
        for i in 0..LANES {
            a[i] = a[i].wrapping_mul(b[i]);
        }
        a
    }
    #[inline(always)]
    fn signed_byte<const J: u32>(self, v: Self::W) -> Self::W {
        v.map(|word| i32::from((word >> (8 * J)) as i8).cast_unsigned())
    }
    #[inline(always)]
    fn add_pairs(self, mut acc: Self::W, a: Self::W, b: Self::W) -> Self::W {
        let halves = |word: u32| [i32::from(word as i16), i32::from((word >> 16) as i16)];
        for i in 0..LANES {
            let ([a0, a1], [b0, b1]) = (halves(a[i]), halves(b[i]));
            acc[i] = acc[i].wrapping_add((a0 * b0 + a1 * b1).cast_unsigned());
        }
        acc
    }
    #[inline(always)]
    fn pack_shorts(self, v: Self::W) -> [[u32; 2]; LANES / 4] {
        std::array::from_fn(|i| [v[4 * i] | v[4 * i + 1] << 16, v[4 * i + 2] | v[4 * i + 3] << 16])
    }
    #[inline(never)]
    unsafe fn dot_shorts<const R: usize>(
        self,
        acc: &mut [[Self::W; 2]; R],
        w: *const u32,
        x: *const u32,
        stride: usize,
    ) {
        for i in 0..8 {
            // SAFETY: vector `i` of 8 and its inputs, by contract.
            let w = unsafe { self.load_words(w.add(i * LANES)) };
            for (r, acc) in acc.iter_mut().enumerate() {
                // SAFETY: as above.
                let x = unsafe { [*x.add(i * stride + 2 * r), *x.add(i * stride + 2 * r + 1)] };
                for lane in 0..LANES {
                    let product = |k: usize| {
                        i32::from(w[lane].to_le_bytes()[k] as i8) * (x[k / 2] >> (k % 2 * 16) & 0xffff) as i32
                    };
                    let sum: i32 = (0..4).map(product).sum();
                    acc[0][lane] = acc[0][lane].wrapping_add(sum as u32);
                }
            }
        }
    }
    #[inline(never)]
    unsafe fn dot_shorts_u4<const R: usize, const HIGH: bool>(
        self,
        acc: &mut [[Self::W; 2]; R],
        w: *const u32,
        x: *const u32,
        stride: usize,
    ) {
        let odd = |byte: u8| (2 * (if HIGH { byte >> 4 } else { byte & 15 }) as i8 - 15) as u8;
        let mut bytes = [[0; LANES]; 8];
        for (i, to) in bytes.iter_mut().enumerate() {
            // SAFETY: vector `i` of 8, by contract.
            let w = unsafe { self.load_words(w.add(i * LANES)) };
            *to = w.map(|w| u32::from_le_bytes(w.to_le_bytes().map(odd)));
        }
        // SAFETY: the array holds the weights; inputs by contract.
        unsafe { self.dot_shorts(acc, bytes.as_ptr().cast(), x, stride) };
    }
    #[inline(always)]
    fn sum_shorts(self, acc: [Self::W; 2]) -> Self::F {
        self.to_float(acc[0])
    }
    #[inline(always)]
    fn multiply_add_bytes<const N: usize>(self, sums: &mut [Self::W; N], w: Self::W, x: Self::W) {
        for _ in 0..8 {
            for sum in &mut *sums {
                dot_bytes(sum, w, std::hint::black_box(x[0]));
            }
        }
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
    fn and_words(self, mut a: Self::W, b: Self::W) -> Self::W {
        for i in 0..LANES {
            a[i] &= b[i];
        }
        a
    }
    #[inline(always)]
    fn xor_words(self, mut a: Self::W, b: Self::W) -> Self::W {
        for i in 0..LANES {
            a[i] ^= b[i];
        }
        a
    }
    #[inline(always)]
    fn shift_words_4(self, mut a: Self::W) -> Self::W {
        for lane in &mut a {
            *lane >>= 4;
        }
        a
    }
    #[inline(always)]
    unsafe fn store_words(self, p: *mut u32, v: Self::W) {
        // SAFETY: 64 writable bytes by contract.
        unsafe { p.cast::<[u32; LANES]>().write_unaligned(v) }
    }
    #[inline(always)]
    fn prefetch(self, _p: *const u8) {}
    #[inline(always)]
    fn prefetch_far(self, _p: *const u8) {}
}
