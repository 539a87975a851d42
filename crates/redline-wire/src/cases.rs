//! JSON schemas of fields that depend on each other: an object has one of several cases.
//!
//! The cases of a request are next to its type. Here is how they are built, and what requests for generated text have in common.

use schemars::Schema;
use serde_json::{Map, Value, json};

use crate::DiffusionKeys;
use crate::shape::one_of;

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

/// Functions require a `tool_choice` that calls none of them.
pub(crate) fn tools(schema: &mut Schema) {
    let empty = json!({ "type": ["array", "null"], "maxItems": 0 });
    let none = case([("tool_choice", one_of(&["none"]))], &[]);
    cases(schema, [case_if_given([("tools", empty)]), none]);
}

/// Several continuations require a temperature above 0. `counts` are the fields with their number.
pub(crate) fn continuations(schema: &mut Schema, counts: &[&str]) {
    let one: Map<_, _> = counts.iter().map(|name| ((*name).to_owned(), at_most(1))).collect();
    let above_zero = json!({ "type": "number", "exclusiveMinimum": 0 });
    cases(schema, [json!({ "properties": one }), case([("temperature", above_zero)], &[])]);
}

/// Restricts the schema of a request to what models that predict the next token accept: no [`DiffusionKeys`], no canvas in events, and
/// at least one new token unless the prompt is echoed. Other schemas stay as they are.
pub fn restrict_to_autoregressive(schema: &mut Schema) {
    let (no, null) = ([Value::Bool(false), Value::Null], [Value::Null]);
    restrict(schema, &[("include_canvas", &no)]);
    if !generates(schema) {
        return;
    }
    restrict(schema, &DiffusionKeys::NAMES.map(|name| (name, &null[..])));
    if has_field(schema, "echo") {
        let some = json!({ "type": ["integer", "null"], "minimum": 1 });
        cases(schema, [case_if_given([("max_tokens", some)]), case([("echo", only_true())], &[])]);
    }
}

/// Restricts the schema of a request to what models that fill masks accept: fields that they do not support have their neutral values.
/// Other schemas stay as they are.
pub fn restrict_to_diffusion(schema: &mut Schema) {
    if !generates(schema) {
        return;
    }
    let or_null = |value: Value| [value, Value::Null];
    let (zero, one, no, none) =
        (or_null(json!(0)), or_null(json!(1)), or_null(json!(false)), or_null(json!({})));
    // A boolean in `/v1/chat/completions`, and a number in `/v1/completions`, where 0 asks for log-probabilities too.
    let null = [Value::Null];
    let logprobs = if has_field(schema, "messages") { &no[..] } else { &null[..] };
    restrict(
        schema,
        &[
            ("n", &one),
            ("best_of", &one),
            ("min_p", &zero),
            ("typical_p", &one),
            ("presence_penalty", &zero),
            ("frequency_penalty", &zero),
            ("repetition_penalty", &one),
            ("echo", &no),
            ("logprobs", logprobs),
            ("top_logprobs", &zero),
            ("logit_bias", &none),
        ],
    );
}

/// Whether this is the schema of a request for generated text. `/v1/classify` has a `threshold` too, which is not that of the diffusion.
fn generates(schema: &Schema) -> bool {
    DiffusionKeys::NAMES.iter().all(|name| has_field(schema, name))
}

fn has_field(schema: &Schema, name: &str) -> bool {
    schema.get("properties").is_some_and(|fields| fields.get(name).is_some())
}

/// Restricts fields to these values, as far as the object has them.
fn restrict(schema: &mut Schema, fields: &[(&str, &[Value])]) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    for (name, values) in fields {
        if let Some(Value::Object(field)) = properties.get_mut(*name) {
            field.retain(|key, _| key == "description");
            field.insert("enum".to_owned(), json!(values));
        }
    }
}
