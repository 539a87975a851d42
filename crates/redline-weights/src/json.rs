//! JSON that rejects duplicate keys at any depth; plain `serde_json` would silently keep the last one.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The infinity of Python's JSON.
const INFINITY: &[u8] = b"Infinity";
/// What stands for it: a string of the same length, so that columns in messages stay right.
const STRING: &[u8] = br#""\u221e""#;

/// The same JSON, in which the infinity that Python writes, and that JSON does not have, is the string `∞`.
pub(crate) fn with_infinities(json: &[u8]) -> Cow<'_, [u8]> {
    let mut changed = Cow::Borrowed(json);
    let (mut in_string, mut at) = (false, 0);
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' => at += 1,
            b'I' if !in_string
                && json[at..].starts_with(INFINITY)
                && at.checked_sub(1).map(|i| json[i]) != Some(b'-') =>
            {
                changed.to_mut()[at..at + STRING.len()].copy_from_slice(STRING);
            }
            _ => (),
        }
        at += 1;
    }
    changed
}

/// A JSON value in which no object has duplicate keys.
pub(crate) struct Unique(pub(crate) Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = seq.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            refuse_twice(&key, values.contains_key(&key))?;
            let Unique(value) = map.next_value()?;
            values.insert(key, value);
        }
        Ok(values.into())
    }
}

/// Returns an error if the key was already present.
pub(crate) fn refuse_twice<E: Error>(key: &str, there: bool) -> Result<(), E> {
    if there { Err(E::custom(format_args!("the key `{key}` stands twice"))) } else { Ok(()) }
}
