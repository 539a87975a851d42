//! JSON values that are kept as they are written.

use schemars::Schema;
use serde::de::{Deserialize, Deserializer};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::shape::schemas;

/// Any JSON value, as its text: the keys of objects keep their order, which a chat template may print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonText(String);

impl JsonText {
    /// A message of a conversation, whose content is a text or a list of texts.
    pub fn message(role: &str, texts: &[String]) -> Self {
        let part = |text: &String| serde_json::json!({ "type": "text", "text": text });
        let content = match texts {
            [text] => serde_json::Value::from(text.as_str()),
            texts => texts.iter().map(part).collect(),
        };
        Self(serde_json::json!({ "role": role, "content": content }).to_string())
    }

    /// The value as JSON.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A boolean.
    pub fn boolean(value: bool) -> Self {
        Self(value.to_string())
    }

    /// An object in JSON.
    pub(crate) fn object(json: &str) -> Self {
        Self(json.to_owned())
    }

    /// A text.
    pub fn text(text: &str) -> Self {
        Self(serde_json::Value::from(text).to_string())
    }

    /// The text of a string, or an object or array as compact JSON: without white space, the keys in the order of the request, and
    /// characters as themselves where they may be. `None` for other values, and for a string with half of a surrogate pair.
    pub fn content(&self) -> Option<String> {
        match self.0.as_bytes().first()? {
            b'"' => serde_json::from_str(&self.0).ok(),
            b'{' | b'[' => compact(&self.0),
            _ => None,
        }
    }

    /// Whether the value is an empty array.
    pub fn is_empty_list(&self) -> bool {
        self.0.starts_with('[') && self.content().as_deref() == Some("[]")
    }
}

/// JSON without white space between its parts. `None` if a string has half of a surrogate pair.
fn compact(json: &str) -> Option<String> {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('"') {
        let (before, string) = rest.split_at(at);
        out.extend(before.split_ascii_whitespace());
        let end = end_of_string(string)?;
        let text: String = serde_json::from_str(&string[..end]).ok()?;
        out.push_str(&serde_json::to_string(&text).ok()?);
        rest = &string[end..];
    }
    out.extend(rest.split_ascii_whitespace());
    Some(out)
}

/// The length of the string with which this JSON begins, its quotation marks included.
fn end_of_string(json: &str) -> Option<usize> {
    let mut escaped = false;
    let end = json.bytes().enumerate().skip(1).find(|&(_, byte)| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map(|(at, _)| at + 1)
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(from).map(|raw| Self(String::from(Box::<str>::from(raw))))
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.0.clone()).map_err(S::Error::custom)?.serialize(to)
    }
}

schemas! {
    JsonText: |_g| Schema::from(true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_one_text_or_a_list_of_them() {
        let text = |texts: &[&str]| {
            JsonText::message("user", &texts.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(text(&["a\"b"]).as_str(), r#"{"role":"user","content":"a\"b"}"#);
        let two = r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#;
        assert_eq!(text(&["a", "b"]).as_str(), two);
    }

    #[test]
    fn content_is_compact_and_keeps_the_order_of_keys() {
        let check = |json: &str, expect: Option<&str>| {
            let value: JsonText = serde_json::from_str(json).unwrap();
            assert_eq!(value.content().as_deref(), expect, "{json}");
        };
        check(r#""a \"b\" \u00e9""#, Some("a \"b\" é"));
        check(
            "{ \"b\" : [ 1.50 , null ],\n\t\"a x\": \" \\\\ \\\" \" }",
            Some(r#"{"b":[1.50,null],"a x":" \\ \" "}"#),
        );
        check(r#"["\u00e9\n"]"#, Some(r#"["é\n"]"#));
        check("[ ]", Some("[]"));
        for json in ["1", "null", "true", r#""\ud800""#, r#"["\ud800"]"#] {
            check(json, None);
        }
        assert!(serde_json::from_str::<JsonText>("[ ]").unwrap().is_empty_list());
        assert!(!serde_json::from_str::<JsonText>("[1]").unwrap().is_empty_list());
    }

    #[test]
    fn values_keep_their_text() {
        for json in [r#"{"b": 1, "a": [null, true]}"#, "1e400", r#""é\u00e9""#] {
            let value: JsonText = serde_json::from_str(json).unwrap();
            assert_eq!((value.as_str(), serde_json::to_string(&value).unwrap().as_str()), (json, json));
        }
        assert!(serde_json::from_str::<JsonText>("{]").is_err());
    }
}
