//! GGML's `IQ4_XS`: half bytes as in `iq4_nl`, scales per 32 k as in `q4_k`, without minima.

use super::{Codes, Descriptor, Scaling};
use crate::Arithmetic;
use crate::codes::NON_LINEAR;

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "iq4_xs",
    arithmetic: Arithmetic::Int8,
    codes: Codes::Table(&NON_LINEAR),
    groups: &[],
    scaling: Scaling::Super { sub: 32, minima: false },
    largest: f32::MAX,
};
