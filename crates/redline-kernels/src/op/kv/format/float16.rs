//! f16, which other engines use; queries stay f32. Keys: strips of `[dimensions][16 tokens]`; values: strips of
//! `[64 tokens][16 dimensions]`.

use redline_simd::{Isa, LANES};

use super::KvShape;
use super::encoding::{Encoding, FormatVisitor, Layout};
use crate::Arithmetic;
use crate::format::float16::HalfMac;

/// The format.
pub(super) struct F16;

impl Encoding for F16 {
    const LAYOUT: Layout = Layout {
        name: "f16",
        arithmetics: [Arithmetic::F32; 2],
        dims_per_step: 1,
        step_words: LANES / 2,
        value_words: LANES / 2,
        ..Layout::FLOATS
    };

    #[inline(always)]
    fn visit<V: FormatVisitor>(visitor: V) -> V::Output {
        visitor.floats::<HalfMac, HalfMac>()
    }

    #[inline(always)]
    unsafe fn write<S: Isa>(s: S, shape: KvShape, words: *mut u32, slot: usize, k: &[f32], v: &[f32]) {
        // SAFETY: keys and values of this slot lie within the head's words; loads are of as many values as there are.
        unsafe {
            let keys = shape.keys_of(words, slot).cast::<u16>().add(slot % LANES);
            let mut halves = [0; LANES];
            for (chunk, x) in k.chunks(LANES).enumerate() {
                s.store_f16(halves.as_mut_ptr(), s.load_partial(x.as_ptr(), x.len()));
                for (i, &half) in halves.iter().enumerate().take(x.len()) {
                    *keys.add((chunk * LANES + i) * LANES) = half;
                }
            }
            for (strip, x) in v.chunks(LANES).enumerate() {
                let row = shape.values_of(words, strip).cast::<u16>().add(slot * LANES);
                s.store_f16(row, s.load_partial(x.as_ptr(), x.len()));
            }
        }
    }
}
