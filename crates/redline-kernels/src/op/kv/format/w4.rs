//! int4 with one bf16 scale per token and 32 dimensions, for keys and for values, after a rotation of each head.
//!
//! Keys: strips of `[dimensions / 8][16 tokens][4]` bytes; byte j of a token's word i holds dimension 8 i + j in its low half and
//! dimension 8 i + 4 + j in its high half. Values: strips of 32 dimensions, `[64 tokens / 4][16][4]` bytes with dimension d in
//! their low half and dimension 16 + d in their high half, so that no two tokens share a byte.
//!
//! Order: queries (after scaling), keys and values are rotated by [`crate::op::hadamard`]. In a group of 32 dimensions (all, if
//! the head has fewer) `m = max |x|`; `s = m / 15.75` rounded to bf16; `u = 8 + fma(x, 0.5 / s, -0.5)` rounded to nearest even,
//! in 0..=15, meaning `(2 u - 15) s`: sixteen levels around zero, evenly spaced. A group below 2^-100, or with a scale below
//! 2^-55, has the scale +0; one with a NaN or an infinity has the scale NaN. Queries are int8 with one scale `s_q`, as in `w8`. A
//! logit is `acc * s_q`, where `acc = fma(f32(I), s, acc)` from +0, groups ascending, with the exact sum `I` of the products of
//! `2 u - 15` and q. Values are weighted as in `w8`, in each group of dimensions with the weights `p * s` of that group. The
//! quotient of attention is rotated back.
//!
//! bf16 scales have the range of f32 and are widened by a shift. The rounding of a scale costs nothing, because the integers are
//! computed with the rounded scale.

use redline_simd::{Isa, LANES};

use super::encoding::{Encoding, FormatVisitor, IntegerEncoding, Layout, QueryScale};
use super::{KvFormat, KvShape, MAX_HEAD_DIM, PAGE_TOKENS};
use crate::Arithmetic;
use crate::dot::INPUT_WORDS;
use crate::format::{BLOCK, Integer, bf16, w4};
use crate::op::hadamard::hadamard;
use crate::op::quantise::{SMALLEST, magnitude};

/// Number of dimensions that share a scale.
const GROUP: usize = 32;
/// Largest magnitude of a group in scales. The outermost levels are 15, and a bf16 may be smaller than its scale by 2^-9, so no
/// value is rounded beyond them.
const LARGEST: f32 = 15.75;
/// A stored integer u means `2 u - OFFSET`.
const OFFSET: i32 = 15;
/// The stored integer above the middle.
const MIDDLE: u32 = 8;
/// Bytes of a stored group: words of four.
const GROUP_WORDS: usize = GROUP / 4;

/// The format.
pub(super) struct W4;

impl Encoding for W4 {
    const LAYOUT: Layout = Layout {
        name: "w4",
        arithmetics: [Arithmetic::Int8; 2],
        key_padding: BLOCK,
        dims_per_step: 8,
        step_words: LANES,
        value_dims: GROUP,
        value_words: LANES / 4,
        value_tokens: 4,
        scale_dims: GROUP,
        scale_bytes: 2,
        rotated: true,
    };

    #[inline(always)]
    fn visit<V: FormatVisitor>(visitor: V) -> V::Output {
        visitor.integers::<Self>()
    }

    #[inline(always)]
    unsafe fn write<S: Isa>(s: S, shape: KvShape, words: *mut u32, slot: usize, k: &[f32], v: &[f32]) {
        // SAFETY: keys, values and scales of this slot lie within the head's words. Four tokens share the words of values, and two
        // those of scales, so these are written in smaller units.
        unsafe {
            let keys = shape.keys_of(words, slot).add(slot % LANES);
            for (group, x) in rotated(s, k).chunks(GROUP).take(shape.scale_groups()).enumerate() {
                let (packed, scale) = quantise(s, x);
                scale_at(shape, words, group).cast_mut().add(slot).write(scale);
                for (i, pair) in packed.chunks_exact(2).enumerate() {
                    *keys.add((group * GROUP_WORDS / 2 + i) * LANES) = pair[0] | pair[1] << 4;
                }
            }
            let groups = shape.scale_groups();
            for (group, x) in rotated(s, v).chunks(GROUP).take(groups).enumerate() {
                let (packed, scale) = quantise(s, x);
                scale_at(shape, words, groups + group).cast_mut().add(slot).write(scale);
                let strip = shape.values_of(words, group).add(slot / 4 * LANES).cast::<u8>().add(slot % 4);
                let (low, high) = packed.split_at(GROUP_WORDS / 2);
                let bytes = low.iter().zip(high).flat_map(|(low, high)| (low | high << 4).to_le_bytes());
                for (i, byte) in bytes.enumerate() {
                    *strip.add(4 * i) = byte;
                }
            }
        }
    }
}

/// The rotated values of a head, padded with +0.
#[inline(always)]
fn rotated<S: Isa>(s: S, x: &[f32]) -> [f32; MAX_HEAD_DIM] {
    let mut all = [0f32; MAX_HEAD_DIM];
    all[..x.len()].copy_from_slice(x);
    hadamard(s, &mut all[..x.len()]);
    all
}

/// Integers of a group, four to a word, and its scale as bf16.
#[inline(always)]
fn quantise<S: Isa>(s: S, x: &[f32]) -> ([u32; GROUP_WORDS], u16) {
    let m = magnitude(s, x);
    let (scale, inverse) = if !m.is_finite() {
        (bf16::round(f32::NAN), 0.0)
    } else if m < SMALLEST {
        (0, 0.0)
    } else {
        let scale = bf16::round(m / LARGEST);
        (scale, if scale == 0 { 0.0 } else { 0.5 / bf16::widen(scale) })
    };
    let mut packed = [0; GROUP_WORDS];
    for (x, to) in x.chunks(LANES).zip(packed.chunks_exact_mut(LANES / 4)) {
        let q = if inverse > 0.0 {
            // SAFETY: a chunk of the group.
            let x = unsafe { s.load_partial(x.as_ptr(), x.len()) };
            s.to_nearest(s.fma(x, s.splat(inverse), s.splat(-0.5)))
        } else {
            s.splat_word(0)
        };
        to.copy_from_slice(&s.pack_bytes(s.add_words(q, s.splat_word(MIDDLE))));
    }
    (packed, scale)
}

/// The scales of the 64 tokens of a group: those of keys come first.
///
/// # Safety
/// `words` is valid for the words of a head.
#[inline(always)]
unsafe fn scale_at(shape: KvShape, words: *const u32, group: usize) -> *const u16 {
    // SAFETY: the scales lie within the head's words.
    unsafe { words.add(shape.scales()).cast::<u16>().add(group * PAGE_TOKENS) }
}

impl IntegerEncoding for W4 {
    const FORMAT: KvFormat = KvFormat::W4;

    #[inline(always)]
    fn offset<S: Isa>() -> i32 {
        OFFSET
    }

    #[inline(always)]
    unsafe fn logits<S: Isa, const R: usize>(
        s: S,
        shape: KvShape,
        words: *const u32,
        strip: usize,
        (queries, scales): (*const u32, &[QueryScale]),
    ) -> [S::F; R] {
        let mut logits = [s.splat(0.0); R];
        // SAFETY: the strip and its scales lie within the head's words; queries by contract.
        unsafe {
            let w = words.add(strip * shape.key_strip_words());
            for group in 0..shape.scale_groups() {
                let mut sums = [[s.splat_word(0); R]; 1];
                let q = queries.add(group * INPUT_WORDS * R);
                s.dot_u4::<BLOCK, R, 1>(&mut sums, w.add(group * w4::W4::BLOCK_WORDS), q);
                let key_scales = s.load_bf16(scale_at(shape, words, group).add(strip * LANES));
                for r in 0..R {
                    // Both terms are below 2^24, so the sum is exact.
                    let start = s.splat(scales[r].starts[group] as f32);
                    let sum = s.fma(s.to_float(sums[0][r]), s.splat(2.0), start);
                    logits[r] = s.fma(sum, key_scales, logits[r]);
                }
            }
        }
        std::array::from_fn(|r| s.mul(logits[r], s.splat(scales[r].scale)))
    }

    #[inline(always)]
    unsafe fn value_scales<S: Isa>(
        s: S,
        shape: KvShape,
        words: *const u32,
        group: usize,
        slot: usize,
    ) -> S::F {
        // SAFETY: the scales of values follow those of keys.
        unsafe { s.load_bf16(scale_at(shape, words, shape.scale_groups() + group).add(slot)) }
    }

    #[inline(always)]
    unsafe fn add_values<S: Isa, const R: usize>(
        s: S,
        sums: &mut [[S::W; 2]; R],
        (shape, words): (KvShape, *const u32),
        (strip, slot): (usize, usize),
        (x, stride): (*const u32, usize),
    ) {
        // SAFETY: 32 tokens of the strip lie within the head's words; inputs by contract.
        unsafe {
            let w = words.add(shape.key_words() + strip / 2 * shape.value_strip_words());
            let w = w.add(slot * Self::LAYOUT.value_words);
            if strip % 2 == 0 {
                s.dot_shorts_u4::<R, false>(sums, w, x, stride);
            } else {
                s.dot_shorts_u4::<R, true>(sums, w, x, stride);
            }
        }
    }
}
