//! JSON schemas of field values that their Rust types do not express.
//!
//! The types without values stand for these schemas in attributes: `#[schemars(with = "...")]`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::json::limits::{MAX_SALT, MAX_SECONDS, MAX_STOP, MAX_STOP_IDS, MAX_STOPS};

/// Implements [`JsonSchema`] for types whose schemas are inlined where they are used.
macro_rules! schemas {
    ($($type:ty: |$generator:ident| $schema:expr;)*) => {$(
        impl ::schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                ::std::borrow::Cow::Borrowed(stringify!($type))
            }
            fn json_schema($generator: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                $crate::json::shape::schema($schema)
            }
        }
    )*};
}
pub(crate) use schemas;

/// A schema from JSON. JSON that is neither an object nor a boolean is no schema, and becomes the one that no value has.
pub(crate) fn schema(of: impl Into<Value>) -> Schema {
    match of.into() {
        Value::Object(of) => of.into(),
        Value::Bool(of) => of.into(),
        _ => Schema::from(false),
    }
}

/// Any string.
pub(crate) fn text() -> Value {
    json!({ "type": "string" })
}

/// One of these strings.
pub(crate) fn one_of(names: &[&str]) -> Value {
    json!({ "type": "string", "enum": names })
}

/// A token id.
pub(crate) fn token() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
}

/// At least one token id.
pub(crate) fn tokens() -> Value {
    json!({ "type": "array", "items": token(), "minItems": 1 })
}

/// A list with a number of elements from the first limit to the second.
pub(crate) fn list_of(items: impl Into<Value>, [min, max]: [usize; 2]) -> Value {
    json!({ "type": "array", "items": items.into(), "minItems": min, "maxItems": max })
}

/// A text, up to `max` texts, the token ids of one, or those of up to `max`.
pub(crate) fn prompts(max: usize) -> Value {
    json!({ "anyOf": [text(), list_of(text(), [1, max]), tokens(), list_of(tokens(), [1, max])] })
}

/// A string, or a list of any length.
pub(crate) fn text_or_list_of(items: impl Into<Value>) -> Value {
    json!({ "anyOf": [text(), { "type": "array", "items": items.into() }] })
}

/// A token id.
pub(crate) struct Token;
/// No value. An optional field of this type accepts only `null`.
pub(crate) struct Unsupported;
/// The value `false`.
pub(crate) struct False;
/// A number from 1 on, or -1: as many as fit.
pub(crate) struct CountOrAll;
/// The number 1.
pub(crate) struct One;
/// An empty list.
pub(crate) struct EmptyList;
/// A time limit in seconds.
pub(crate) struct Seconds;
/// A salt of the prefix cache.
pub(crate) struct Salt;
/// A probability above 0.
pub(crate) struct ShareAboveZero;
/// A number above 0 and below 1.
pub(crate) struct Between;
/// A repetition penalty.
pub(crate) struct Repetition;
/// Strings at which generation stops.
pub(crate) struct Stops;
/// Tokens that end a text.
pub(crate) struct StopIds;
/// A string that is not empty.
pub(crate) struct SomeText;
/// A date.
pub(crate) struct Day;
/// An object with any keys.
pub(crate) struct AnyObject;
/// The output modality `text`.
pub(crate) struct TextName;
/// The truncation strategy `disabled`.
pub(crate) struct Disabled;
/// A tool choice that calls no function: `none`, or `auto` if no functions are given.
pub(crate) struct NoCall;
/// A template with the placeholder `{text}`.
pub(crate) struct TextTemplate;
/// One string, or a list of `MIN` to `MAX` strings.
pub(crate) struct Texts<const MIN: usize, const MAX: usize>;
/// A text, up to `MAX` texts, the token ids of one, or those of up to `MAX`.
pub(crate) struct PromptsUpTo<const MAX: usize>;

schemas! {
    Token: |_g| token();
    Unsupported: |_g| false;
    False: |_g| json!({ "type": "boolean", "enum": [false] });
    CountOrAll: |_g| json!({ "anyOf": [{ "type": "integer", "minimum": 1 }, { "enum": [-1] }] });
    One: |_g| json!({ "type": "number", "enum": [1] });
    EmptyList: |_g| json!({ "type": "array", "maxItems": 0 });
    Seconds: |_g| json!({ "type": "number", "exclusiveMinimum": 0, "maximum": MAX_SECONDS });
    Salt: |_g| json!({ "type": "string", "maxLength": MAX_SALT });
    ShareAboveZero: |_g| json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 });
    Between: |_g| json!({ "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 });
    Repetition: |_g| json!({ "type": "number", "exclusiveMinimum": 0, "maximum": f32::MAX });
    Stops: |_g| {
        let stop = json!({ "type": "string", "minLength": 1, "maxLength": MAX_STOP });
        json!({ "anyOf": [stop, list_of(stop, [0, MAX_STOPS])] })
    };
    StopIds: |_g| list_of(token(), [0, MAX_STOP_IDS]);
    SomeText: |_g| json!({ "type": "string", "minLength": 1 });
    Day: |_g| json!({ "type": "string", "format": "date" });
    AnyObject: |_g| json!({ "type": "object" });
    TextName: |_g| one_of(&["text"]);
    Disabled: |_g| one_of(&["disabled"]);
    NoCall: |_g| one_of(&["auto", "none"]);
    TextTemplate: |_g| json!({ "type": "string", "pattern": r"\{text\}" });
}

impl<const MIN: usize, const MAX: usize> JsonSchema for Texts<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Owned(format!("Texts_{MIN}_to_{MAX}"))
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [text(), list_of(text(), [MIN, MAX])] })
    }
}

impl<const MAX: usize> JsonSchema for PromptsUpTo<MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Owned(format!("Prompts_up_to_{MAX}"))
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schema(prompts(MAX))
    }
}
