//! Element types: the three float formats that weights are read and written in, and all types of the safetensors
//! format.

use std::fmt;

use crate::half::{bf16_to_f32, f16_to_f32, f32_to_bf16_rne, f32_to_f16_rne};

/// A float format in which weights are read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of an `f32`.
    BF16,
}

impl Dtype {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }

    /// The name safetensors headers use.
    pub fn name(self) -> &'static str {
        StoredDtype::from(self).name()
    }

    /// Converts little-endian `raw` (`out.len()` elements) to `f32`, exactly.
    pub(crate) fn decode(self, raw: &[u8], out: &mut [f32]) {
        match self {
            Self::F32 => decode(raw, out, f32::from_le_bytes),
            Self::F16 => decode(raw, out, |bytes| f16_to_f32(u16::from_le_bytes(bytes))),
            Self::BF16 => decode(raw, out, |bytes| bf16_to_f32(u16::from_le_bytes(bytes))),
        }
    }

    /// Converts `values` to little-endian bytes, rounded to nearest, ties to even. The previous content of `raw` is
    /// replaced.
    pub(crate) fn encode(self, values: &[f32], raw: &mut Vec<u8>) {
        match self {
            Self::F32 => encode(values, raw, f32::to_le_bytes),
            Self::F16 => encode(values, raw, |value| f32_to_f16_rne(value).to_le_bytes()),
            Self::BF16 => encode(values, raw, |value| f32_to_bf16_rne(value).to_le_bytes()),
        }
    }

    /// Whether `value` is finite and stays finite when rounded to this format.
    pub(crate) fn holds(self, value: f32) -> bool {
        // The smallest magnitude that rounds to infinity; false for NaN.
        let infinite = match self {
            Self::F32 => f32::INFINITY,
            Self::F16 => 65520.0,
            Self::BF16 => f32::from_bits(0x7f7f_8000),
        };
        value.abs() < infinite
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn decode<const N: usize>(raw: &[u8], out: &mut [f32], convert: impl Fn([u8; N]) -> f32) {
    let (elements, rest) = raw.as_chunks::<N>();
    debug_assert!(rest.is_empty() && elements.len() == out.len());
    for (value, &bytes) in out.iter_mut().zip(elements) {
        *value = convert(bytes);
    }
}

fn encode<const N: usize>(values: &[f32], raw: &mut Vec<u8>, convert: impl Fn(f32) -> [u8; N]) {
    raw.resize(values.len() * N, 0);
    for (bytes, &value) in raw.as_chunks_mut::<N>().0.iter_mut().zip(values) {
        *bytes = convert(value);
    }
}

/// Every element type of the safetensors format. Only those with [`StoredDtype::float`] can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the format's own
pub enum StoredDtype {
    Bool,
    F4,
    F6E2M3,
    F6E3M2,
    U8,
    I8,
    F8E5M2,
    F8E4M3,
    F8E8M0,
    F8E4M3Fnuz,
    F8E5M2Fnuz,
    I16,
    U16,
    F16,
    BF16,
    I32,
    U32,
    F32,
    C64,
    F64,
    I64,
    U64,
}

/// Type, name in a header, and bits per element.
const ALL: [(StoredDtype, &str, u8); 22] = [
    (StoredDtype::Bool, "BOOL", 8),
    (StoredDtype::F4, "F4", 4),
    (StoredDtype::F6E2M3, "F6_E2M3", 6),
    (StoredDtype::F6E3M2, "F6_E3M2", 6),
    (StoredDtype::U8, "U8", 8),
    (StoredDtype::I8, "I8", 8),
    (StoredDtype::F8E5M2, "F8_E5M2", 8),
    (StoredDtype::F8E4M3, "F8_E4M3", 8),
    (StoredDtype::F8E8M0, "F8_E8M0", 8),
    (StoredDtype::F8E4M3Fnuz, "F8_E4M3FNUZ", 8),
    (StoredDtype::F8E5M2Fnuz, "F8_E5M2FNUZ", 8),
    (StoredDtype::I16, "I16", 16),
    (StoredDtype::U16, "U16", 16),
    (StoredDtype::F16, "F16", 16),
    (StoredDtype::BF16, "BF16", 16),
    (StoredDtype::I32, "I32", 32),
    (StoredDtype::U32, "U32", 32),
    (StoredDtype::F32, "F32", 32),
    (StoredDtype::C64, "C64", 64),
    (StoredDtype::F64, "F64", 64),
    (StoredDtype::I64, "I64", 64),
    (StoredDtype::U64, "U64", 64),
];

impl StoredDtype {
    /// The type of this name in a header, or `None`.
    pub fn from_name(name: &str) -> Option<Self> {
        ALL.iter().find(|(_, known, _)| *known == name).map(|&(dtype, ..)| dtype)
    }

    /// The name safetensors headers use.
    pub fn name(self) -> &'static str {
        ALL[self as usize].1
    }

    /// Bits of one element; 4 and 6 for the sub-byte floats.
    pub fn bits(self) -> usize {
        ALL[self as usize].2.into()
    }

    /// The corresponding float format, or `None` if weights cannot be read from this type.
    pub const fn float(self) -> Option<Dtype> {
        match self {
            Self::F32 => Some(Dtype::F32),
            Self::F16 => Some(Dtype::F16),
            Self::BF16 => Some(Dtype::BF16),
            _ => None,
        }
    }
}

impl From<Dtype> for StoredDtype {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => Self::F32,
            Dtype::F16 => Self::F16,
            Dtype::BF16 => Self::BF16,
        }
    }
}

impl fmt::Display for StoredDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_stands_in_the_order_of_the_types() {
        for (place, (dtype, name, bits)) in ALL.into_iter().enumerate() {
            assert_eq!(dtype as usize, place, "{name}");
            assert_eq!(StoredDtype::from_name(name), Some(dtype));
            assert_eq!((dtype.name(), dtype.bits()), (name, bits.into()));
        }
        assert_eq!(StoredDtype::from_name("F33"), None);
    }

    #[test]
    fn floats_are_the_three_that_are_read() {
        let floats: Vec<_> = ALL.iter().filter_map(|(dtype, ..)| dtype.float()).collect();
        assert_eq!(floats, [Dtype::F16, Dtype::BF16, Dtype::F32]);
        for dtype in floats {
            assert_eq!(StoredDtype::from(dtype).float(), Some(dtype));
            assert_eq!(StoredDtype::from(dtype).bits(), 8 * dtype.bytes());
        }
    }

    #[test]
    fn a_format_holds_what_it_keeps_finite() {
        let edges = [0.0, 1.0, 65504.0, 65519.996, 65520.0, 65536.0, f32::MAX, f32::INFINITY, f32::NAN];
        let near_bf16_max = (0x7f7e_0000..0x7f80_0010).step_by(0x7ff).map(f32::from_bits);
        for value in edges.into_iter().chain(near_bf16_max).flat_map(|value| [value, -value]) {
            for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
                let (mut raw, mut back) = (Vec::new(), [0.0]);
                dtype.encode(&[value], &mut raw);
                dtype.decode(&raw, &mut back);
                assert_eq!(dtype.holds(value), back[0].is_finite(), "{value} in {dtype}");
            }
        }
    }
}
