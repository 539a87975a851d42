//! The OpenAPI document: the operations of the routes, with the schemas of the types that they parse and write.

use axum::http::StatusCode;
use redline_api::error_body::{AnthropicErrorBody, ErrorBody, OllamaErrorBody, TeiErrorBody, ValidationBody};
use redline_api::generation::mode::GenerationMode;
use redline_api::generation::restrict::{restrict_to_autoregressive, restrict_to_diffusion};
use redline_api::json::limits::MAX_SECONDS;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::answer::{EVENTS, JSON, LINES};
use crate::config::ServerConfig;
use crate::error_format::ErrorFormat;
use crate::request::{MAX_ID, QUEUE_TIMEOUT, REQUEST_ID};
use crate::route::{Method, ResponseBody, Route, SchemaOf, schema_of};

/// The statuses of errors that every route may have: an invalid head, another origin, a bug, and the end of the server.
const STATUSES: &[u16] = &[400, 403, 500, 503];
/// Those of routes with a body: the body, the model, the time, the size, the type, the queue and the kind of model.
const STATUSES_WITH_BODY: &[u16] = &[404, 408, 413, 415, 429, 501];

/// The description of the API as a whole.
const DESCRIPTION: &str = "An inference engine for large language models. Request bodies may be compressed with gzip or zstd \
(`Content-Encoding`). Unknown paths are answered with 404, and other methods with 405 and the header `Allow`. \
The schemas do not state the limits of the model, such as its context and its vocabulary, nor every rule by which fields depend on \
each other. A request that violates them is answered with 400. `/v1/systemone` and the routes of Text Embeddings Inference and Text \
Generation Inference answer with 422, or with 413 if there are too many texts or questions. The error names the field.";

/// The schemas of requests and those of responses. A field with a default is optional in requests; in responses, only fields that may
/// be left out are.
struct Schemas {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

impl Schemas {
    /// Schemas for models of this mode.
    fn new(mode: GenerationMode) -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        let restrict: fn(&mut Schema) = match mode {
            GenerationMode::Autoregressive => restrict_to_autoregressive,
            GenerationMode::Diffusion => restrict_to_diffusion,
        };
        let read = settings().with_transform(RecursiveTransform(bound)).with_transform(restrict);
        Self {
            read: read.for_deserialize().into_generator(),
            written: settings().for_serialize().into_generator(),
        }
    }

    /// The named schemas of requests, and those of responses. A name that both have stands for the same schema.
    fn definitions(mut self) -> [Map<String, Value>; 2] {
        [self.read.take_definitions(true), self.written.take_definitions(true)]
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
    let mut schemas = Schemas::new(mode);
    let mut paths = Map::new();
    for route in routes {
        let method = key_of(route.method);
        let path = route.path.replace("{*", "{");
        let operations = paths.entry(path).or_insert_with(|| json!({}));
        operations[method] = operation(route, config, &mut schemas);
    }
    let [mut definitions, of_responses] = schemas.definitions();
    definitions.extend(of_responses);
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
            "license": { "name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE") },
        },
        "paths": paths,
        "components": components,
    });
    document.to_string()
}

/// The key of a method in the document.
fn key_of(method: Method) -> String {
    method.name().to_ascii_lowercase()
}

/// The operation of a route.
fn operation(route: &Route, config: &ServerConfig, schemas: &mut Schemas) -> Value {
    let needs_key = route.access.needs_key(config);
    let mut operation = json!({
        "operationId": format!("{}_{}", key_of(route.method), name(route.path)),
        "summary": route.operation.summary,
        "parameters": parameters(route),
        "responses": responses(route, needs_key, schemas),
        "security": if needs_key { json!([{ "bearer": [] }, { "x-api-key": [] }]) } else { json!([]) },
    });
    if route.takes_body() {
        let schema = any_of(route.operation.request_bodies, &mut schemas.read);
        operation["requestBody"] = json!({ "required": true, "content": { JSON: { "schema": schema } } });
    }
    operation
}

/// The words of a path, such as `v1_models_id`.
fn name(path: &str) -> String {
    let words: Vec<_> = path.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "index".to_owned() } else { words.join("_") }
}

/// The headers that a route reads, and the variable part of its path.
fn parameters(route: &Route) -> Vec<Value> {
    let mut all = vec![json!({
        "name": REQUEST_ID,
        "in": "header",
        "description": format!(
            "Identifies the request in the log and in the answer: up to {MAX_ID} letters, digits, `.`, `_` and `-`. \
             Another value is replaced."
        ),
        "schema": { "type": "string" },
    })];
    if route.takes_body() {
        all.push(json!({
            "name": QUEUE_TIMEOUT,
            "in": "header",
            "description": "How long the request may wait for its first pass, in seconds.",
            "schema": { "type": "number", "minimum": 0, "maximum": MAX_SECONDS },
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

/// The responses of a route by status.
fn responses(route: &Route, needs_key: bool, schemas: &mut Schemas) -> Value {
    let id = |name: &&str| ((*name).to_owned(), json!({ "required": true, "schema": { "type": "string" } }));
    let headers: Map<String, Value> = route.error_format.id_headers().iter().map(id).collect();
    let content = content(&route.operation.response, &mut schemas.written);
    let success = json!({ "description": "Success.", "headers": headers, "content": content });
    let mut all = Map::from_iter([("200".to_owned(), success)]);
    let with_body = if route.takes_body() { STATUSES_WITH_BODY } else { &[] };
    let of_key: &[u16] = if needs_key { &[401] } else { &[] };
    let of_format: &[u16] = match route.error_format {
        ErrorFormat::SystemOne if route.takes_body() => &[422],
        ErrorFormat::Tei if route.takes_body() => &[422, 424],
        ErrorFormat::OpenAi
        | ErrorFormat::Anthropic
        | ErrorFormat::Ollama
        | ErrorFormat::SystemOne
        | ErrorFormat::Tei => &[],
    };
    for &status in
        [STATUSES, with_body, of_key, of_format, route.operation.further_statuses].into_iter().flatten()
    {
        let mut headers = headers.clone();
        match status {
            401 => headers.insert("WWW-Authenticate".to_owned(), json!({ "schema": { "type": "string" } })),
            429 | 503 => {
                let seconds = json!({ "type": "integer", "minimum": 1 });
                headers.insert("Retry-After".to_owned(), json!({ "schema": seconds }))
            }
            _ => None,
        };
        let error = error_of(route.error_format, status)(&mut schemas.written);
        let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        let response = json!({
            "description": format!("{}.", reason.unwrap_or("The request failed")),
            "headers": headers,
            "content": { JSON: { "schema": error } },
        });
        all.insert(status.to_string(), response);
    }
    Value::Object(all)
}

/// The bodies of successful responses by media type.
fn content(response: &ResponseBody, generator: &mut SchemaGenerator) -> Value {
    match response {
        ResponseBody::Json(schemas) => json!({ JSON: { "schema": any_of(schemas, generator) } }),
        ResponseBody::JsonOrEvents(schema, event) => json!({
            JSON: { "schema": schema(generator) },
            EVENTS: { "schema": events(event(generator)) },
        }),
        ResponseBody::JsonOrLines(schema, line) => json!({
            JSON: { "schema": schema(generator) },
            LINES: { "schema": line(generator) },
        }),
        ResponseBody::Events(event) => json!({ EVENTS: { "schema": events(event(generator)) } }),
        ResponseBody::Text(media) => {
            let text = |media: &&str| ((*media).to_owned(), json!({ "schema": { "type": "string" } }));
            Value::Object(media.iter().map(text).collect())
        }
    }
}

/// A server-sent event of a stream, whose data is JSON with this schema, or the mark after the last one.
fn events(data: Schema) -> Value {
    json!({
        "type": "object",
        "description": "An event of a stream.",
        "properties": {
            "event": { "type": "string" },
            "data": { "anyOf": [
                { "type": "string", "enum": ["[DONE]"] },
                { "type": "string", "contentMediaType": JSON, "contentSchema": data },
            ] },
        },
        "required": ["data"],
    })
}

/// The schema of the bodies of errors in this format and with this status.
fn error_of(format: ErrorFormat, status: u16) -> SchemaOf {
    match format {
        ErrorFormat::Tei => schema_of::<TeiErrorBody>,
        ErrorFormat::Anthropic => schema_of::<AnthropicErrorBody>,
        ErrorFormat::Ollama => schema_of::<OllamaErrorBody>,
        ErrorFormat::SystemOne if status == 422 => schema_of::<ValidationBody>,
        ErrorFormat::OpenAi | ErrorFormat::SystemOne => schema_of::<ErrorBody>,
    }
}

/// The schema of values that have one of these schemas.
fn any_of(schemas: &[SchemaOf], generator: &mut SchemaGenerator) -> Schema {
    if let [schema] = schemas {
        return schema(generator);
    }
    let schemas: Vec<_> = schemas.iter().map(|schema| schema(generator)).collect();
    schemars::json_schema!({ "anyOf": schemas })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::all;

    #[test]
    fn no_name_stands_for_two_schemas() {
        for mode in [GenerationMode::Autoregressive, GenerationMode::Diffusion] {
            let mut schemas = Schemas::new(mode);
            for route in all() {
                operation(route, &ServerConfig::default(), &mut schemas);
            }
            let [requests, responses] = schemas.definitions();
            assert!(requests.len() > 20 && responses.len() > 40, "{} {}", requests.len(), responses.len());
            for (name, schema) in &requests {
                assert!(responses.get(name).is_none_or(|other| other == schema), "{name}");
            }
        }
    }
}
