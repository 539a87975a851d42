//! GGML's `Q5_K`: as `q4_k`, with integers in 0..=31, stored as five bits.

use super::{Codes, Descriptor, Scaling};
use crate::Arithmetic;

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "q5_k",
    arithmetic: Arithmetic::Int8,
    codes: Codes::Split { high: 1, offset: 0 },
    groups: &[],
    scaling: Scaling::Super { sub: 32, minima: true },
    largest: f32::MAX,
};
