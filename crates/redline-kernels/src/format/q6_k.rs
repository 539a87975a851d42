//! GGML's `Q6_K`: integers in -32..=31, stored as six bits; scales per 16 k. The order is that of `q4_k`.

use super::{Codes, Descriptor, Scaling};
use crate::Arithmetic;

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "q6_k",
    arithmetic: Arithmetic::Int8,
    codes: Codes::Split { high: 2, offset: 32 },
    groups: &[],
    scaling: Scaling::Super { sub: 16, minima: false },
    largest: f32::MAX,
};
