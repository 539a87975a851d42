//! What models of each kind accept in requests for generated text.

use schemars::Schema;
use serde_json::{Value, json};

use crate::diffusion::DiffusionKeys;
use crate::grammar::GrammarKeys;
use crate::json::cases::{case, case_if_given, cases, only_true};
use crate::sampling::SamplingParameters;

/// Restricts the schema of a request to what models that predict the next token accept: no [`DiffusionKeys`], no canvas in events, and
/// at least one new token unless the prompt is echoed. Other schemas stay as they are.
pub fn restrict_to_autoregressive(schema: &mut Schema) {
    let (no, null) = ([Value::Bool(false), Value::Null], [Value::Null]);
    restrict(schema, &[("include_canvas", &no)]);
    if !generates(schema) {
        return;
    }
    let keys: Vec<_> = DiffusionKeys::NAMES.iter().map(|name| (*name, &null[..])).collect();
    restrict(schema, &keys);
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
    let (zero, no, none) = (or_null(json!(0)), or_null(json!(false)), or_null(json!({})));
    let empty = or_null(json!(""));
    for (name, _, neutral) in SamplingParameters::default().not_of_canvases() {
        restrict(schema, &[(name, &or_null(json!(neutral)))]);
    }
    for name in GrammarKeys::NAMES {
        restrict(schema, &[(name, &[Value::Null])]);
    }
    // A boolean in `/v1/chat/completions`, and a number in `/v1/completions`, where 0 asks for log-probabilities too.
    let null = [Value::Null];
    let logprobs = if has_field(schema, "messages") { &no[..] } else { &null[..] };
    restrict(
        schema,
        &[
            ("echo", &no),
            ("suffix", &empty),
            ("truncate_prompt_tokens", &null),
            ("logprobs", logprobs),
            ("top_logprobs", &zero),
            ("logit_bias", &none),
        ],
    );
}

/// An answer is one text.
pub(crate) fn one_text(schema: &mut Schema) {
    one_ranked_text(schema);
    restrict(schema, &[("best_of", &[json!(1), Value::Null])]);
}

/// An answer is one text, which may be the best of several.
pub(crate) fn one_ranked_text(schema: &mut Schema) {
    restrict(schema, &[("n", &[json!(1), Value::Null])]);
}

/// Whether this is the schema of a request for generated text. `/v1/classify` has a `threshold` too, which is not that of the diffusion.
fn generates(schema: &Schema) -> bool {
    DiffusionKeys::NAMES.iter().all(|name| has_field(schema, name))
}

fn has_field(schema: &Schema, name: &str) -> bool {
    schema.get("properties").is_some_and(|fields| fields.get(name).is_some())
}

/// Restricts fields to these values, as far as the object has them.
pub(crate) fn restrict(schema: &mut Schema, fields: &[(&str, &[Value])]) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    for (name, values) in fields {
        if let Some(Value::Object(field)) = properties.get_mut(*name) {
            field.retain(|key, _| key == "description");
            field.insert("enum".to_owned(), json!(values));
        }
    }
}
