//! GGML's `Q2_K`: integers in 0..=3, stored as half bytes; scales and minima per 16 k. The order is that of `q4_k`.

use super::{Codes, Descriptor, Scaling};
use crate::Arithmetic;

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "q2_k",
    arithmetic: Arithmetic::Int8,
    codes: Codes::Nibbles { offset: 0 },
    groups: &[],
    scaling: Scaling::Super { sub: 16, minima: true },
    largest: f32::MAX,
};
