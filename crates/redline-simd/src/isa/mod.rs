//! The tiers: one file each, one line each in [`crate::Tier::ALL`].
//!
//! All tiers present the same machine: vectors of sixteen 32-bit lanes. AVX2 holds one in two registers, the scalar tier in an
//! array.

pub mod amx;
#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
pub mod scalar;

/// Number of lanes of a vector, on every tier.
pub const LANES: usize = 16;

/// `2 u - 15` for every 4-bit u ([`Isa::dot_shorts_u4`]).
#[cfg(target_arch = "x86_64")]
const ODD: [i8; 16] = [-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15];

/// A piece of work that can run on any tier. Implementations mark `run` as `#[inline(always)]`, so that the body
/// is compiled with the instructions of the tier it is entered through.
pub trait Kernel {
    /// What the work returns.
    type Output;
    /// Whether the kernel uses dot products of bytes, for which AVX2 has an optional instruction (AVX-VNNI). Integer layouts depend on
    /// it, so every kernel that reads or writes them says so.
    const DOTS_BYTES: bool = false;
    /// Whether the kernel gains from dot products of bf16 pairs, for which AVX-512 has an optional instruction. The bits are the same.
    const DOTS_BF16: bool = false;
    /// Does the work with the operations of `S`.
    fn run<S: Isa>(self, isa: S) -> Self::Output;
}

/// Operations on vectors of sixteen lanes. Each is one IEEE-754 rounding to nearest even per lane, or exact.
///
/// # Safety
/// A value of an implementing type is proof that the machine has its instructions: implementors are only
/// constructed by [`crate::Simd`]. Methods that take pointers state how many bytes they touch.
pub unsafe trait Isa: Copy + Send + Sync + 'static {
    /// Sixteen f32.
    type F: Copy;
    /// Sixteen 32-bit words without interpretation.
    type W: Copy;
    /// Number of strips of sixteen outputs that one float register tile spans.
    const TILE_STRIPS: usize;
    /// Maximum number of rows of an integer register tile, one strip wide.
    const DOT_ROWS: usize;
    /// Number of independent sums per output that hide the latency of an integer dot product in a tile of one row; 1 if tiles
    /// of few rows need no splitting.
    const DOT_CHAINS: usize;
    /// Whether [`Isa::dot_bf16`] is a single instruction, rather than two multiply-adds of separated halves.
    const DOT_BF16: bool;
    /// Whether [`Isa::dot_u8`] uses its weights as stored, 128 too high; the initial sum then cancels the offset.
    const DOT_U8_OFFSET: bool;
    /// Maximum number of rows of [`Isa::dot_shorts`].
    const SHORT_ROWS: usize;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::F;
    /// Reads 64 bytes, any alignment.
    /// # Safety
    /// `p` is valid for reading 16 f32.
    unsafe fn load(self, p: *const f32) -> Self::F;
    /// Writes 64 bytes, any alignment.
    /// # Safety
    /// `p` is valid for writing 16 f32.
    unsafe fn store(self, p: *mut f32, v: Self::F);
    /// Reads `n <= 16` lanes, the rest are +0.
    /// # Safety
    /// `p` is valid for reading `n` f32.
    #[inline(always)]
    unsafe fn load_partial(self, p: *const f32, n: usize) -> Self::F {
        let mut lanes = [0f32; LANES];
        // SAFETY: `n <= 16` lanes are readable by contract; the array holds 16.
        unsafe {
            std::ptr::copy_nonoverlapping(p, lanes.as_mut_ptr(), n);
            self.load(lanes.as_ptr())
        }
    }
    /// Writes the first `n <= 16` lanes.
    /// # Safety
    /// `p` is valid for writing `n` f32.
    #[inline(always)]
    unsafe fn store_partial(self, p: *mut f32, v: Self::F, n: usize) {
        let lanes = self.to_array(v);
        // SAFETY: `n <= 16` lanes are writable by contract.
        unsafe { std::ptr::copy_nonoverlapping(lanes.as_ptr(), p, n) }
    }
    /// The lanes as an array.
    #[inline(always)]
    fn to_array(self, v: Self::F) -> [f32; LANES] {
        let mut lanes = [0f32; LANES];
        // SAFETY: the array holds 16 f32.
        unsafe { self.store(lanes.as_mut_ptr(), v) };
        lanes
    }
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`, correctly rounded.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// Per lane `if a < b { b } else { a }`: a NaN in either operand keeps `a`.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// Per lane `if a < b { x } else { y }`; a comparison with NaN is false.
    fn select_lt(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F;
    /// The bits of each lane with the sign flipped.
    fn neg(self, a: Self::F) -> Self::F;
    /// Lane i becomes lane `i ^ D`; `D` is 1, 2, 4 or 8.
    fn swap_lanes<const D: usize>(self, v: Self::F) -> Self::F;
    /// Adds `bits(n) << 23` to the bits of `p`: multiplies by two to the power of the integer that the low bits of `n` hold.
    fn scale_by_exponent(self, p: Self::F, n: Self::F) -> Self::F;

    /// Reads 64 bytes, any alignment.
    /// # Safety
    /// `p` is valid for reading 16 u32.
    unsafe fn load_words(self, p: *const u32) -> Self::W;
    /// All lanes `x`.
    fn splat_word(self, x: u32) -> Self::W;
    /// Two bf16 products per lane added to `acc`: first the high halves of `w` and `x`, then the low halves, each
    /// one fused multiply-add with one rounding. Inputs must be zero or at least 2^-55 in magnitude.
    fn dot_bf16(self, acc: Self::F, w: Self::W, x: Self::W) -> Self::F;
    /// The high and the low halves as f32.
    fn split_bf16(self, w: Self::W) -> [Self::F; 2];
    /// Reads 32 bytes as sixteen bf16, widened exactly.
    /// # Safety
    /// `p` is valid for reading 16 u16.
    unsafe fn load_bf16(self, p: *const u16) -> Self::F;
    /// Reads 32 bytes as sixteen f16 (IEEE binary16), widened exactly, denormals included.
    /// # Safety
    /// `p` is valid for reading 16 u16.
    unsafe fn load_f16(self, p: *const u16) -> Self::F;
    /// Writes sixteen f16, each rounded to nearest even; beyond the largest f16 becomes infinity.
    /// # Safety
    /// `p` is valid for writing 16 u16.
    unsafe fn store_f16(self, p: *mut u16, v: Self::F);
    /// Signed words as f32, rounded to nearest even.
    fn to_float(self, v: Self::W) -> Self::F;
    /// Each lane rounded to the nearest integer, ties to even. Magnitudes are below 2^31.
    fn to_nearest(self, v: Self::F) -> Self::W;
    /// Per lane, the larger of `m` and the bits of `x` without their sign: ordered by magnitude, with infinity above all
    /// numbers and NaN above infinity.
    fn max_magnitude(self, m: Self::W, x: Self::F) -> Self::W;
    /// Packs the low bytes of the lanes: word i holds lanes 4 i to 4 i + 3, the first lowest. Lanes are in -128..=127.
    fn pack_bytes(self, v: Self::W) -> [u32; LANES / 4];
    /// The low bytes of the lanes of four vectors, side by side in each lane, those of the first lowest.
    #[inline(always)]
    fn join_bytes(self, v: [Self::W; 4]) -> Self::W {
        let words = v.map(|v| self.words_to_array(v));
        let joined: [u32; LANES] =
            std::array::from_fn(|lane| u32::from_le_bytes(words.map(|words| words[lane] as u8)));
        // SAFETY: the array holds sixteen words.
        unsafe { self.load_words(joined.as_ptr()) }
    }
    /// The second and the lowest bytes of the lanes of four vectors, packed: word i holds lanes 4 i to 4 i + 3 of the sequence, the first
    /// lowest. Lanes are in 0..=32767.
    #[inline(always)]
    fn split_bytes(self, v: [Self::W; 4]) -> [Self::W; 2] {
        let words = v.map(|v| self.words_to_array(v));
        [8, 0].map(|shift| {
            let byte = |lane: usize| (words[lane / LANES][lane % LANES] >> shift & 255) << (8 * (lane % 4));
            let packed: [u32; LANES] = std::array::from_fn(|i| (4 * i..4 * i + 4).map(byte).sum());
            // SAFETY: the array holds sixteen words.
            unsafe { self.load_words(packed.as_ptr()) }
        })
    }
    /// Exact sums over `K` k, 16 or 32: `acc[..][r] += sum over k of w[k] * x[r][k]`, with any split over the chains `C`.
    /// Weights are `[K/4][16 outputs][4]` bytes, unsigned, meaning `w - 128` (see [`Isa::DOT_U8_OFFSET`]); inputs
    /// `[K/4][R][4]` bytes, signed, none -128.
    /// # Safety
    /// `w` is valid for reading `4 * K` words, `x` for `K / 4 * R`; `R <= DOT_ROWS`.
    unsafe fn dot_u8<const K: usize, const R: usize, const C: usize>(
        self,
        acc: &mut [[Self::W; R]; C],
        w: *const u32,
        x: *const u32,
    );
    /// As [`Isa::dot_u8`] with 4-bit weights, `[K/8][16 outputs][4]` bytes: byte j of group i holds k = 8 i + j in its low half
    /// and k = 8 i + 4 + j in its high half. The weights are used as stored, 0..=15, on every tier.
    /// # Safety
    /// `w` is valid for reading `2 * K` words, `x` for `K / 4 * R`; `R <= DOT_ROWS`.
    unsafe fn dot_u4<const K: usize, const R: usize, const C: usize>(
        self,
        acc: &mut [[Self::W; R]; C],
        w: *const u32,
        x: *const u32,
    );
    /// As [`Isa::dot_u4`] over `32 / HIGH` k, with `HIGH` more bits of each weight, 1 or 2, in one more word: byte j holds those of
    /// k = 4 i + j from bit `HIGH * i` on. The weights are used as stored, up to 31 or 63, on every tier.
    /// # Safety
    /// `w` is valid for reading `16 * (4 / HIGH + 1)` words, `x` for `8 / HIGH * R`; `R <= DOT_ROWS`.
    unsafe fn dot_split<const HIGH: usize, const R: usize>(
        self,
        acc: &mut [Self::W; R],
        w: *const u32,
        x: *const u32,
    );
    /// As [`Isa::dot_u4`] over 32 k, with the entry of `table` that each 4-bit weight names, plus 128 where
    /// [`Isa::DOT_U8_OFFSET`] says so. No entry is -128.
    /// # Safety
    /// `w` is valid for reading 64 words, `x` for `8 * R`; `R <= DOT_ROWS`.
    unsafe fn dot_table<const R: usize, const C: usize>(
        self,
        acc: &mut [[Self::W; R]; C],
        w: *const u32,
        x: *const u32,
        table: &[i8; 16],
    );
    /// The low words of the products.
    fn mul_words(self, a: Self::W, b: Self::W) -> Self::W;
    /// Byte `J` of each lane as a signed word.
    fn signed_byte<const J: u32>(self, v: Self::W) -> Self::W;
    /// Adds to each lane the two products of its signed halves, wrapping. No product is that of -32768 with itself.
    fn add_pairs(self, acc: Self::W, a: Self::W, b: Self::W) -> Self::W;
    /// Sixteen inputs of [`Isa::dot_shorts`], each in 0..=16383, packed: two words for each four.
    fn pack_shorts(self, v: Self::W) -> [[u32; 2]; LANES / 4];
    /// Exact sums over 32 k: `acc[r] += sum over k of w[k] * x[r][k]`. Weights are `[8][16 outputs][4]` signed bytes, none -128;
    /// inputs `[8][R][2]` words from [`Isa::pack_shorts`], `stride` words between the eight. What the two parts of a sum mean is
    /// known to [`Isa::sum_shorts`] only; both begin as zero. A sum is of at most 256 k.
    /// # Safety
    /// `w` is valid for reading 128 words, `x` for `7 * stride + 2 * R`; `R <= SHORT_ROWS`.
    unsafe fn dot_shorts<const R: usize>(
        self,
        acc: &mut [[Self::W; 2]; R],
        w: *const u32,
        x: *const u32,
        stride: usize,
    );
    /// As [`Isa::dot_shorts`], with 4-bit weights: the half of each byte that `HIGH` names holds u and means `2 u - 15`.
    /// # Safety
    /// As there.
    unsafe fn dot_shorts_u4<const R: usize, const HIGH: bool>(
        self,
        acc: &mut [[Self::W; 2]; R],
        w: *const u32,
        x: *const u32,
        stride: usize,
    );
    /// A sum of [`Isa::dot_shorts`] as f32, rounded to nearest even.
    fn sum_shorts(self, acc: [Self::W; 2]) -> Self::F;
    /// Adds, eight times for each sum, four products of bytes per lane, from registers, with `w` in 0..=15. Measures the
    /// integer arithmetic of [`Isa::dot_u4`] without memory accesses.
    fn multiply_add_bytes<const N: usize>(self, sums: &mut [Self::W; N], w: Self::W, x: Self::W);
    /// Sum of signed words per lane, wrapping.
    fn add_words(self, a: Self::W, b: Self::W) -> Self::W;
    /// Bitwise and.
    fn and_words(self, a: Self::W, b: Self::W) -> Self::W;
    /// Bitwise exclusive or.
    fn xor_words(self, a: Self::W, b: Self::W) -> Self::W;
    /// Shifts each lane right by four bits, filling with zeros.
    fn shift_words_4(self, a: Self::W) -> Self::W;
    /// Writes 64 bytes, any alignment.
    /// # Safety
    /// `p` is valid for writing 16 u32.
    unsafe fn store_words(self, p: *mut u32, v: Self::W);
    /// The words as an array.
    #[inline(always)]
    fn words_to_array(self, v: Self::W) -> [u32; LANES] {
        let mut words = [0u32; LANES];
        // SAFETY: the array holds 16 u32.
        unsafe { self.store_words(words.as_mut_ptr(), v) };
        words
    }
    /// Prefetches the cache line at `p`, which may be any address.
    fn prefetch(self, p: *const u8);
    /// As [`Isa::prefetch`], into the second-level cache only. A line that the first level waits for occupies one of its few
    /// slots for the whole latency of memory.
    fn prefetch_far(self, p: *const u8);

    /// Sum of the lanes as signed integers, wrapping.
    #[inline(always)]
    fn sum_words(self, v: Self::W) -> i32 {
        self.words_to_array(v).iter().fold(0, |sum, &lane| sum.wrapping_add(lane as i32))
    }
    /// Largest lane as unsigned integers.
    #[inline(always)]
    fn max_word(self, v: Self::W) -> u32 {
        self.words_to_array(v).iter().fold(0, |max, &lane| max.max(lane))
    }
    /// Sum of the lanes as a tree: +8, +4, +2, +1.
    #[inline(always)]
    fn reduce_add(self, v: Self::F) -> f32 {
        let mut lanes = self.to_array(v);
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] += lanes[i + half];
            }
            half /= 2;
        }
        lanes[0]
    }
    /// Largest lane, by [`Isa::max`] in ascending order.
    #[inline(always)]
    fn reduce_max(self, v: Self::F) -> f32 {
        largest_ascending(self.to_array(v))
    }
}

/// [`Isa::reduce_max`], lane by lane.
#[inline(always)]
fn largest_ascending(lanes: [f32; LANES]) -> f32 {
    let mut m = lanes[0];
    for &x in &lanes[1..] {
        m = if m < x { x } else { m };
    }
    m
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kernel, Simd};

    struct Largest([f32; LANES]);

    impl Kernel for Largest {
        type Output = u32;
        #[inline(always)]
        fn run<S: Isa>(self, s: S) -> u32 {
            // SAFETY: sixteen values.
            s.reduce_max(unsafe { s.load(self.0.as_ptr()) }).to_bits()
        }
    }

    struct Bytes([[u32; LANES]; 4]);

    impl Kernel for Bytes {
        type Output = [[u32; LANES]; 3];
        #[inline(always)]
        fn run<S: Isa>(self, s: S) -> Self::Output {
            // SAFETY: sixteen words each.
            let v = self.0.map(|words| unsafe { s.load_words(words.as_ptr()) });
            let [high, low] = s.split_bytes(v);
            [high, low, s.join_bytes(v)].map(|v| s.words_to_array(v))
        }
    }

    #[test]
    fn bytes_are_split_and_joined() {
        let lanes: [[u32; LANES]; 4] =
            std::array::from_fn(|v| std::array::from_fn(|i| (v * LANES + i) as u32 * 521 % 32768));
        let byte = |lane: usize, shift: u32| lanes[lane / LANES][lane % LANES] >> shift & 255;
        for simd in Simd::variants() {
            let got = simd.run(Bytes(lanes));
            for i in 0..LANES {
                for j in 0..4 {
                    let of = |word: u32| word >> (8 * j) & 255;
                    assert_eq!(of(got[0][i]), byte(4 * i + j, 8), "{}: high {i} {j}", simd.name());
                    assert_eq!(of(got[1][i]), byte(4 * i + j, 0), "{}: low {i} {j}", simd.name());
                    assert_eq!(of(got[2][i]), lanes[j][i] & 255, "{}: joined {i} {j}", simd.name());
                }
            }
        }
    }

    /// Zeros and lanes that are not numbers make the order matter.
    #[test]
    fn the_largest_lane_is_that_of_the_ascending_order() {
        let values = [0.0, -0.0, f32::NAN, -1.0, 2.5, f32::NEG_INFINITY, f32::INFINITY];
        let mut state = 1_u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for round in 0..5000 {
            let kinds = 1 + round % values.len();
            let lanes = std::array::from_fn(|_| values[next(kinds)]);
            let mut expected = lanes[0];
            for x in lanes {
                expected = if expected < x { x } else { expected };
            }
            for simd in Simd::variants() {
                assert_eq!(simd.run(Largest(lanes)), expected.to_bits(), "{}: {lanes:?}", simd.name());
            }
        }
    }
}
