//! GGML's `Q5_1`: as `q4_1`, with integers in 0..=31, stored as bytes.

use super::{Codes, Descriptor, Scaling};
use crate::Arithmetic;

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "q5_1",
    arithmetic: Arithmetic::Int8,
    codes: Codes::Bytes,
    groups: &[],
    scaling: Scaling::Blocks { bf16: false, minima: true },
    largest: f32::MAX,
};
