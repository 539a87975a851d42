//! GGML's `MXFP4`: half bytes are floats (E2M1), of which a table holds the double; half of the scale, a power of two, is stored
//! as bf16, which holds all of them exactly. The order is that of `w4`.

use super::{Codes, Descriptor, Scaling};
use crate::Arithmetic;
use crate::codes::DOUBLE_E2M1;

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "mxfp4",
    arithmetic: Arithmetic::Int8,
    codes: Codes::Table(&DOUBLE_E2M1),
    groups: &[],
    scaling: Scaling::Blocks { bf16: true, minima: false },
    largest: f32::MAX,
};
