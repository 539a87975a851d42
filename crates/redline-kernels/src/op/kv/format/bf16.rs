//! bf16, to which queries are rounded too. Keys: strips of `[dimensions / 2][16 tokens][2]`, pairs swapped; values: strips of
//! `[64 tokens][16 dimensions]`.

use redline_simd::{Isa, LANES};

use super::encoding::{Encoding, FormatVisitor, Layout};
use super::{KvShape, MAX_HEAD_DIM};
use crate::Arithmetic;
use crate::format::bf16::{self, Bf16Mac, WidenMac};

/// The format.
pub(super) struct Bf16;

impl Encoding for Bf16 {
    const LAYOUT: Layout = Layout {
        name: "bf16",
        arithmetics: [Arithmetic::Bf16, Arithmetic::F32],
        dims_per_step: 2,
        step_words: LANES,
        value_words: LANES / 2,
        ..Layout::FLOATS
    };

    #[inline(always)]
    fn visit<V: FormatVisitor>(visitor: V) -> V::Output {
        visitor.floats::<Bf16Mac, WidenMac>()
    }

    #[inline(always)]
    unsafe fn write<S: Isa>(_s: S, shape: KvShape, words: *mut u32, slot: usize, k: &[f32], v: &[f32]) {
        // SAFETY: keys and values of this slot lie within the head's words.
        unsafe {
            let keys = shape.keys_of(words, slot).add(slot % LANES);
            let mut pairs = [0; MAX_HEAD_DIM / 2];
            bf16::pack_row(k, &mut pairs);
            for (step, &pair) in pairs[..k.len().div_ceil(2)].iter().enumerate() {
                keys.add(step * LANES).write(pair);
            }
            for (strip, v) in v.chunks(LANES).enumerate() {
                let row = shape.values_of(words, strip).cast::<u16>().add(slot * LANES);
                for (i, &x) in v.iter().enumerate() {
                    *row.add(i) = bf16::round(x);
                }
            }
        }
    }
}
