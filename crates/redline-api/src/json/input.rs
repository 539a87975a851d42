//! Request values that are either text or token ids.

use std::fmt;

use redline_engine::Prompt;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::json::limits::{MAX_BIAS, MAX_ITEMS, MAX_PROMPTS};
use crate::json::shape::{list_of, prompts, schemas, text, text_or_list_of, token, tokens};
use crate::json::whole::whole;

/// A string, or a list of token ids. Ids are signed, so that the error about a negative id can show its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextOrIds {
    /// Text to tokenise.
    Text(String),
    /// Token ids, used unchanged.
    Ids(Vec<i64>),
}

impl From<TextOrIds> for Prompt {
    fn from(of: TextOrIds) -> Self {
        match of {
            TextOrIds::Text(text) => Self::Text(text),
            TextOrIds::Ids(ids) => Self::Ids(ids),
        }
    }
}

impl<'de> Deserialize<'de> for TextOrIds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Forms {
            expecting: "a string or a list of token ids",
            text: Some(Self::Text),
            id: None,
            ids: Self::Ids,
        })
    }
}

/// The tokens of a label, written as a number if there is one token, else as a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelIds(pub Vec<i64>);

impl Serialize for LabelIds {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if let [id] = self.0[..] { to.serialize_i64(id) } else { self.0.serialize(to) }
    }
}

impl<'de> Deserialize<'de> for LabelIds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Forms {
            expecting: "a token id or a list of token ids",
            text: None,
            id: Some(|id| Self(vec![id])),
            ids: Self,
        })
    }
}

/// A label as text or by its token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextOrLabelIds {
    /// Text to tokenise.
    Text(String),
    /// The label's tokens.
    Ids(LabelIds),
}

impl<'de> Deserialize<'de> for TextOrLabelIds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Forms {
            expecting: "a string, a token id or a list of token ids",
            text: Some(Self::Text),
            id: Some(|id| Self::Ids(LabelIds(vec![id]))),
            ids: |ids| Self::Ids(LabelIds(ids)),
        })
    }
}

/// The forms in which a value may be written, and the conversion from each.
struct Forms<T> {
    expecting: &'static str,
    text: Option<fn(String) -> T>,
    id: Option<fn(i64) -> T>,
    ids: fn(Vec<i64>) -> T,
}

impl<'de, T> Visitor<'de> for Forms<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        let make = self.text.ok_or_else(|| E::invalid_type(Unexpected::Str(text), &self))?;
        Ok(make(text.to_owned()))
    }
    fn visit_i64<E: Error>(self, id: i64) -> Result<T, E> {
        let make = self.id.ok_or_else(|| E::invalid_type(Unexpected::Signed(id), &self))?;
        Ok(make(id))
    }
    fn visit_u64<E: Error>(self, id: u64) -> Result<T, E> {
        let make = self.id.ok_or_else(|| E::invalid_type(Unexpected::Unsigned(id), &self))?;
        i64::try_from(id).map(make).map_err(|_| E::custom(format!("token id {id} is out of range")))
    }
    fn visit_f64<E: Error>(self, id: f64) -> Result<T, E> {
        let made = self.id.and_then(|make| whole(id).map(make));
        made.ok_or_else(|| E::invalid_type(Unexpected::Float(id), &self))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<T, A::Error> {
        collect(seq).map(self.ids)
    }
}

/// The items of a score request: a plain string is one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Items(pub Vec<TextOrIds>);

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Items;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a list of strings, or a list of lists of token ids")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Items, E> {
                Ok(Items(vec![TextOrIds::Text(text.to_owned())]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Items, A::Error> {
                collect(seq).map(Items)
            }
        }
        from.deserialize_any(OneOrMany)
    }
}

/// The prompts of a request: a text, texts, the token ids of one prompt, or those of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompts(pub Vec<TextOrIds>);

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Prompts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a list of strings, a list of token ids, or a list of such lists")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Prompts, E> {
                Ok(Prompts(vec![TextOrIds::Text(text.to_owned())]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Prompts, A::Error> {
                let (mut prompts, mut one) = (Vec::new(), Vec::new());
                while let Some(part) = seq.next_element::<PromptPart>()? {
                    match part {
                        PromptPart::Whole(prompt) => prompts.push(prompt),
                        PromptPart::Id(id) => one.push(id),
                    }
                    let first = prompts.first().map(|prompt| matches!(prompt, TextOrIds::Text(_)));
                    let last = prompts.last().map(|prompt| matches!(prompt, TextOrIds::Text(_)));
                    if first != last || (first.is_some() && !one.is_empty()) {
                        return Err(A::Error::custom("texts and token ids are mixed in one list"));
                    }
                }
                Ok(Prompts(if one.is_empty() { prompts } else { vec![TextOrIds::Ids(one)] }))
            }
        }
        from.deserialize_any(OneOrMany)
    }
}

/// An element of a list of prompts: a prompt, or a token of the only one.
enum PromptPart {
    Whole(TextOrIds),
    Id(i64),
}

impl<'de> Deserialize<'de> for PromptPart {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Forms {
            expecting: "a string, a token id or a list of token ids",
            text: Some(|text| Self::Whole(TextOrIds::Text(text))),
            id: Some(Self::Id),
            ids: |ids| Self::Whole(TextOrIds::Ids(ids)),
        })
    }
}

/// A string or a list of strings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings(pub Vec<String>);

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Strings;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Strings, E> {
                Ok(Strings(vec![text.to_owned()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Strings, A::Error> {
                collect(seq).map(Strings)
            }
        }
        from.deserialize_any(OneOrMany)
    }
}

/// Biases of logits: an object whose keys are token ids, in the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogitBias(pub Vec<(i64, f32)>);

impl<'de> Deserialize<'de> for LogitBias {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Biases;
        impl<'de> Visitor<'de> for Biases {
            type Value = LogitBias;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of token ids and numbers")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LogitBias, A::Error> {
                // A map would drop an id that is written twice.
                let mut all = Vec::new();
                while let Some(one) = map.next_entry()? {
                    all.push(one);
                }
                Ok(LogitBias(all))
            }
        }
        from.deserialize_map(Biases)
    }
}

/// Collects the elements in order, without preallocating for a declared length.
fn collect<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(mut seq: A) -> Result<Vec<T>, A::Error> {
    let mut all = Vec::new();
    while let Some(one) = seq.next_element()? {
        all.push(one);
    }
    Ok(all)
}

schemas! {
    Strings: |_g| text_or_list_of(text());
    TextOrIds: |_g| text_or_list_of(token());
    LabelIds: |_g| json!({ "anyOf": [token(), tokens()] });
    Items: |generator| {
        let items = list_of(generator.subschema_for::<TextOrIds>(), [0, MAX_ITEMS]);
        json!({ "anyOf": [text(), items] })
    };
    Prompts: |_g| prompts(MAX_PROMPTS);
    LogitBias: |_g| json!({
        "type": "object",
        "propertyNames": { "pattern": "^(0|[1-9][0-9]{0,9})$" },
        "additionalProperties": { "type": "number", "minimum": -MAX_BIAS, "maximum": MAX_BIAS }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> TextOrIds {
        TextOrIds::Text(text.to_owned())
    }

    #[test]
    fn items_take_every_documented_form() {
        let check = |json: &str, expect: Vec<TextOrIds>| {
            let items: Items = serde_json::from_str(json).unwrap();
            assert_eq!(items.0, expect, "{json}");
        };
        check(r#""one""#, vec![text("one")]);
        check(r#""""#, vec![text("")]);
        check("[]", vec![]);
        check(r#"["a",""]"#, vec![text("a"), text("")]);
        check("[[1,2],[]]", vec![TextOrIds::Ids(vec![1, 2]), TextOrIds::Ids(vec![])]);
        check(r#"["a",[-1]]"#, vec![text("a"), TextOrIds::Ids(vec![-1])]);
        check(r#"["\u00e9\ud83d\ude00"]"#, vec![text("é😀")]);
    }

    #[test]
    fn prompts_take_every_documented_form_and_no_mixture() {
        let check = |json: &str, expect: Vec<TextOrIds>| {
            assert_eq!(serde_json::from_str::<Prompts>(json).unwrap().0, expect, "{json}");
        };
        check(r#""one""#, vec![text("one")]);
        check(r#"["a","b"]"#, vec![text("a"), text("b")]);
        check("[1,-2]", vec![TextOrIds::Ids(vec![1, -2])]);
        check("[[1],[2,3]]", vec![TextOrIds::Ids(vec![1]), TextOrIds::Ids(vec![2, 3])]);
        check("[]", vec![]);
        check("[1.0,2]", vec![TextOrIds::Ids(vec![1, 2])]);
        for json in [r#"["a",1]"#, r#"[1,"a"]"#, r#"[[1],"a"]"#, "[1,[2]]"] {
            let error = serde_json::from_str::<Prompts>(json).unwrap_err().to_string();
            assert!(error.contains("mixed"), "{json}: {error}");
        }
    }

    #[test]
    fn a_label_is_text_an_id_or_several() {
        let check = |json: &str, expect: TextOrLabelIds| {
            let label: TextOrLabelIds = serde_json::from_str(json).unwrap();
            assert_eq!(label, expect, "{json}");
        };
        check(r#"" a""#, TextOrLabelIds::Text(" a".to_owned()));
        check("-7", TextOrLabelIds::Ids(LabelIds(vec![-7])));
        check("[3,4]", TextOrLabelIds::Ids(LabelIds(vec![3, 4])));
        let refused = |json: &str, expect: &str| {
            let error = serde_json::from_str::<TextOrLabelIds>(json).unwrap_err().to_string();
            assert!(error.contains(expect), "{json}: {error}");
        };
        refused("1.5", "floating point `1.5`, expected a string, a token id or a list of token ids");
        refused("18446744073709551615", "token id 18446744073709551615 is out of range");
        let error = serde_json::from_str::<LabelIds>(r#""1""#).unwrap_err().to_string();
        assert!(error.contains("string \"1\", expected a token id or a list"), "{error}");
    }

    #[test]
    fn biases_keep_their_order_and_repeated_ids() {
        let json = r#"{"7":-100.0,"-5":0.5,"7":1.0}"#;
        let bias: LogitBias = serde_json::from_str(json).unwrap();
        assert_eq!(bias, LogitBias(vec![(7, -100.0), (-5, 0.5), (7, 1.0)]));
        for (json, expect) in [
            (r#"{"a":1}"#, "invalid"),
            (r#"{"1.5":1}"#, "invalid"),
            (r#"{"1":"x"}"#, "expected f32"),
            ("[[1,2]]", "expected an object of token ids and numbers"),
        ] {
            let error = serde_json::from_str::<LogitBias>(json).unwrap_err().to_string();
            assert!(error.contains(expect), "{json}: {error}");
        }
    }

    #[test]
    fn a_wrong_type_says_what_was_expected() {
        let check = |json: &str, expect: &str| {
            let error = serde_json::from_str::<Items>(json).unwrap_err().to_string();
            assert!(error.contains(expect), "{json}: {error}");
        };
        check("[1,2]", "expected a string or a list of token ids");
        check("[[1.0]]", "floating point `1.0`, expected i64");
        check("[[true]]", "boolean `true`, expected i64");
        check(r#"[["a"]]"#, "string \"a\", expected i64");
        check("[[18446744073709551615]]", "integer `18446744073709551615`, expected i64");
        check("null", "expected a string, a list of strings");
        check("{}", "expected a string, a list of strings");
        assert!(
            serde_json::from_str::<Strings>("[1]").unwrap_err().to_string().contains("expected a string")
        );
    }
}
