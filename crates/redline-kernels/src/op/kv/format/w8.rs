//! int8 with one f32 scale per token and head, for keys and for values. Keys: strips of `[dimensions / 4][16 tokens][4]` bytes,
//! 128 too high; values: strips of `[64 tokens / 4][16 dimensions][4]` signed bytes.
//!
//! Keys and values are quantised like an input of a linear layer ([`crate::op::quantise`]), as one group.

use redline_simd::{Isa, LANES};

use super::encoding::{Encoding, FormatVisitor, IntegerEncoding, Layout, QueryScale, TOGETHER};
use super::{KvFormat, KvShape, MAX_HEAD_DIM, PAGE_TOKENS};
use crate::Arithmetic;
use crate::dot::INPUT_WORDS;
use crate::format::{BLOCK, Codes, Integer, w8};
use crate::op::quantise::GroupScale;

/// Added to the bytes of keys, which makes them unsigned.
const KEY_OFFSET: u32 = 0x8080_8080;

/// The format.
pub(crate) struct W8;

impl Encoding for W8 {
    const LAYOUT: Layout = Layout {
        name: "w8",
        arithmetics: [Arithmetic::Int8; 2],
        key_padding: BLOCK,
        dims_per_step: 4,
        step_words: LANES,
        value_dims: LANES,
        value_words: LANES / 4,
        value_tokens: 4,
        scale_dims: MAX_HEAD_DIM,
        scale_bytes: 4,
        rotated: false,
    };

    #[inline(always)]
    fn visit<V: FormatVisitor>(visitor: V) -> V::Output {
        visitor.integers::<Self>()
    }

    #[inline(always)]
    unsafe fn write<S: Isa>(s: S, shape: KvShape, words: *mut u32, slot: usize, k: &[f32], v: &[f32]) {
        // SAFETY: by contract.
        unsafe { Self::write_tokens(s, shape, words, slot, [k], [v]) };
    }

    #[inline(always)]
    unsafe fn write_tokens<S: Isa, const N: usize>(
        s: S,
        shape: KvShape,
        words: *mut u32,
        slot: usize,
        k: [&[f32]; N],
        v: [&[f32]; N],
    ) {
        const { assert!(N <= TOGETHER && TOGETHER == Self::LAYOUT.value_tokens) };
        // SAFETY: keys, values and scales of these slots lie within the head's words. Four tokens share the words of values, so fewer
        // are written byte by byte.
        unsafe {
            let (keys, scales) =
                (shape.keys_of(words, slot).add(slot % LANES), words.add(shape.scales() + slot));
            let (mut of_k, mut of_v) = ([GroupScale::new(s, k[0]); N], [GroupScale::new(s, v[0]); N]);
            for i in 1..N {
                (of_k[i], of_v[i]) = (GroupScale::new(s, k[i]), GroupScale::new(s, v[i]));
            }
            for i in 0..N {
                *scales.add(i) = of_k[i].scale.to_bits();
                *scales.add(PAGE_TOKENS + i) = of_v[i].scale.to_bits();
            }
            for block in 0..shape.key_dims() / LANES {
                let mut packed = [[0; LANES / 4]; N];
                for i in 0..N {
                    let k = k[i].get(block * LANES..).unwrap_or_default();
                    packed[i] = s.pack_bytes(of_k[i].round(s, k));
                }
                for step in 0..LANES / 4 {
                    for i in 0..N {
                        *keys.add((block * LANES / 4 + step) * LANES + i) = packed[i][step] ^ KEY_OFFSET;
                    }
                }
            }
            for strip in 0..shape.value_strips() {
                let mut rounded = [s.splat_word(0); TOGETHER];
                for i in 0..N {
                    rounded[i] = of_v[i].round(s, &v[i][strip * LANES..]);
                }
                let values = shape.values_of(words, strip).add(slot / 4 * LANES);
                if N == TOGETHER {
                    s.store_words(values, s.join_bytes(rounded));
                    continue;
                }
                for (i, rounded) in rounded.into_iter().enumerate().take(N) {
                    let bytes = s.pack_bytes(rounded).into_iter().flat_map(u32::to_le_bytes);
                    for (dimension, byte) in bytes.enumerate() {
                        *values.cast::<u8>().add(4 * dimension + slot % 4 + i) = byte;
                    }
                }
            }
        }
    }
}

impl IntegerEncoding for W8 {
    const FORMAT: KvFormat = KvFormat::W8;

    #[inline(always)]
    fn offset<S: Isa>() -> i32 {
        Codes::Bytes.offset::<S>()
    }

    #[inline(always)]
    unsafe fn logits<S: Isa, const R: usize>(
        s: S,
        shape: KvShape,
        words: *const u32,
        strip: usize,
        (queries, scales): (*const u32, &[QueryScale]),
    ) -> [S::F; R] {
        let mut sums = [[s.splat_word(0); R]; 1];
        for r in 0..R {
            sums[0][r] = s.splat_word(scales[r].starts[0] as u32);
        }
        // SAFETY: the strip and its scales lie within the head's words; queries by contract.
        let key_scales = unsafe {
            let w = words.add(strip * shape.key_strip_words());
            for block in 0..shape.key_dims() / BLOCK {
                let q = queries.add(block * INPUT_WORDS * R);
                s.dot_u8::<BLOCK, R, 1>(&mut sums, w.add(block * w8::W8::BLOCK_WORDS), q);
            }
            s.load(words.add(shape.scales() + strip * LANES).cast())
        };
        std::array::from_fn(|r| s.mul(s.to_float(sums[0][r]), s.mul(key_scales, s.splat(scales[r].scale))))
    }

    #[inline(always)]
    unsafe fn value_scales<S: Isa>(
        s: S,
        shape: KvShape,
        words: *const u32,
        _group: usize,
        slot: usize,
    ) -> S::F {
        // SAFETY: the scales of values follow those of keys.
        unsafe { s.load(words.add(shape.scales() + PAGE_TOKENS + slot).cast()) }
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
            let strip = words.add(shape.key_words() + strip * shape.value_strip_words());
            s.dot_shorts(sums, strip.add(slot * Self::LAYOUT.value_words), x, stride);
        }
    }
}
