//! GGML's `Q4_K`: integers in 0..=15; per 32 k a scale `sc` and a minimum `m`, both integers, times `d` and `dmin`, f16 per 256 k. A
//! value is `(d * sc) * q - dmin * m`.
//!
//! Order per output and 128 k, ascending, of this and all other formats with integer scales: `I` is the exact sum over the
//! sub-groups of sc times the sum of q times the inputs; `acc = fma(f32(I), d * s_x, acc)`. With minima, `M` is the exact sum of m
//! times the sum of the inputs; `acc = fma(f32(M), -dmin * s_x, acc)`. Both products of scales are rounded first.

use super::{Codes, Descriptor, Scaling};
use crate::Arithmetic;

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "q4_k",
    arithmetic: Arithmetic::Int8,
    codes: Codes::Nibbles { offset: 0 },
    groups: &[],
    scaling: Scaling::Super { sub: 32, minima: true },
    largest: f32::MAX,
};
