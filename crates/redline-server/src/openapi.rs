//! The OpenAPI document: what routes say about themselves, with the schemas of the types that they parse and write.

use axum::http::StatusCode;
use redline_api::foreign::GenerationMode;
use redline_wire::{ErrorBody, TeiErrorBody, ValidationBody, restrict_to_autoregressive};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::answer::{EVENTS, JSON};
use crate::config::ServerConfig;
use crate::form::Form;
use crate::request::{MAX_WAIT, QUEUE_TIMEOUT, REQUEST_ID};
use crate::route::{Access, Gives, Route, SchemaOf, schema_of};

/// The statuses of errors that every route may have: another origin, a bug, and the end of the server.
const STATUSES: &[u16] = &[403, 500, 503];
/// Those of routes with a body: the body, the model, the time, the size, the type, the queue and the kind of model.
const STATUSES_WITH_BODY: &[u16] = &[400, 404, 408, 413, 415, 429, 501];

/// What clients should know that no operation says.
const DESCRIPTION: &str = "An inference engine for large language models. Bodies may be compressed with gzip or zstd \
(`Content-Encoding`). A path that is not here is answered with 404, and another method with 405 and the header `Allow`. \
Limits that depend on the model, such as its context and its vocabulary, are not in the schemas, and neither is all that fields \
require of each other: such a request is answered with 400, and `param` names the field.";

/// The schemas of what is read and of what is written. A field that may be absent is optional in the first, and only in the second
/// if it is left out.
struct Schemas {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        let read = settings().with_transform(RecursiveTransform(bound));
        Self {
            read: read.for_deserialize().into_generator(),
            written: settings().for_serialize().into_generator(),
        }
    }

    /// All named schemas, and the names that stand for two different ones.
    fn definitions(mut self) -> (Map<String, Value>, Vec<String>) {
        let mut all = self.written.take_definitions(true);
        let mut twice = Vec::new();
        for (name, schema) in self.read.take_definitions(true) {
            if let Some(other) = all.insert(name.clone(), schema)
                && all.get(&name) != Some(&other)
            {
                twice.push(name);
            }
        }
        (all, twice)
    }
}

/// Bounds numbers of a request by their types.
fn bound(schema: &mut Schema) {
    let bounds = match schema.get("format").and_then(Value::as_str) {
        Some("uint" | "uint64") => [json!(0), json!(u64::MAX)],
        Some("uint32") => [json!(0), json!(u32::MAX)],
        Some("int64") => [json!(i64::MIN), json!(i64::MAX)],
        Some("float") => [json!(f32::MIN), json!(f32::MAX)],
        _ => return,
    };
    let object = schema.ensure_object();
    for (key, bound) in ["minimum", "maximum"].into_iter().zip(bounds) {
        object.entry(key).or_insert(bound);
    }
}

/// The document of these routes, as JSON.
pub(crate) fn document<'a>(
    routes: impl Iterator<Item = &'a Route>,
    config: &ServerConfig,
    mode: GenerationMode,
) -> String {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for route in routes {
        let method = if route.takes_body() { "post" } else { "get" };
        let path = route.path.replace("{*", "{");
        let operations = paths.entry(path).or_insert_with(|| json!({}));
        operations[method] = operation(route, config, &mut schemas);
    }
    let (mut definitions, _) = schemas.definitions();
    if mode == GenerationMode::Autoregressive {
        definitions
            .values_mut()
            .filter_map(|schema| schema.try_into().ok())
            .for_each(restrict_to_autoregressive);
    }
    let mut components = json!({ "schemas": definitions });
    if !config.keys.is_empty() {
        components["securitySchemes"] = json!({
            "bearer": { "type": "http", "scheme": "bearer" },
            "x-api-key": { "type": "apiKey", "in": "header", "name": "x-api-key" },
        });
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Redline",
            "description": DESCRIPTION,
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0 OR MIT" },
        },
        "paths": paths,
        "components": components,
    });
    document.to_string()
}

/// Whether a route needs a key.
fn needs_key(route: &Route, config: &ServerConfig) -> bool {
    let guarded = match route.access {
        Access::Public => false,
        Access::Key => true,
        Access::Metrics => !config.public_metrics,
    };
    guarded && !config.keys.is_empty()
}

/// What a route takes and answers.
fn operation(route: &Route, config: &ServerConfig, schemas: &mut Schemas) -> Value {
    let about = &route.about;
    let name = route.path.trim_matches(['/', '{', '*', '}']).replace(|of: char| !of.is_alphanumeric(), "_");
    let needs_key = needs_key(route, config);
    let mut operation = json!({
        "operationId": format!("{}_{name}", if route.takes_body() { "post" } else { "get" }),
        "summary": about.summary,
        "parameters": parameters(route),
        "responses": responses(route, needs_key, schemas),
        "security": if needs_key { json!([{ "bearer": [] }, { "x-api-key": [] }]) } else { json!([]) },
    });
    if route.takes_body() {
        let schema = any_of(about.takes, &mut schemas.read);
        operation["requestBody"] = json!({ "required": true, "content": { JSON: { "schema": schema } } });
    }
    operation
}

/// The headers that a route reads, and the variable part of its path.
fn parameters(route: &Route) -> Vec<Value> {
    let mut all = vec![json!({
        "name": REQUEST_ID,
        "in": "header",
        "description": "Identifies the request in the log and in the answer: up to 128 letters, digits, `.`, `_` and `-`. \
            Another value is replaced.",
        "schema": { "type": "string" },
    })];
    if route.takes_body() {
        all.push(json!({
            "name": QUEUE_TIMEOUT,
            "in": "header",
            "description": "How long the request may wait for its first pass, in seconds.",
            "schema": { "type": "number", "minimum": 0, "maximum": MAX_WAIT },
        }));
    }
    if let Some((_, name)) = route.path.split_once("{*") {
        all.push(json!({
            "name": name.trim_end_matches('}'),
            "in": "path",
            "required": true,
            "description": "It may contain `/`.",
            "schema": { "type": "string", "minLength": 1 },
        }));
    }
    all
}

/// The answers of a route by status.
fn responses(route: &Route, needs_key: bool, schemas: &mut Schemas) -> Value {
    let id = |name: &&str| ((*name).to_owned(), json!({ "required": true, "schema": { "type": "string" } }));
    let headers: Map<String, Value> = route.form.id_headers().iter().map(id).collect();
    let content = content(&route.about.gives, &mut schemas.written);
    let success = json!({ "description": "Success.", "headers": headers, "content": content });
    let mut all = Map::from_iter([("200".to_owned(), success)]);
    let with_body = if route.takes_body() { STATUSES_WITH_BODY } else { &[] };
    let of_key: &[u16] = if needs_key { &[401] } else { &[] };
    let of_form: &[u16] = if route.takes_body() && route.form != Form::OpenAi { &[422] } else { &[] };
    for &status in [STATUSES, with_body, of_key, of_form, route.about.statuses].into_iter().flatten() {
        let mut headers = headers.clone();
        match status {
            401 => headers.insert("WWW-Authenticate".to_owned(), json!({ "schema": { "type": "string" } })),
            429 | 503 => {
                let seconds = json!({ "type": "integer", "minimum": 1 });
                headers.insert("Retry-After".to_owned(), json!({ "schema": seconds }))
            }
            _ => None,
        };
        let error = error_of(route.form, status)(&mut schemas.written);
        let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        let answer = json!({
            "description": format!("{}.", reason.unwrap_or("The request failed")),
            "headers": headers,
            "content": { JSON: { "schema": error } },
        });
        all.insert(status.to_string(), answer);
    }
    Value::Object(all)
}

/// The bodies of answers by media type.
fn content(gives: &Gives, generator: &mut SchemaGenerator) -> Value {
    match gives {
        Gives::Json(forms) => json!({ JSON: { "schema": any_of(forms, generator) } }),
        Gives::JsonOrEvents(form, event) => json!({
            JSON: { "schema": form(generator) },
            EVENTS: { "schema": events(event(generator)) },
        }),
        Gives::Text(media) => {
            let text = |media: &&str| ((*media).to_owned(), json!({ "schema": { "type": "string" } }));
            Value::Object(media.iter().map(text).collect())
        }
    }
}

/// One of the server-sent events of a stream, whose data is JSON of this form, or the mark after the last one.
fn events(of: Schema) -> Value {
    json!({
        "type": "object",
        "description": "An event of a stream.",
        "properties": {
            "event": { "type": "string" },
            "data": { "anyOf": [
                { "type": "string", "enum": ["[DONE]"] },
                { "type": "string", "contentMediaType": JSON, "contentSchema": of },
            ] },
        },
        "required": ["data"],
    })
}

/// The body of an error of this form.
fn error_of(form: Form, status: u16) -> SchemaOf {
    match form {
        Form::Tei => schema_of::<TeiErrorBody>,
        Form::SystemOne if status == 422 => schema_of::<ValidationBody>,
        Form::OpenAi | Form::SystemOne => schema_of::<ErrorBody>,
    }
}

/// One of these forms.
fn any_of(forms: &[SchemaOf], generator: &mut SchemaGenerator) -> Schema {
    if let [form] = forms {
        return form(generator);
    }
    let forms: Vec<_> = forms.iter().map(|form| form(generator)).collect();
    schemars::json_schema!({ "anyOf": forms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::all;

    #[test]
    fn no_name_stands_for_two_schemas() {
        let mut schemas = Schemas::new();
        for route in all() {
            operation(route, &ServerConfig::default(), &mut schemas);
        }
        let (definitions, twice) = schemas.definitions();
        assert!(definitions.len() > 60, "{}", definitions.len());
        assert_eq!(twice, [""; 0]);
    }
}
