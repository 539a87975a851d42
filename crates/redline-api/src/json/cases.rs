//! JSON schemas of fields that depend on each other: an object has one of several cases.
//!
//! The cases of a request are next to its type. Here is how they are built, and what requests for generated text have in common.

use schemars::Schema;
use serde_json::{Map, Value, json};

/// Any value but `null`.
pub(crate) fn given() -> Value {
    json!({ "type": ["array", "boolean", "number", "object", "string"] })
}

/// The value `true`.
pub(crate) fn only_true() -> Value {
    json!({ "type": "boolean", "enum": [true] })
}

/// A case of an object: the required fields with their schemas, and the fields that are absent or `null`.
pub(crate) fn case<const N: usize>(required: [(&str, Value); N], absent: &[&str]) -> Value {
    let names: Vec<&str> = required.iter().map(|(name, _)| *name).collect();
    let null = absent.iter().map(|name| ((*name).to_owned(), json!({ "type": "null" })));
    let properties: Map<_, _> =
        required.iter().map(|(name, of)| ((*name).to_owned(), of.clone())).chain(null).collect();
    json!({ "properties": properties, "required": names })
}

/// A case of an object: the schemas of optional fields.
pub(crate) fn case_if_given<const N: usize>(optional: [(&str, Value); N]) -> Value {
    json!({ "properties": Map::from_iter(optional.map(|(name, of)| (name.to_owned(), of))) })
}

/// Restricts an object to these cases.
pub(crate) fn cases(schema: &mut Schema, of: impl Into<Value>) {
    let of = json!({ "anyOf": of.into() });
    let all = schema.ensure_object().entry("allOf").or_insert_with(|| json!([]));
    if let Value::Array(all) = all {
        all.push(of);
    }
}

/// An integer up to a limit, or `null`.
pub(crate) fn at_most(max: i64) -> Value {
    json!({ "type": ["integer", "null"], "maximum": max })
}

/// `false`, or `null`.
pub(crate) fn not_true() -> Value {
    json!({ "type": ["boolean", "null"], "enum": [false, null] })
}

/// Adds the aliases of a field, which is the first of these names. Exactly one of them is required.
pub(crate) fn aliased(schema: &mut Schema, names: &[&str]) {
    let Some((first, others)) = names.split_first() else { return };
    let object = schema.ensure_object();
    if let Some(Value::Array(required)) = object.get_mut("required") {
        required.retain(|name| name != first);
    }
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        let of = properties.get(*first).cloned().unwrap_or_default();
        properties.extend(others.iter().map(|name| ((*name).to_owned(), of.clone())));
    }
    let one = |name: &&str| {
        let absent = names.iter().filter(|other| other != &name);
        let absent: Map<_, _> = absent.map(|other| ((*other).to_owned(), Value::Bool(false))).collect();
        json!({ "properties": absent, "required": [name] })
    };
    cases(schema, names.iter().map(one).collect::<Vec<_>>());
}

/// `stream_options` require `stream`.
pub(crate) fn streams(schema: &mut Schema) {
    cases(schema, [case([], &["stream_options"]), case([("stream", only_true())], &[])]);
}

/// `top_logprobs` require `logprobs`.
pub(crate) fn top_logprobs(schema: &mut Schema) {
    cases(schema, [case_if_given([("top_logprobs", at_most(0))]), case([("logprobs", only_true())], &[])]);
}

/// A `tool_choice` of a call requires tools.
pub(crate) fn tools(schema: &mut Schema) {
    let some = json!({ "type": "array", "minItems": 1 });
    let none = json!({ "enum": ["none", "auto", null] });
    cases(schema, [case_if_given([("tool_choice", none)]), case([("tools", some)], &[])]);
}

/// Several continuations require a temperature above 0. `counts` are the fields with their number.
pub(crate) fn continuations(schema: &mut Schema, counts: &[&str]) {
    let one: Map<_, _> = counts.iter().map(|name| ((*name).to_owned(), at_most(1))).collect();
    let above_zero = json!({ "type": "number", "exclusiveMinimum": 0 });
    cases(schema, [json!({ "properties": one }), case([("temperature", above_zero)], &[])]);
}
