//! GGML's `IQ4_NL`: half bytes name one of sixteen integers; an f16 scale per 32 k. The order is that of `w4`.

use super::{Codes, Descriptor, Scaling};
use crate::Arithmetic;
use crate::codes::NON_LINEAR;

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "iq4_nl",
    arithmetic: Arithmetic::Int8,
    codes: Codes::Table(&NON_LINEAR),
    groups: &[],
    scaling: Scaling::Blocks { bf16: false, minima: false },
    largest: f32::MAX,
};
