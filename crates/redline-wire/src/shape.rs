//! JSON schemas of values that only some requests may have.
//!
//! The types without values stand for the values of fields: `#[schemars(with = "...")]` names them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::limits::{MAX_SALT, MAX_SECONDS, MAX_STOP, MAX_STOPS};

/// Implements [`JsonSchema`] for types whose schema stands where they are used.
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
                $schema
            }
        }
    )*};
}
pub(crate) use schemas;

/// A text that is one of these.
pub(crate) fn one_of(names: &[&str]) -> Value {
    json!({ "type": "string", "enum": names })
}

/// The id of a token.
pub(crate) fn token() -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
}

/// The ids of a text, of which there is at least one.
pub(crate) fn tokens() -> Value {
    json!({ "type": "array", "items": token(), "minItems": 1 })
}

/// A list with this number of elements.
pub(crate) fn list_of(items: impl Into<Value>, [least, most]: [usize; 2]) -> Value {
    json!({ "type": "array", "items": items.into(), "minItems": least, "maxItems": most })
}

/// A text, or a list of any length.
pub(crate) fn text_or_list_of(items: impl Into<Value>) -> Schema {
    json_schema!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": items.into() }] })
}

/// The id of a token.
pub(crate) struct Token;
/// Nothing but `null`, once it is optional.
pub(crate) struct Unsupported;
/// Only `false`.
pub(crate) struct False;
/// Only 1.
pub(crate) struct One;
/// Only an empty list.
pub(crate) struct EmptyList;
/// A time limit in seconds.
pub(crate) struct Seconds;
/// A salt of the prefix cache.
pub(crate) struct Salt;
/// A probability above 0.
pub(crate) struct ShareAboveZero;
/// A number above 0 and below 1.
pub(crate) struct Between;
/// The repetition penalty.
pub(crate) struct Repetition;
/// Texts at which generation stops.
pub(crate) struct Stops;
/// A text that is not empty.
pub(crate) struct SomeText;
/// A date.
pub(crate) struct Day;
/// The format of plain text, an object.
pub(crate) struct PlainText;
/// An object of any keys.
pub(crate) struct AnyObject;
/// The text of a kind of output.
pub(crate) struct TextName;
/// The only way not to cut a long input.
pub(crate) struct Disabled;
/// Whether functions may be called, if there are none.
pub(crate) struct NoCall;
/// How prompts are cached.
pub(crate) struct CacheMode;
/// How long prompts are cached.
pub(crate) struct CacheTime;
/// A template with the place of a text.
pub(crate) struct TextTemplate;
/// A text or a list of so many texts.
pub(crate) struct Texts<const LEAST: usize, const MOST: usize>;

schemas! {
    Token: |_g| json_schema!({ "type": "integer", "minimum": 0, "maximum": u32::MAX });
    Unsupported: |_g| Schema::from(false);
    False: |_g| json_schema!({ "type": "boolean", "enum": [false] });
    One: |_g| json_schema!({ "type": "number", "enum": [1] });
    EmptyList: |_g| json_schema!({ "type": "array", "maxItems": 0 });
    Seconds: |_g| json_schema!({
        "type": "number", "exclusiveMinimum": 0, "maximum": MAX_SECONDS
    });
    Salt: |_g| json_schema!({ "type": "string", "maxLength": MAX_SALT });
    ShareAboveZero: |_g| json_schema!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 });
    Between: |_g| json_schema!({ "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 });
    Repetition: |_g| json_schema!({ "type": "number", "exclusiveMinimum": 0, "maximum": f32::MAX });
    Stops: |_g| {
        let stop = json!({ "type": "string", "minLength": 1, "maxLength": MAX_STOP });
        json_schema!({ "anyOf": [stop, list_of(stop, [0, MAX_STOPS])] })
    };
    SomeText: |_g| json_schema!({ "type": "string", "minLength": 1 });
    Day: |_g| json_schema!({ "type": "string", "format": "date" });
    PlainText: |_g| json_schema!({
        "type": "object", "properties": { "type": { "type": "string", "enum": ["text"] } }, "required": ["type"]
    });
    AnyObject: |_g| json_schema!({ "type": "object" });
    TextName: |_g| json_schema!({ "type": "string", "enum": ["text"] });
    Disabled: |_g| json_schema!({ "type": "string", "enum": ["disabled"] });
    NoCall: |_g| json_schema!({ "type": "string", "enum": ["auto", "none"] });
    CacheMode: |_g| json_schema!({ "type": "string", "enum": ["implicit", "explicit"] });
    CacheTime: |_g| json_schema!({ "type": "string", "enum": ["30m"] });
    TextTemplate: |_g| json_schema!({ "type": "string", "pattern": r"\{text\}" });
}

impl<const LEAST: usize, const MOST: usize> JsonSchema for Texts<LEAST, MOST> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Owned(format!("Texts_{LEAST}_to_{MOST}"))
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let list = list_of(json!({ "type": "string" }), [LEAST, MOST]);
        json_schema!({ "anyOf": [{ "type": "string" }, list] })
    }
}
