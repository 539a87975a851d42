//! Numbers that JSON can represent.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer};
use serde::ser::{Error, Serialize, Serializer};

/// A number whose serialization fails unless it is finite. JSON has no NaN and no infinity, and writing `null` in
/// their place would hide them.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Finite<T>(pub T);

impl Serialize for Finite<f32> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() { to.serialize_f32(self.0) } else { Err(not_finite(f64::from(self.0))) }
    }
}

impl Serialize for Finite<f64> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() { to.serialize_f64(self.0) } else { Err(not_finite(self.0)) }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Finite<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::deserialize(from).map(Self)
    }
}

fn not_finite<E: Error>(value: f64) -> E {
    E::custom(format_args!("the number {value} cannot be written as JSON"))
}

impl<T: JsonSchema> JsonSchema for Finite<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f32_parses_back_to_its_bits() {
        // A walk over the bit patterns with an odd stride: all exponents, subnormals and both signs.
        let mut bits = 0u32;
        for _ in 0..200_000 {
            bits = bits.wrapping_add(0x9e37_79b9);
            let value = f32::from_bits(bits);
            if !value.is_finite() {
                continue;
            }
            let text = serde_json::to_string(&Finite(value)).unwrap();
            let direct: f32 = text.parse().unwrap();
            let Finite(typed) = serde_json::from_str::<Finite<f32>>(&text).unwrap();
            let through_f64 = serde_json::from_str::<f64>(&text).unwrap() as f32;
            for back in [direct, typed, through_f64] {
                assert_eq!(back.to_bits(), bits, "{text}");
            }
        }
    }

    #[test]
    fn what_json_cannot_hold_is_an_error() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = serde_json::to_string(&Finite(value)).unwrap_err().to_string();
            assert!(error.contains("cannot be written as JSON"), "{error}");
            assert!(serde_json::to_string(&Finite(f64::from(value))).is_err());
        }
    }
}
