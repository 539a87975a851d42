//! AVX2 with FMA and F16C, with or without dot products of bytes (AVX-VNNI): a vector is two 256-bit registers.

use core::arch::x86_64::{
    __m128i, __m256, __m256i, _CMP_LT_OQ, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0, _MM_HINT_T1, _mm_and_si128,
    _mm_loadu_si128, _mm_prefetch, _mm_set1_epi8, _mm_shuffle_epi8, _mm_srli_epi16, _mm_storeu_si128,
    _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_add_ps, _mm256_and_si256, _mm256_blendv_ps,
    _mm256_broadcastsi128_si256, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_castsi256_si128,
    _mm256_cmp_ps, _mm256_cvtepi8_epi16, _mm256_cvtepi32_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps,
    _mm256_cvtps_epi32, _mm256_cvtps_ph, _mm256_div_ps, _mm256_dpbusd_avx_epi32, _mm256_fmadd_ps,
    _mm256_hadd_epi32, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16,
    _mm256_max_epu32, _mm256_max_ps, _mm256_mul_ps, _mm256_mullo_epi32, _mm256_or_si256, _mm256_packs_epi16,
    _mm256_packs_epi32, _mm256_permute_ps, _mm256_permute2f128_ps, _mm256_permute4x64_epi64,
    _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_set1_ps,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_sign_epi8, _mm256_slli_epi32, _mm256_sllv_epi32,
    _mm256_srai_epi32, _mm256_srli_epi16, _mm256_srli_epi32, _mm256_srlv_epi32, _mm256_storeu_ps,
    _mm256_storeu_si256, _mm256_sub_ps, _mm256_xor_ps, _mm256_xor_si256,
};

use super::{Isa, LANES, ODD};

/// Proof that the machine has AVX2, FMA and F16C, and with `VNNI` also AVX-VNNI.
#[derive(Clone, Copy, Debug)]
pub struct Avx2<const VNNI: bool>(());

impl<const VNNI: bool> Avx2<VNNI> {
    /// # Safety
    /// The machine has the instructions named in the type's documentation.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// Two halves: lanes 0..8 and 8..16.
#[derive(Clone, Copy, Debug)]
pub struct F(__m256, __m256);
/// Two halves: lanes 0..8 and 8..16.
#[derive(Clone, Copy, Debug)]
pub struct W(__m256i, __m256i);

/// Adds the products of four k, `[16 outputs][4]` signed bytes, with the inputs of `R` rows. Bytes are widened to 16 bits: a register
/// holds four k of four outputs, and `madd` adds k in pairs. So the sums of the two pairs of an output lie side by side.
///
/// # Safety
/// The machine has AVX2; `x` is valid for reading `2 * R` words.
#[inline(always)]
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe fn add_shorts<const R: usize>(acc: &mut [[W; 2]; R], w: [__m128i; 4], x: *const u32) {
    unsafe {
        let w = w.map(|w| _mm256_cvtepi8_epi16(w));
        for r in 0..R {
            let x = _mm256_set1_epi64x(x.add(2 * r).cast::<i64>().read_unaligned());
            let [a, b] = &mut acc[r];
            a.0 = _mm256_add_epi32(a.0, _mm256_madd_epi16(w[0], x));
            a.1 = _mm256_add_epi32(a.1, _mm256_madd_epi16(w[1], x));
            b.0 = _mm256_add_epi32(b.0, _mm256_madd_epi16(w[2], x));
            b.1 = _mm256_add_epi32(b.1, _mm256_madd_epi16(w[3], x));
        }
    }
}

/// Adds the products of four k, `[16 outputs][4]` signed bytes, with the inputs of `R` rows.
///
/// # Safety
/// The machine has AVX2; `x` is valid for reading `R` words.
#[inline(always)]
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe fn add_signed<const R: usize>(acc: &mut [W; R], w: W, x: *const u32) {
    unsafe {
        let ones = _mm256_set1_epi16(1);
        let (m0, m1) = (_mm256_abs_epi8(w.0), _mm256_abs_epi8(w.1));
        for (r, acc) in acc.iter_mut().enumerate() {
            let x = _mm256_set1_epi32(*x.add(r) as i32);
            let low = _mm256_maddubs_epi16(m0, _mm256_sign_epi8(x, w.0));
            let high = _mm256_maddubs_epi16(m1, _mm256_sign_epi8(x, w.1));
            acc.0 = _mm256_add_epi32(acc.0, _mm256_madd_epi16(low, ones));
            acc.1 = _mm256_add_epi32(acc.1, _mm256_madd_epi16(high, ones));
        }
    }
}

/// Adds to each sum four products of the bytes of a lane: unsigned bytes `u`, signed bytes `s`.
///
/// # Safety
/// The machine has AVX-VNNI.
#[inline(always)]
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe fn add_products(sum: &mut W, u: W, s: W) {
    unsafe {
        sum.0 = _mm256_dpbusd_avx_epi32(sum.0, u.0, s.0);
        sum.1 = _mm256_dpbusd_avx_epi32(sum.1, u.1, s.1);
    }
}

/// As [`add_products`] for each of `R` sums, with the four signed bytes of its word of `s` for all lanes.
///
/// # Safety
/// The machine has AVX-VNNI; `s` is valid for reading `R` words, which are at most six.
#[inline(always)]
unsafe fn add_rows<const R: usize>(sums: &mut [W; R], u: W, s: *const u32) {
    // The loop is written out, because each row has another constant.
    macro_rules! rows {
        ($($row:literal)*) => {$(
            if let Some(sum) = sums.get_mut($row) {
                // SAFETY: by contract.
                unsafe { add_row::<{ 4 * $row }>(sum, u, s) };
            }
        )*};
    }
    rows!(0 1 2 3 4 5);
}

/// One sum of [`add_rows`], with the word that begins at byte `AT`. In assembler, because a tile of six rows leaves one register for
/// inputs: the compiler would load several ahead, and move sums to memory for that.
///
/// # Safety
/// The machine has AVX-VNNI; `s` is valid for reading that word.
#[target_feature(enable = "avx2,avxvnni")]
#[inline]
unsafe fn add_row<const AT: usize>(sum: &mut W, u: W, s: *const u32) {
    let W(low, high) = *sum;
    let (low_sum, high_sum);
    // SAFETY: by contract.
    unsafe {
        core::arch::asm!(
            "vpbroadcastd {x}, dword ptr [{s} + {at}]",
            "{{vex}} vpdpbusd {low}, {u_low}, {x}",
            "{{vex}} vpdpbusd {high}, {u_high}, {x}",
            s = in(reg) s,
            at = const AT,
            x = out(ymm_reg) _,
            u_low = in(ymm_reg) u.0,
            u_high = in(ymm_reg) u.1,
            low = inout(ymm_reg) low => low_sum,
            high = inout(ymm_reg) high => high_sum,
            options(nostack, preserves_flags, readonly, pure)
        );
    }
    *sum = W(low_sum, high_sum);
}

/// Adds the products of four k, `[16 outputs][4]` signed bytes, with the inputs of `R` rows, whose upper and lower seven bits are
/// multiplied apart.
///
/// # Safety
/// The machine has AVX-VNNI; `x` is valid for reading `2 * R` words.
#[inline(always)]
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe fn add_parts<const R: usize>(acc: &mut [[W; 2]; R], w: W, x: *const u32) {
    unsafe {
        for r in 0..R {
            let [high, low] = [*x.add(2 * r), *x.add(2 * r + 1)].map(|x| _mm256_set1_epi32(x as i32));
            add_products(&mut acc[r][0], W(high, high), w);
            add_products(&mut acc[r][1], W(low, low), w);
        }
    }
}

// SAFETY: in this block, every intrinsic needs AVX2, FMA or F16C only (and AVX-VNNI if `VNNI` is set), which the existence of
// `self` proves; pointers are valid for the stated widths by the contracts of the trait.
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe impl<const VNNI: bool> Isa for Avx2<VNNI> {
    type F = F;
    type W = W;
    const TILE_STRIPS: usize = 1;
    const DOT_ROWS: usize = if VNNI { 6 } else { 4 };
    const DOT_CHAINS: usize = if VNNI { 4 } else { 1 };
    const DOT_BF16: bool = false;
    const DOT_U8_OFFSET: bool = VNNI;
    const SHORT_ROWS: usize = if VNNI { 3 } else { 2 };

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        let v = unsafe { _mm256_set1_ps(x) };
        F(v, v)
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> F {
        unsafe { F(_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: F) {
        unsafe {
            _mm256_storeu_ps(p, v.0);
            _mm256_storeu_ps(p.add(8), v.1);
        }
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        unsafe { F(_mm256_fmadd_ps(a.0, b.0, c.0), _mm256_fmadd_ps(a.1, b.1, c.1)) }
    }
    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        unsafe { F(_mm256_add_ps(a.0, b.0), _mm256_add_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        unsafe { F(_mm256_sub_ps(a.0, b.0), _mm256_sub_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        unsafe { F(_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        unsafe { F(_mm256_div_ps(a.0, b.0), _mm256_div_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        // `maxps(b, a)` is `if b > a { b } else { a }`, NaN included.
        unsafe { F(_mm256_max_ps(b.0, a.0), _mm256_max_ps(b.1, a.1)) }
    }
    #[inline(always)]
    fn select_lt(self, a: F, b: F, x: F, y: F) -> F {
        unsafe {
            F(
                _mm256_blendv_ps(y.0, x.0, _mm256_cmp_ps::<_CMP_LT_OQ>(a.0, b.0)),
                _mm256_blendv_ps(y.1, x.1, _mm256_cmp_ps::<_CMP_LT_OQ>(a.1, b.1)),
            )
        }
    }
    #[inline(always)]
    fn neg(self, a: F) -> F {
        unsafe {
            let sign = _mm256_set1_ps(-0.0);
            F(_mm256_xor_ps(a.0, sign), _mm256_xor_ps(a.1, sign))
        }
    }
    #[inline(always)]
    fn swap_lanes<const D: usize>(self, v: F) -> F {
        unsafe {
            match D {
                1 => F(_mm256_permute_ps::<0b10_11_00_01>(v.0), _mm256_permute_ps::<0b10_11_00_01>(v.1)),
                2 => F(_mm256_permute_ps::<0b01_00_11_10>(v.0), _mm256_permute_ps::<0b01_00_11_10>(v.1)),
                4 => F(_mm256_permute2f128_ps::<1>(v.0, v.0), _mm256_permute2f128_ps::<1>(v.1, v.1)),
                _ => F(v.1, v.0),
            }
        }
    }
    #[inline(always)]
    fn scale_by_exponent(self, p: F, n: F) -> F {
        #[inline(always)]
        unsafe fn half(p: __m256, n: __m256) -> __m256 {
            unsafe {
                let shift = _mm256_slli_epi32::<23>(_mm256_castps_si256(n));
                _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), shift))
            }
        }
        unsafe { F(half(p.0, n.0), half(p.1, n.1)) }
    }
    #[inline(always)]
    unsafe fn load_words(self, p: *const u32) -> W {
        unsafe { W(_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(8).cast())) }
    }
    #[inline(always)]
    fn splat_word(self, x: u32) -> W {
        let v = unsafe { _mm256_set1_epi32(x as i32) };
        W(v, v)
    }
    #[inline(always)]
    fn dot_bf16(self, acc: F, w: W, x: W) -> F {
        let ([w_high, w_low], [x_high, x_low]) = (self.split_bf16(w), self.split_bf16(x));
        self.fma(w_low, x_low, self.fma(w_high, x_high, acc))
    }
    #[inline(always)]
    fn split_bf16(self, w: W) -> [F; 2] {
        #[inline(always)]
        unsafe fn high(v: __m256i) -> __m256 {
            unsafe { _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(0xffff_0000_u32 as i32))) }
        }
        #[inline(always)]
        unsafe fn low(v: __m256i) -> __m256 {
            unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(v)) }
        }
        unsafe { [F(high(w.0), high(w.1)), F(low(w.0), low(w.1))] }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, p: *const u16) -> F {
        #[inline(always)]
        unsafe fn half(p: *const u16) -> __m256 {
            unsafe {
                let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
            }
        }
        unsafe { F(half(p), half(p.add(8))) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> F {
        unsafe {
            let (low, high) = (_mm_loadu_si128(p.cast()), _mm_loadu_si128(p.add(8).cast()));
            F(_mm256_cvtph_ps(low), _mm256_cvtph_ps(high))
        }
    }
    #[inline(always)]
    unsafe fn store_f16(self, p: *mut u16, v: F) {
        unsafe {
            _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v.0));
            _mm_storeu_si128(p.add(8).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v.1));
        }
    }
    #[inline(always)]
    fn to_float(self, v: W) -> F {
        unsafe { F(_mm256_cvtepi32_ps(v.0), _mm256_cvtepi32_ps(v.1)) }
    }
    #[inline(always)]
    fn to_nearest(self, v: F) -> W {
        unsafe { W(_mm256_cvtps_epi32(v.0), _mm256_cvtps_epi32(v.1)) }
    }
    #[inline(always)]
    fn max_magnitude(self, m: W, x: F) -> W {
        #[inline(always)]
        unsafe fn half(m: __m256i, x: __m256) -> __m256i {
            unsafe {
                let bits = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fff_ffff));
                _mm256_max_epu32(m, bits)
            }
        }
        unsafe { W(half(m.0, x.0), half(m.1, x.1)) }
    }
    #[inline(always)]
    fn pack_bytes(self, v: W) -> [u32; LANES / 4] {
        unsafe {
            // Both instructions work within halves of 128 bits: words 0..4, 8..12 | 4..8, 12..16.
            let shorts = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(v.0, v.1));
            let bytes = _mm256_packs_epi16(shorts, shorts);
            let packed = _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b11_01_10_00>(bytes));
            core::mem::transmute::<__m128i, [u32; LANES / 4]>(packed)
        }
    }
    #[inline(always)]
    unsafe fn dot_u8<const K: usize, const R: usize, const C: usize>(
        self,
        acc: &mut [[W; R]; C],
        w: *const u32,
        x: *const u32,
    ) {
        if VNNI {
            for i in 0..K / 4 {
                let w = unsafe { self.load_words(w.add(i * LANES)) };
                unsafe { add_rows(&mut acc[i % C], w, x.add(i * R)) };
            }
            return;
        }
        // `maddubs` adds two products in 16 bits: with the sign moved to the input, both factors are at most 128 and
        // 127, and 2 * 128 * 127 = 32512 fits. Weights as stored, up to 255, would saturate.
        unsafe {
            let offset = _mm256_set1_epi8(-128);
            for i in 0..K / 4 {
                let w = self.load_words(w.add(i * LANES));
                let w = W(_mm256_xor_si256(w.0, offset), _mm256_xor_si256(w.1, offset));
                add_signed(&mut acc[0], w, x.add(i * R));
            }
        }
    }
    #[inline(always)]
    unsafe fn dot_u4<const K: usize, const R: usize, const C: usize>(
        self,
        acc: &mut [[W; R]; C],
        w: *const u32,
        x: *const u32,
    ) {
        if VNNI {
            let mask = self.splat_word(0x0f0f_0f0f);
            for i in 0..K / 8 {
                for (high, i) in [(false, 2 * i), (true, 2 * i + 1)] {
                    let w = unsafe { self.load_words(w.add(i / 2 * LANES)) };
                    let w = self.and_words(if high { self.shift_words_4(w) } else { w }, mask);
                    unsafe { add_rows(&mut acc[i % C], w, x.add(i * R)) };
                }
            }
            return;
        }
        // Eight sums of `maddubs` stay in 16 bits: 8 * 2 * 15 * 127 = 30480.
        unsafe {
            let (ones, mask) = (_mm256_set1_epi16(1), _mm256_set1_epi8(15));
            let mut sums = [(_mm256_setzero_si256(), _mm256_setzero_si256()); R];
            for i in 0..K / 8 {
                let w = self.load_words(w.add(i * LANES));
                let (l0, l1) = (_mm256_and_si256(w.0, mask), _mm256_and_si256(w.1, mask));
                for r in 0..R {
                    let x = _mm256_set1_epi32(*x.add(2 * i * R + r) as i32);
                    sums[r].0 = _mm256_add_epi16(sums[r].0, _mm256_maddubs_epi16(l0, x));
                    sums[r].1 = _mm256_add_epi16(sums[r].1, _mm256_maddubs_epi16(l1, x));
                }
                let h0 = _mm256_and_si256(_mm256_srli_epi16::<4>(w.0), mask);
                let h1 = _mm256_and_si256(_mm256_srli_epi16::<4>(w.1), mask);
                for r in 0..R {
                    let x = _mm256_set1_epi32(*x.add((2 * i + 1) * R + r) as i32);
                    sums[r].0 = _mm256_add_epi16(sums[r].0, _mm256_maddubs_epi16(h0, x));
                    sums[r].1 = _mm256_add_epi16(sums[r].1, _mm256_maddubs_epi16(h1, x));
                }
            }
            for r in 0..R {
                let acc = &mut acc[0][r];
                acc.0 = _mm256_add_epi32(acc.0, _mm256_madd_epi16(sums[r].0, ones));
                acc.1 = _mm256_add_epi32(acc.1, _mm256_madd_epi16(sums[r].1, ones));
            }
        }
    }
    #[inline(always)]
    unsafe fn dot_split<const HIGH: usize, const R: usize>(
        self,
        acc: &mut [W; R],
        w: *const u32,
        x: *const u32,
    ) {
        unsafe {
            let low = _mm256_set1_epi32(0x0f0f_0f0f);
            let mask = _mm256_set1_epi32(0x1010_1010 * ((1 << HIGH) - 1));
            let more = self.load_words(w.add(4 / HIGH * LANES));
            let weights = |i: usize, half: __m256i, more: __m256i| {
                let half = if i % 2 == 0 { half } else { _mm256_srli_epi16::<4>(half) };
                let at = (HIGH * i) as i32;
                let more = if at < 4 {
                    _mm256_sllv_epi32(more, _mm256_set1_epi32(4 - at))
                } else {
                    _mm256_srlv_epi32(more, _mm256_set1_epi32(at - 4))
                };
                _mm256_or_si256(_mm256_and_si256(half, low), _mm256_and_si256(more, mask))
            };
            let ones = _mm256_set1_epi16(1);
            for i in 0..4 / HIGH {
                let half = self.load_words(w.add(i * LANES));
                let [a, b] =
                    [2 * i, 2 * i + 1].map(|i| W(weights(i, half.0, more.0), weights(i, half.1, more.1)));
                if VNNI {
                    add_rows(acc, a, x.add(2 * i * R));
                    add_rows(acc, b, x.add((2 * i + 1) * R));
                    continue;
                }
                // Two sums of `maddubs` stay in 16 bits: 2 * 2 * 63 * 127 = 32004.
                for r in 0..R {
                    let [xa, xb] = [2 * i, 2 * i + 1].map(|i| _mm256_set1_epi32(*x.add(i * R + r) as i32));
                    let sum = |a, b| {
                        let sums = _mm256_add_epi16(_mm256_maddubs_epi16(a, xa), _mm256_maddubs_epi16(b, xb));
                        _mm256_madd_epi16(sums, ones)
                    };
                    acc[r].0 = _mm256_add_epi32(acc[r].0, sum(a.0, b.0));
                    acc[r].1 = _mm256_add_epi32(acc[r].1, sum(a.1, b.1));
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn dot_table<const R: usize, const C: usize>(
        self,
        acc: &mut [[W; R]; C],
        w: *const u32,
        x: *const u32,
        table: &[i8; 16],
    ) {
        unsafe {
            let mask = self.splat_word(0x0f0f_0f0f);
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            let offset = _mm256_set1_epi8(if VNNI { -128 } else { 0 });
            let table = _mm256_xor_si256(table, offset);
            for i in 0..8 {
                let w = self.load_words(w.add(i / 2 * LANES));
                let w = self.and_words(if i % 2 == 1 { self.shift_words_4(w) } else { w }, mask);
                let w = W(_mm256_shuffle_epi8(table, w.0), _mm256_shuffle_epi8(table, w.1));
                if VNNI {
                    add_rows(&mut acc[i % C], w, x.add(i * R));
                } else {
                    add_signed(&mut acc[0], w, x.add(i * R));
                }
            }
        }
    }
    #[inline(always)]
    fn mul_words(self, a: W, b: W) -> W {
        unsafe { W(_mm256_mullo_epi32(a.0, b.0), _mm256_mullo_epi32(a.1, b.1)) }
    }
    #[inline(always)]
    fn signed_byte<const J: u32>(self, v: W) -> W {
        #[inline(always)]
        unsafe fn half<const J: u32>(v: __m256i) -> __m256i {
            unsafe {
                let shifted = match J {
                    0 => _mm256_slli_epi32::<24>(v),
                    1 => _mm256_slli_epi32::<16>(v),
                    2 => _mm256_slli_epi32::<8>(v),
                    _ => v,
                };
                _mm256_srai_epi32::<24>(shifted)
            }
        }
        unsafe { W(half::<J>(v.0), half::<J>(v.1)) }
    }
    #[inline(always)]
    fn add_pairs(self, acc: W, a: W, b: W) -> W {
        unsafe {
            W(
                _mm256_add_epi32(acc.0, _mm256_madd_epi16(a.0, b.0)),
                _mm256_add_epi32(acc.1, _mm256_madd_epi16(a.1, b.1)),
            )
        }
    }
    #[inline(always)]
    fn pack_shorts(self, v: W) -> [[u32; 2]; LANES / 4] {
        if VNNI {
            // The upper and the lower seven bits: each of them is an unsigned byte for `vpdpbusd`.
            let high = unsafe { W(_mm256_srli_epi32::<7>(v.0), _mm256_srli_epi32::<7>(v.1)) };
            let (high, low) =
                (self.pack_bytes(high), self.pack_bytes(self.and_words(v, self.splat_word(127))));
            return core::array::from_fn(|i| [high[i], low[i]]);
        }
        unsafe {
            // `packs` works within halves of 128 bits: words 0..4, 8..12 | 4..8, 12..16.
            let shorts = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(v.0, v.1));
            core::mem::transmute::<__m256i, [[u32; 2]; LANES / 4]>(shorts)
        }
    }
    #[inline(always)]
    unsafe fn dot_shorts<const R: usize>(
        self,
        acc: &mut [[W; 2]; R],
        w: *const u32,
        x: *const u32,
        stride: usize,
    ) {
        unsafe {
            for i in 0..8 {
                if VNNI {
                    add_parts(acc, self.load_words(w.add(i * LANES)), x.add(i * stride));
                    continue;
                }
                let w = w.add(i * LANES);
                let w = core::array::from_fn(|part| _mm_loadu_si128(w.add(part * 4).cast()));
                add_shorts(acc, w, x.add(i * stride));
            }
        }
    }
    #[inline(always)]
    unsafe fn dot_shorts_u4<const R: usize, const HIGH: bool>(
        self,
        acc: &mut [[W; 2]; R],
        w: *const u32,
        x: *const u32,
        stride: usize,
    ) {
        unsafe {
            let (odd, mask) = (core::mem::transmute::<[i8; 16], __m128i>(ODD), _mm_set1_epi8(15));
            for i in 0..8 {
                if VNNI {
                    let w = self.load_words(w.add(i * LANES));
                    let w = if HIGH { self.shift_words_4(w) } else { w };
                    let w = self.and_words(w, self.splat_word(0x0f0f_0f0f));
                    let odd = _mm256_broadcastsi128_si256(odd);
                    let w = W(_mm256_shuffle_epi8(odd, w.0), _mm256_shuffle_epi8(odd, w.1));
                    add_parts(acc, w, x.add(i * stride));
                    continue;
                }
                let w = w.add(i * LANES);
                let w = core::array::from_fn(|part| {
                    let w = _mm_loadu_si128(w.add(part * 4).cast());
                    let w = if HIGH { _mm_srli_epi16::<4>(w) } else { w };
                    _mm_shuffle_epi8(odd, _mm_and_si128(w, mask))
                });
                add_shorts(acc, w, x.add(i * stride));
            }
        }
    }
    #[inline(always)]
    fn sum_shorts(self, [a, b]: [W; 2]) -> F {
        if VNNI {
            // Each part is below 2^24, so it is exact as f32, and the sum is rounded once.
            return self.fma(self.to_float(a), self.splat(128.0), self.to_float(b));
        }
        unsafe {
            // `hadd` works within halves of 128 bits: outputs 0, 1, 4, 5 | 2, 3, 6, 7.
            let low = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(a.0, a.1));
            let high = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(b.0, b.1));
            self.to_float(W(low, high))
        }
    }
    #[inline(always)]
    fn multiply_add_bytes<const N: usize>(self, sums: &mut [W; N], w: W, x: W) {
        #[inline(always)]
        unsafe fn half(sum: __m256i, w: __m256i, x: &[__m256i; 8]) -> __m256i {
            unsafe {
                // Hides from the compiler that the products are equal, or it would compute them once.
                let x = core::hint::black_box(x);
                let mut shorts = _mm256_setzero_si256();
                for x in x {
                    shorts = _mm256_add_epi16(shorts, _mm256_maddubs_epi16(w, *x));
                }
                _mm256_add_epi32(sum, _mm256_madd_epi16(shorts, _mm256_set1_epi16(1)))
            }
        }
        if VNNI {
            for _ in 0..8 {
                for sum in &mut *sums {
                    unsafe { add_products(sum, w, x) };
                }
            }
            return;
        }
        let x = [x.0; 8];
        for sum in sums {
            unsafe { *sum = W(half(sum.0, w.0, &x), half(sum.1, w.1, &x)) };
        }
    }
    #[inline(always)]
    fn add_words(self, a: W, b: W) -> W {
        unsafe { W(_mm256_add_epi32(a.0, b.0), _mm256_add_epi32(a.1, b.1)) }
    }
    #[inline(always)]
    fn and_words(self, a: W, b: W) -> W {
        unsafe { W(_mm256_and_si256(a.0, b.0), _mm256_and_si256(a.1, b.1)) }
    }
    #[inline(always)]
    fn xor_words(self, a: W, b: W) -> W {
        unsafe { W(_mm256_xor_si256(a.0, b.0), _mm256_xor_si256(a.1, b.1)) }
    }
    #[inline(always)]
    fn join_bytes(self, v: [W; 4]) -> W {
        let halves = [v.map(|v| v.0), v.map(|v| v.1)].map(|[a, b, c, d]| unsafe {
            let [a, b, c] = [a, b, c].map(|v| _mm256_and_si256(v, _mm256_set1_epi32(255)));
            let low = _mm256_or_si256(a, _mm256_slli_epi32::<8>(b));
            _mm256_or_si256(low, _mm256_or_si256(_mm256_slli_epi32::<16>(c), _mm256_slli_epi32::<24>(d)))
        });
        W(halves[0], halves[1])
    }
    #[inline(always)]
    fn shift_words_4(self, a: W) -> W {
        unsafe { W(_mm256_srli_epi32::<4>(a.0), _mm256_srli_epi32::<4>(a.1)) }
    }
    #[inline(always)]
    unsafe fn store_words(self, p: *mut u32, v: W) {
        unsafe {
            _mm256_storeu_si256(p.cast(), v.0);
            _mm256_storeu_si256(p.add(8).cast(), v.1);
        }
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
