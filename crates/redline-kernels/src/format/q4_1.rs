//! GGML's `Q4_1`: integers in 0..=15 with an f16 scale `d` and an f16 minimum `m` per 32 k; a value is `d * q + m`.
//!
//! Order per output and 32 k, ascending: `I` is the exact sum of q times the inputs, `X` that of the inputs;
//! `acc = fma(f32(I), d * s_x, acc)`, then `acc = fma(m, f32(X) * s_x, acc)`. Both products are rounded first.

use super::{Codes, Descriptor, Scaling};
use crate::Arithmetic;

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "q4_1",
    arithmetic: Arithmetic::Int8,
    codes: Codes::Nibbles { offset: 0 },
    groups: &[],
    scaling: Scaling::Blocks { bf16: false, minima: true },
    largest: f32::MAX,
};
