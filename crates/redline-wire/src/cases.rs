//! The cases of requests whose fields depend on each other, as JSON schemas.

use schemars::Schema;
use serde_json::{Map, Value, json};

use crate::DiffusionKeys;
use crate::shape::one_of;

/// Any value but `null`.
pub(crate) fn given() -> Value {
    json!({ "type": ["array", "boolean", "number", "object", "string"] })
}

/// `true`, and given.
fn yes() -> Value {
    json!({ "type": "boolean", "enum": [true] })
}

/// A case of an object: what it has, and the fields that are absent or `null`.
pub(crate) fn case<const N: usize>(has: [(&str, Value); N], lacks: &[&str]) -> Value {
    let required: Vec<&str> = has.iter().map(|(name, _)| *name).collect();
    let null = lacks.iter().map(|name| ((*name).to_owned(), json!({ "type": "null" })));
    let properties: Map<_, _> =
        has.iter().map(|(name, of)| ((*name).to_owned(), of.clone())).chain(null).collect();
    json!({ "properties": properties, "required": required })
}

/// A case of an object: what some of its fields are, if they are given.
fn case_if_given<const N: usize>(of: [(&str, Value); N]) -> Value {
    json!({ "properties": Map::from_iter(of.map(|(name, of)| (name.to_owned(), of))) })
}

/// Restricts an object to these cases.
pub(crate) fn cases(schema: &mut Schema, of: impl Into<Value>) {
    let of = json!({ "anyOf": of.into() });
    let all = schema.ensure_object().entry("allOf").or_insert_with(|| json!([]));
    if let Value::Array(all) = all {
        all.push(of);
    }
}

/// A number of at most so much, or none.
fn at_most(most: i64) -> Value {
    json!({ "type": ["integer", "null"], "maximum": most })
}

/// Gives a field further names. It is given once.
fn aliased(schema: &mut Schema, names: &[&str]) {
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

/// The names of the texts of `/v1/classify`.
pub(crate) fn classify(schema: &mut Schema) {
    aliased(schema, &["input", "text", "texts"]);
}

/// The names of the text of `/tokenize`.
pub(crate) fn tokenize(schema: &mut Schema) {
    aliased(schema, &["prompt", "content", "text"]);
}

/// Options of streams belong to streams.
fn streams(schema: &mut Schema) {
    cases(schema, [case([], &["stream_options"]), case([("stream", yes())], &[])]);
}

/// Functions are given only if none may be called.
fn tools(schema: &mut Schema) {
    let none = json!({ "type": "string", "enum": ["none"] });
    let empty = json!({ "type": ["array", "null"], "maxItems": 0 });
    cases(schema, [case_if_given([("tools", empty)]), case([("tool_choice", none)], &[])]);
}

/// Several continuations need a temperature.
fn continuations(schema: &mut Schema, counts: &[&str]) {
    let one: Map<_, _> = counts.iter().map(|name| ((*name).to_owned(), at_most(1))).collect();
    let warm = json!({ "type": "number", "exclusiveMinimum": 0 });
    cases(schema, [json!({ "properties": one }), case([("temperature", warm)], &[])]);
}

/// `/v1/completions`.
pub(crate) fn completion(schema: &mut Schema) {
    streams(schema);
    continuations(schema, &["n", "best_of"]);
    let no = json!({ "type": ["boolean", "null"], "enum": [false, null] });
    cases(
        schema,
        [
            case_if_given([("echo", no)]),
            case([], &["logprobs"]),
            case_if_given([("n", at_most(1)), ("best_of", at_most(1))]),
        ],
    );
}

/// Restricts the schema of a request to what models that predict the next token accept: no [`DiffusionKeys`], no canvas in events, and
/// at least one new token, unless the prompt is repeated. Other schemas stay as they are.
pub fn restrict_to_autoregressive(schema: &mut Schema) {
    let Some(Value::Object(fields)) = schema.get_mut("properties") else { return };
    // A part of an answer has some of these names too.
    let of_request = DiffusionKeys::NAMES.iter().all(|name| fields.contains_key(*name));
    let null = DiffusionKeys::NAMES.iter().filter(|_| of_request).map(|name| (*name, json!([null])));
    for (name, values) in null.chain([("include_canvas", json!([false, null]))]) {
        if let Some(Value::Object(field)) = fields.get_mut(name) {
            field.retain(|key, _| key == "description");
            field.insert("enum".to_owned(), values);
        }
    }
    if of_request && fields.contains_key("echo") {
        let some = json!({ "type": ["integer", "null"], "minimum": 1 });
        cases(schema, [case_if_given([("max_tokens", some)]), case([("echo", yes())], &[])]);
    }
}

/// `/v1/chat/completions`.
pub(crate) fn chat(schema: &mut Schema) {
    streams(schema);
    tools(schema);
    continuations(schema, &["n"]);
    cases(schema, [case_if_given([("top_logprobs", at_most(0))]), case([("logprobs", yes())], &[])]);
}

/// `/v1/responses`, whose streams end with the token counts.
pub(crate) fn responses(schema: &mut Schema) {
    streams(schema);
    tools(schema);
    let options = case([], &["include_usage", "continuous_usage_stats"]);
    cases(schema, [case_if_given([("stream_options", options)])]);
    let some = json!({ "type": ["string", "array"], "minItems": 1 });
    cases(schema, [case_if_given([("input", some)]), case([("instructions", given())], &[])]);
}

/// `/v1/score`: labels in one of two forms, and texts or token ids.
pub(crate) fn score(schema: &mut Schema) {
    let (texts, ids) = ("labels", "label_token_ids");
    cases(schema, [case([(texts, given())], &[ids]), case([(ids, given())], &[texts])]);
    let text = json!({ "type": "string" });
    let texts = json!({ "anyOf": [text, { "type": "array", "items": text }] });
    let ids = json!({ "type": "array", "items": { "type": "array" } });
    let list = json!({ "type": "array" });
    cases(
        schema,
        [
            case([("query", text.clone()), ("items", texts)], &[]),
            case([("query", list), ("items", ids)], &[]),
        ],
    );
}

/// `/score` in vLLM's form: one of four pairs of lists.
pub(crate) fn pairs(schema: &mut Schema) {
    let all = ["queries", "documents", "items", "data_1", "data_2", "text_1", "text_2"];
    let sides = [("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2")];
    let side = |(left, right)| {
        let lacks: Vec<&str> = all.into_iter().filter(|name| *name != left && *name != right).collect();
        case([(left, given()), (right, given())], &lacks)
    };
    cases(schema, sides.map(side));
}

/// `/v1/rerank`: Cohere's form, or TEI's.
pub(crate) fn rerank(schema: &mut Schema) {
    let of_cohere = ["top_n", "return_documents", "max_tokens_per_doc", "documents"];
    let of_tei = ["return_text", "truncate", "truncation_direction", "raw_scores", "texts"];
    cases(schema, [case([("documents", given())], &of_tei), case([("texts", given())], &of_cohere)]);
}

/// An item of `/v1/responses`: a message with a role and a content.
pub(crate) fn message(schema: &mut Schema) {
    let kind = json!({ "type": ["string", "null"], "enum": ["message", null] });
    cases(
        schema,
        [json!({
            "properties": { "type": kind, "role": given(), "content": given() }, "required": ["role", "content"]
        })],
    );
}

/// A part of such a content: a text.
pub(crate) fn part(schema: &mut Schema) {
    let kinds = one_of(&["input_text", "output_text"]);
    cases(schema, [case([("type", kinds), ("text", given())], &[])]);
}
