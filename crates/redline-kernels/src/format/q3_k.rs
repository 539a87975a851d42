//! GGML's `Q3_K`: integers in -4..=3, stored as half bytes `q + 4`; scales per 16 k. The order is that of `q4_k`.

use super::{Codes, Descriptor, Scaling};
use crate::Arithmetic;

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "q3_k",
    arithmetic: Arithmetic::Int8,
    codes: Codes::Nibbles { offset: 4 },
    groups: &[],
    scaling: Scaling::Super { sub: 16, minima: false },
    largest: f32::MAX,
};
