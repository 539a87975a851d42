//! The `id` of a request, which its answer repeats.

use serde::de::{Deserialize, Deserializer, IgnoredAny};
use serde_json::value::RawValue;

/// Stands for the key `id` of a line: any JSON value. The value itself is read by [`request_id`], even if the rest of the line
/// is not a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestId;

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(from).map(|_| Self)
    }
}

/// The JSON text of the `id` of a line, if the line is a JSON object that has one.
pub fn request_id(line: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Line<'a> {
        #[serde(borrow, default, deserialize_with = "present")]
        id: Option<&'a RawValue>,
    }
    /// A value that is there, also if it is `null`.
    fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
        <&RawValue>::deserialize(from).map(Some)
    }
    // A list would be read as the values of the keys.
    let is_object = line.trim_ascii_start().starts_with(b"{");
    let line: Line<'_> = serde_json::from_slice(line).ok().filter(|_| is_object)?;
    line.id.map(|id| id.get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_any_value_as_it_is_written() {
        let id = |line: &str| request_id(line.as_bytes());
        assert_eq!(id(r#"{"text":"a","id":"x\u00e9"}"#).as_deref(), Some(r#""x\u00e9""#));
        assert_eq!(id(r#"{"id": 1e400, "other":{"id":2}}"#).as_deref(), Some("1e400"));
        assert_eq!(id(r#"{"id":{"a":[1, 2]}}"#).as_deref(), Some(r#"{"a":[1, 2]}"#));
        assert_eq!(id(r#"{"id": null}"#).as_deref(), Some("null"));
        assert_eq!(id(r#"{"text":"id"}"#), None);
        assert_eq!(id("[1]"), None);
        assert_eq!(id(r#"{"id":1"#), None);
    }
}
