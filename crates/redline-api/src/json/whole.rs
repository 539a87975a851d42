//! Whole numbers that are written with a fraction of zero, such as `4.0`.
//!
//! JSON has one kind of number, and for JSON Schema `4.0` is an integer. Some clients write every number so.

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor};

/// The number from which on a floating-point number may stand for several integers.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Reads values from a deserializer, and integers also from numbers such as `4.0`. Other numbers, such as `4.5`, stay what they are: the
/// type of a field refuses them. What a type buffers before it knows whether it needs an integer is not converted.
pub struct WholeNumbers<D>(pub D);

macro_rules! read {
    ($($method:ident($($name:ident: $type:ty),*) $integer:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, $($name: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method($($name,)* Within::<V, $integer>(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for WholeNumbers<D> {
    type Error = D::Error;

    read! {
        deserialize_i8() true;
        deserialize_i16() true;
        deserialize_i32() true;
        deserialize_i64() true;
        deserialize_i128() true;
        deserialize_u8() true;
        deserialize_u16() true;
        deserialize_u32() true;
        deserialize_u64() true;
        deserialize_u128() true;
        deserialize_any() false;
        deserialize_bool() false;
        deserialize_f32() false;
        deserialize_f64() false;
        deserialize_char() false;
        deserialize_str() false;
        deserialize_string() false;
        deserialize_bytes() false;
        deserialize_byte_buf() false;
        deserialize_option() false;
        deserialize_unit() false;
        deserialize_unit_struct(name: &'static str) false;
        deserialize_newtype_struct(name: &'static str) false;
        deserialize_seq() false;
        deserialize_tuple(len: usize) false;
        deserialize_tuple_struct(name: &'static str, len: usize) false;
        deserialize_map() false;
        deserialize_struct(name: &'static str, fields: &'static [&'static str]) false;
        deserialize_enum(name: &'static str, variants: &'static [&'static str]) false;
        deserialize_identifier() false;
        deserialize_ignored_any() false;
    }
}

/// Visits a value for a visitor, which wants an integer or another value. Also a seed, an access or a deserializer within that value.
struct Within<T, const INTEGER: bool>(T);

macro_rules! visit {
    ($($method:ident($type:ty);)*) => {$(
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>, const INTEGER: bool> Visitor<'de> for Within<V, INTEGER> {
    type Value = V::Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.expecting(f)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<V::Value, E> {
        match whole(value).filter(|_| INTEGER) {
            Some(integer) => match u64::try_from(integer) {
                Ok(integer) => self.0.visit_u64(integer),
                Err(_) => self.0.visit_i64(integer),
            },
            None => self.0.visit_f64(value),
        }
    }

    visit! {
        visit_bool(bool);
        visit_i64(i64);
        visit_i128(i128);
        visit_u64(u64);
        visit_u128(u128);
        visit_str(&str);
        visit_borrowed_str(&'de str);
        visit_string(String);
        visit_bytes(&[u8]);
        visit_borrowed_bytes(&'de [u8]);
        visit_byte_buf(Vec<u8>);
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(WholeNumbers(from))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(WholeNumbers(from))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Within::<A, false>(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Within::<A, false>(entries))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, of: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(of)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Within<A, false> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Within::<S, false>(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Within<A, false> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Within::<S, false>(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Within<S, false> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(WholeNumbers(from))
    }
}

/// The integer that a number such as `4.0` is.
pub(crate) fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::value::RawValue;

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(json: &str) -> Result<T, String> {
        let mut parser = serde_json::Deserializer::from_str(json);
        T::deserialize(WholeNumbers(&mut parser)).map_err(|error| error.to_string())
    }

    #[test]
    fn an_integer_may_have_a_fraction_of_zero_wherever_it_stands() {
        assert_eq!((read("4.0"), read("4e0"), read("-0.0")), (Ok(4_usize), Ok(4_i64), Ok(0_u8)));
        assert_eq!(read("-3.0"), Ok(-3_i64));
        assert_eq!(read("[[1.0],[2]]"), Ok(vec![vec![1_u32], vec![2]]));
        assert_eq!(read("[null,7.0]"), Ok(vec![None, Some(7_i32)]));
        assert_eq!(read(r#"{"5":6.0}"#), Ok(BTreeMap::from([(5_u32, 6_u64)])));
        assert_eq!(read("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(read("9007199254740991.0"), Ok((1_u64 << 53) - 1));
    }

    #[test]
    fn another_number_is_refused_as_before() {
        let refused = |json: &str, expect: &str| {
            let error = read::<usize>(json).unwrap_err();
            assert!(error.contains(expect), "{json}: {error}");
        };
        refused("4.5", "floating point `4.5`, expected usize");
        refused("-1.0", "integer `-1`, expected usize");
        refused("18446744073709551616", "floating point");
        refused("9007199254740992.0", "floating point");
        refused("1e39", "floating point");
        assert!(read::<i64>("-9223372036854775809").is_err());
        assert!(read::<u8>("256.0").is_err());
        assert!(read::<String>("4.0").is_err() && read::<bool>("1.0").is_err());
    }

    #[test]
    fn numbers_that_are_no_integers_and_raw_values_keep_their_text() {
        assert_eq!(read("[4.0,0.5]"), Ok(vec![4.0_f32, 0.5]));
        assert_eq!(read::<serde_json::Value>("[4.0]").unwrap().to_string(), "[4.0]");
        assert_eq!(read::<Box<RawValue>>(r#"{"x": [4.0, 1e0]}"#).unwrap().get(), r#"{"x": [4.0, 1e0]}"#);
    }
}
