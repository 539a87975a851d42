//! 32-bit floats. Keys: strips of `[dimensions][16 tokens]`; values: strips of `[64 tokens][16 dimensions]`.

use redline_simd::{Isa, LANES};

use super::KvShape;
use super::encoding::{Encoding, FormatVisitor, Layout};
use crate::Arithmetic;
use crate::format::float32::F32Mac;

/// The format.
pub(super) struct F32;

impl Encoding for F32 {
    const LAYOUT: Layout = Layout {
        name: "f32",
        arithmetics: [Arithmetic::F32; 2],
        dims_per_step: 1,
        step_words: LANES,
        value_words: LANES,
        ..Layout::FLOATS
    };

    #[inline(always)]
    fn visit<V: FormatVisitor>(visitor: V) -> V::Output {
        visitor.floats::<F32Mac, F32Mac>()
    }

    #[inline(always)]
    unsafe fn write<S: Isa>(_s: S, shape: KvShape, words: *mut u32, slot: usize, k: &[f32], v: &[f32]) {
        // SAFETY: keys and values of this slot lie within the head's words.
        unsafe {
            let keys = shape.keys_of(words, slot).add(slot % LANES);
            for (d, x) in k.iter().enumerate() {
                *keys.add(d * LANES) = x.to_bits();
            }
            for (strip, v) in v.chunks(LANES).enumerate() {
                let row = shape.values_of(words, strip).add(slot * LANES);
                for (i, x) in v.iter().enumerate() {
                    *row.add(i) = x.to_bits();
                }
            }
        }
    }
}
