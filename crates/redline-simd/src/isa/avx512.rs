//! AVX-512 (F, BW, DQ, VL, VNNI), with or without the bf16 dot product: a vector is one register.

use core::arch::x86_64::{
    __m128i, __m512, __m512bh, __m512i, _CMP_LT_OQ, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0,
    _MM_HINT_T1, _mm_prefetch, _mm256_loadu_si256, _mm256_storeu_si256, _mm512_add_epi32, _mm512_add_ps,
    _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cmp_ps_mask,
    _mm512_cvtepi32_epi8, _mm512_cvtepi32_ps, _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_cvtps_epi32,
    _mm512_cvtps_ph, _mm512_div_ps, _mm512_dpbf16_ps, _mm512_dpbusd_epi32, _mm512_dpwssd_epi32,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_blend_ps, _mm512_mask_storeu_ps,
    _mm512_maskz_loadu_ps, _mm512_max_epu32, _mm512_max_ps, _mm512_mul_ps, _mm512_mullo_epi32,
    _mm512_or_si512, _mm512_packus_epi16, _mm512_packus_epi32, _mm512_permute_ps, _mm512_permutexvar_epi32,
    _mm512_reduce_add_epi32, _mm512_reduce_max_epu32, _mm512_reduce_max_ps, _mm512_set1_epi16,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_setr_epi32, _mm512_shuffle_epi8, _mm512_shuffle_f32x4,
    _mm512_slli_epi32, _mm512_sllv_epi32, _mm512_srai_epi32, _mm512_srli_epi16, _mm512_srli_epi32,
    _mm512_srlv_epi32, _mm512_storeu_ps, _mm512_storeu_si512, _mm512_sub_ps, _mm512_xor_ps, _mm512_xor_si512,
};

use super::{Isa, LANES, ODD, largest_ascending};

/// Proof that the machine has AVX-512 F, BW, DQ, VL and VNNI, and with `BF16` a `vdpbf16ps` that passed the self-test.
#[derive(Clone, Copy, Debug)]
pub struct Avx512<const BF16: bool>(());

impl<const BF16: bool> Avx512<BF16> {
    /// # Safety
    /// The machine has the instructions named in the type's documentation.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

// SAFETY: in this block, every intrinsic needs AVX-512 F, BW, DQ, VL or VNNI only (and BF16 if `BF16` is set), which the
// existence of `self` proves; pointers are valid for the stated widths by the contracts of the trait.
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe impl<const BF16: bool> Isa for Avx512<BF16> {
    type F = __m512;
    type W = __m512i;
    const TILE_STRIPS: usize = 4;
    const DOT_ROWS: usize = 16;
    const DOT_CHAINS: usize = 4;
    const DOT_BF16: bool = BF16;
    const DOT_U8_OFFSET: bool = true;
    const SHORT_ROWS: usize = 8;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m512) {
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_partial(self, p: *const f32, n: usize) -> __m512 {
        unsafe { _mm512_maskz_loadu_ps(((1u32 << n) - 1) as u16, p) }
    }
    #[inline(always)]
    unsafe fn store_partial(self, p: *mut f32, v: __m512, n: usize) {
        unsafe { _mm512_mask_storeu_ps(p, ((1u32 << n) - 1) as u16, v) }
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // `maxps(b, a)` is `if b > a { b } else { a }`, NaN included.
        unsafe { _mm512_max_ps(b, a) }
    }
    #[inline(always)]
    fn select_lt(self, a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), y, x) }
    }
    #[inline(always)]
    fn neg(self, a: __m512) -> __m512 {
        unsafe { _mm512_xor_ps(a, _mm512_set1_ps(-0.0)) }
    }
    #[inline(always)]
    fn swap_lanes<const D: usize>(self, v: __m512) -> __m512 {
        unsafe {
            match D {
                1 => _mm512_permute_ps::<0b10_11_00_01>(v),
                2 => _mm512_permute_ps::<0b01_00_11_10>(v),
                4 => _mm512_shuffle_f32x4::<0b10_11_00_01>(v, v),
                _ => _mm512_shuffle_f32x4::<0b01_00_11_10>(v, v),
            }
        }
    }
    #[inline(always)]
    fn scale_by_exponent(self, p: __m512, n: __m512) -> __m512 {
        unsafe {
            let shift = _mm512_slli_epi32::<23>(_mm512_castps_si512(n));
            _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), shift))
        }
    }
    #[inline(always)]
    unsafe fn load_words(self, p: *const u32) -> __m512i {
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    fn splat_word(self, x: u32) -> __m512i {
        unsafe { _mm512_set1_epi32(x as i32) }
    }
    #[inline(always)]
    fn dot_bf16(self, acc: __m512, w: __m512i, x: __m512i) -> __m512 {
        unsafe {
            if BF16 {
                // Adds the odd (high) elements first, then the even ones, each with one rounding.
                return _mm512_dpbf16_ps(
                    acc,
                    core::mem::transmute::<__m512i, __m512bh>(w),
                    core::mem::transmute::<__m512i, __m512bh>(x),
                );
            }
        }
        let ([w_high, w_low], [x_high, x_low]) = (self.split_bf16(w), self.split_bf16(x));
        self.fma(w_low, x_low, self.fma(w_high, x_high, acc))
    }
    #[inline(always)]
    fn split_bf16(self, w: __m512i) -> [__m512; 2] {
        unsafe {
            let high = _mm512_and_si512(w, _mm512_set1_epi32(0xffff_0000_u32 as i32));
            [_mm512_castsi512_ps(high), _mm512_castsi512_ps(_mm512_slli_epi32::<16>(w))]
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> __m512 {
        unsafe {
            let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
        }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: __m512) {
        unsafe { _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
    #[inline(always)]
    fn to_float(self, v: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(v) }
    }
    #[inline(always)]
    fn to_nearest(self, v: __m512) -> __m512i {
        unsafe { _mm512_cvtps_epi32(v) }
    }
    #[inline(always)]
    fn max_magnitude(self, m: __m512i, x: __m512) -> __m512i {
        unsafe {
            let bits = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fff_ffff));
            _mm512_max_epu32(m, bits)
        }
    }
    #[inline(always)]
    fn reduce_max(self, v: __m512) -> f32 {
        let (largest, unordered) =
            unsafe { (_mm512_reduce_max_ps(v), _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v)) };
        // Only for zeros and lanes that are not numbers does the order matter.
        if largest != 0.0 && unordered == 0 { largest } else { largest_ascending(self.to_array(v)) }
    }
    #[inline(always)]
    fn max_word(self, v: __m512i) -> u32 {
        unsafe { _mm512_reduce_max_epu32(v) }
    }
    #[inline(always)]
    fn sum_words(self, v: __m512i) -> i32 {
        unsafe { _mm512_reduce_add_epi32(v) }
    }
    #[inline(always)]
    fn pack_bytes(self, v: __m512i) -> [u32; LANES / 4] {
        unsafe { core::mem::transmute::<__m128i, [u32; LANES / 4]>(_mm512_cvtepi32_epi8(v)) }
    }
    #[inline(always)]
    fn join_bytes(self, v: [__m512i; 4]) -> __m512i {
        unsafe {
            let [a, b, c] = [v[0], v[1], v[2]].map(|v| _mm512_and_si512(v, _mm512_set1_epi32(255)));
            let low = _mm512_or_si512(a, _mm512_slli_epi32::<8>(b));
            let high = _mm512_or_si512(_mm512_slli_epi32::<16>(c), _mm512_slli_epi32::<24>(v[3]));
            _mm512_or_si512(low, high)
        }
    }
    #[inline(always)]
    fn split_bytes(self, v: [__m512i; 4]) -> [__m512i; 2] {
        unsafe {
            // Packing works in each quarter of a register, so groups of four lanes change places.
            let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            let shorts = [_mm512_packus_epi32(v[0], v[1]), _mm512_packus_epi32(v[2], v[3])];
            let low = shorts.map(|v| _mm512_and_si512(v, _mm512_set1_epi16(255)));
            let high = shorts.map(|v| _mm512_srli_epi16::<8>(v));
            [high, low].map(|[a, b]| _mm512_permutexvar_epi32(order, _mm512_packus_epi16(a, b)))
        }
    }
    #[inline(always)]
    unsafe fn dot_u8<const K: usize, const R: usize, const C: usize>(
        self,
        acc: &mut [[__m512i; R]; C],
        w: *const u32,
        x: *const u32,
    ) {
        unsafe {
            for i in 0..K / 4 {
                let w = self.load_words(w.add(i * LANES));
                for r in 0..R {
                    let x = _mm512_set1_epi32(*x.add(i * R + r) as i32);
                    acc[i % C][r] = _mm512_dpbusd_epi32(acc[i % C][r], w, x);
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn dot_u4<const K: usize, const R: usize, const C: usize>(
        self,
        acc: &mut [[__m512i; R]; C],
        w: *const u32,
        x: *const u32,
    ) {
        unsafe {
            let mask = _mm512_set1_epi32(0x0f0f_0f0f);
            for i in 0..K / 8 {
                let w = self.load_words(w.add(i * LANES));
                let low = _mm512_and_si512(w, mask);
                let high = _mm512_and_si512(_mm512_srli_epi16::<4>(w), mask);
                for r in 0..R {
                    let x = _mm512_set1_epi32(*x.add(2 * i * R + r) as i32);
                    acc[2 * i % C][r] = _mm512_dpbusd_epi32(acc[2 * i % C][r], low, x);
                }
                for r in 0..R {
                    let x = _mm512_set1_epi32(*x.add((2 * i + 1) * R + r) as i32);
                    acc[(2 * i + 1) % C][r] = _mm512_dpbusd_epi32(acc[(2 * i + 1) % C][r], high, x);
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn dot_split<const HIGH: usize, const R: usize>(
        self,
        acc: &mut [__m512i; R],
        w: *const u32,
        x: *const u32,
    ) {
        unsafe {
            let low = _mm512_set1_epi32(0x0f0f_0f0f);
            let mask = _mm512_set1_epi32(0x1010_1010 * ((1 << HIGH) - 1));
            let more = self.load_words(w.add(4 / HIGH * LANES));
            for i in 0..8 / HIGH {
                let half = self.load_words(w.add(i / 2 * LANES));
                let half = if i % 2 == 0 { half } else { _mm512_srli_epi16::<4>(half) };
                // The bits of this vector to the high half of each byte; the compiler knows the distances.
                let at = (HIGH * i) as i32;
                let more = if at < 4 {
                    _mm512_sllv_epi32(more, _mm512_set1_epi32(4 - at))
                } else {
                    _mm512_srlv_epi32(more, _mm512_set1_epi32(at - 4))
                };
                let weights = _mm512_or_si512(_mm512_and_si512(half, low), _mm512_and_si512(more, mask));
                for r in 0..R {
                    acc[r] =
                        _mm512_dpbusd_epi32(acc[r], weights, _mm512_set1_epi32(*x.add(i * R + r) as i32));
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn dot_table<const R: usize, const C: usize>(
        self,
        acc: &mut [[__m512i; R]; C],
        w: *const u32,
        x: *const u32,
        table: &[i8; 16],
    ) {
        unsafe {
            let mask = _mm512_set1_epi32(0x0f0f_0f0f);
            let table = _mm512_broadcast_i32x4(table.as_ptr().cast::<__m128i>().read_unaligned());
            let table = _mm512_xor_si512(table, _mm512_set1_epi32(0x8080_8080_u32 as i32));
            for i in 0..4 {
                let w = self.load_words(w.add(i * LANES));
                let low = _mm512_shuffle_epi8(table, _mm512_and_si512(w, mask));
                let high = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16::<4>(w), mask));
                for r in 0..R {
                    let x = _mm512_set1_epi32(*x.add(2 * i * R + r) as i32);
                    acc[2 * i % C][r] = _mm512_dpbusd_epi32(acc[2 * i % C][r], low, x);
                }
                for r in 0..R {
                    let x = _mm512_set1_epi32(*x.add((2 * i + 1) * R + r) as i32);
                    acc[(2 * i + 1) % C][r] = _mm512_dpbusd_epi32(acc[(2 * i + 1) % C][r], high, x);
                }
            }
        }
    }
    #[inline(always)]
    fn mul_words(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_mullo_epi32(a, b) }
    }
    #[inline(always)]
    fn signed_byte<const J: u32>(self, v: __m512i) -> __m512i {
        unsafe {
            let shifted = match J {
                0 => _mm512_slli_epi32::<24>(v),
                1 => _mm512_slli_epi32::<16>(v),
                2 => _mm512_slli_epi32::<8>(v),
                _ => v,
            };
            _mm512_srai_epi32::<24>(shifted)
        }
    }
    #[inline(always)]
    fn add_pairs(self, acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_dpwssd_epi32(acc, a, b) }
    }
    #[inline(always)]
    fn pack_shorts(self, v: __m512i) -> [[u32; 2]; LANES / 4] {
        // The upper and the lower seven bits: each of them is an unsigned byte for `vpdpbusd`.
        let (high, low) = unsafe { (_mm512_srli_epi32::<7>(v), _mm512_and_si512(v, _mm512_set1_epi32(127))) };
        let (high, low) = (self.pack_bytes(high), self.pack_bytes(low));
        std::array::from_fn(|i| [high[i], low[i]])
    }
    #[inline(always)]
    unsafe fn dot_shorts<const R: usize>(
        self,
        acc: &mut [[__m512i; 2]; R],
        w: *const u32,
        x: *const u32,
        stride: usize,
    ) {
        unsafe {
            for i in 0..8 {
                let w = self.load_words(w.add(i * LANES));
                for r in 0..R {
                    let x = x.add(i * stride + 2 * r);
                    acc[r][0] = _mm512_dpbusd_epi32(acc[r][0], _mm512_set1_epi32(*x as i32), w);
                    acc[r][1] = _mm512_dpbusd_epi32(acc[r][1], _mm512_set1_epi32(*x.add(1) as i32), w);
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn dot_shorts_u4<const R: usize, const HIGH: bool>(
        self,
        acc: &mut [[__m512i; 2]; R],
        w: *const u32,
        x: *const u32,
        stride: usize,
    ) {
        unsafe {
            let mask = _mm512_set1_epi32(0x0f0f_0f0f);
            let odd = _mm512_broadcast_i32x4(core::mem::transmute::<[i8; 16], __m128i>(ODD));
            for i in 0..8 {
                let w = self.load_words(w.add(i * LANES));
                let w = if HIGH { _mm512_srli_epi16::<4>(w) } else { w };
                let w = _mm512_shuffle_epi8(odd, _mm512_and_si512(w, mask));
                for r in 0..R {
                    let x = x.add(i * stride + 2 * r);
                    acc[r][0] = _mm512_dpbusd_epi32(acc[r][0], _mm512_set1_epi32(*x as i32), w);
                    acc[r][1] = _mm512_dpbusd_epi32(acc[r][1], _mm512_set1_epi32(*x.add(1) as i32), w);
                }
            }
        }
    }
    #[inline(always)]
    fn sum_shorts(self, acc: [__m512i; 2]) -> __m512 {
        // Each part is below 2^24, so it is exact as f32, and the sum is rounded once.
        self.fma(self.to_float(acc[0]), self.splat(128.0), self.to_float(acc[1]))
    }
    #[inline(always)]
    fn multiply_add_bytes<const N: usize>(self, sums: &mut [__m512i; N], w: __m512i, x: __m512i) {
        for _ in 0..8 {
            for sum in &mut *sums {
                *sum = unsafe { _mm512_dpbusd_epi32(*sum, w, x) };
            }
        }
    }
    #[inline(always)]
    fn add_words(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    fn and_words(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_and_si512(a, b) }
    }
    #[inline(always)]
    fn xor_words(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_xor_si512(a, b) }
    }
    #[inline(always)]
    fn shift_words_4(self, a: __m512i) -> __m512i {
        unsafe { _mm512_srli_epi32::<4>(a) }
    }
    #[inline(always)]
    unsafe fn store_words(self, p: *mut u32, v: __m512i) {
        unsafe { _mm512_storeu_si512(p.cast(), v) }
    }
    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    fn prefetch_far(self, p: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
}
