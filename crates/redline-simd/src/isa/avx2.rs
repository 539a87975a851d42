//! AVX2 with FMA and F16C: a vector is two 256-bit registers.

use core::arch::x86_64::{
    __m256, __m256i, _CMP_LT_OQ, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm256_add_epi32, _mm256_add_ps,
    _mm256_and_si256, _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cmp_ps,
    _mm256_cvtepu16_epi32, _mm256_div_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_max_ps, _mm256_mul_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_slli_epi32, _mm256_storeu_ps,
    _mm256_storeu_si256, _mm256_sub_ps, _mm256_xor_ps,
};

use super::{Isa, LANES};

/// Proof that the machine has AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The machine has AVX2, FMA and F16C.
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

// SAFETY: in this block, every intrinsic needs AVX2 or FMA only, which the existence of `self` proves; pointers are
// valid for the stated widths by the contracts of the trait.
#[allow(clippy::undocumented_unsafe_blocks)]
unsafe impl Isa for Avx2 {
    type F = F;
    type W = W;
    const TILE_STRIPS: usize = 1;

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
        #[inline(always)]
        unsafe fn high(v: __m256i) -> __m256 {
            unsafe { _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(0xffff_0000_u32 as i32))) }
        }
        #[inline(always)]
        unsafe fn low(v: __m256i) -> __m256 {
            unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(v)) }
        }
        #[inline(always)]
        unsafe fn half(acc: __m256, w: __m256i, x: __m256i) -> __m256 {
            unsafe { _mm256_fmadd_ps(low(w), low(x), _mm256_fmadd_ps(high(w), high(x), acc)) }
        }
        unsafe { F(half(acc.0, w.0, x.0), half(acc.1, w.1, x.1)) }
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
    fn add_words(self, a: W, b: W) -> W {
        unsafe { W(_mm256_add_epi32(a.0, b.0), _mm256_add_epi32(a.1, b.1)) }
    }
    #[inline(always)]
    fn words_to_array(self, v: W) -> [u32; LANES] {
        let mut out = [0u32; LANES];
        unsafe {
            _mm256_storeu_si256(out.as_mut_ptr().cast(), v.0);
            _mm256_storeu_si256(out.as_mut_ptr().add(8).cast(), v.1);
        }
        out
    }
    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
}
