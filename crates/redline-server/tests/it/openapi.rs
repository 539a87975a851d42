//! The OpenAPI document describes the routes, what they take and what they answer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::Validator;
use jsonschema::meta;
use redline_api::generation::mode::GenerationMode;
use redline_client::HttpAnswer;
use redline_engine::AdapterOptions;
use redline_server::{ApiKey, RouteInfo, ServerConfig, openapi, routes};
use serde_json::{Map, Value, json};

use crate::bad_input::{BODIES, OF_TEI};
use crate::server::{Running, chat, error, loaded_from, masked, model_with, start, start_with};

/// The guide, whose `curl` lines are examples.
const GUIDE: &str = include_str!("../../../../docs/serving.md");

/// The document of a server with the usual settings, whose model predicts the next token.
static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| document(&ServerConfig::default(), GenerationMode::Autoregressive));
/// As above, with a model that fills masks.
static OF_CANVASES: LazyLock<Value> =
    LazyLock::new(|| document(&ServerConfig::default(), GenerationMode::Diffusion));

fn document(config: &ServerConfig, mode: GenerationMode) -> Value {
    serde_json::from_str(&openapi(config, mode)).unwrap()
}

fn document_of(mode: GenerationMode) -> &'static Value {
    match mode {
        GenerationMode::Autoregressive => &DOCUMENT,
        GenerationMode::Diffusion => &OF_CANVASES,
    }
}

/// The errors of a value in the schema at this place of the document. An answer has no fields that its schema does not name.
fn errors(mode: GenerationMode, place: &str, value: &Value) -> Vec<String> {
    static VALIDATORS: Mutex<BTreeMap<String, Arc<Validator>>> = Mutex::new(BTreeMap::new());
    let key = format!("{} {place}", mode.name());
    let validator = VALIDATORS.lock().unwrap().get(&key).cloned().unwrap_or_else(|| {
        let document = document_of(mode);
        let mut schema =
            document.pointer(place).unwrap_or_else(|| panic!("{place} is not described")).clone();
        let mut components = document["components"].clone();
        if place.contains("/responses/") {
            close(&mut components["schemas"]);
        }
        schema["components"] = components;
        Arc::new(jsonschema::validator_for(&schema).unwrap())
    });
    VALIDATORS.lock().unwrap().insert(key, validator.clone());
    validator.iter_errors(value).map(|error| format!("{} at {}", error, error.instance_path())).collect()
}

/// Lets objects have only the fields that their schemas name.
fn close(schemas: &mut Value) {
    for schema in schemas.as_object_mut().unwrap().values_mut() {
        if schema.get("additionalProperties").is_none() {
            schema["unevaluatedProperties"] = json!(false);
        }
    }
}

/// The place of something that a route takes or answers.
fn place(method: &str, path: &str, rest: &str) -> String {
    format!("/paths/{}/{method}/{rest}", path.replace('/', "~1"))
}

/// The place of the schema of the answers with this status and media type.
fn of_answer(method: &str, path: &str, status: u16, media: &str) -> String {
    place(method, path, &format!("responses/{status}/content/{}/schema", media.replace('/', "~1")))
}

/// The place of the schema of the body of a route.
fn of_body(path: &str) -> String {
    place("post", path, "requestBody/content/application~1json/schema")
}

/// Whether the schema allows this body. `None`: it is not JSON that can be checked.
pub(crate) fn allows(mode: GenerationMode, path: &str, body: &str) -> Option<bool> {
    let body = serde_json::from_str(body).ok()?;
    Some(errors(mode, &of_body(path), &body).is_empty())
}

/// Checks that the document describes the answer to a body, and the body if it was accepted.
pub(crate) fn described(mode: GenerationMode, path: &str, body: &str, answer: &HttpAnswer) {
    if answer.status == 200 {
        let body = serde_json::from_str(body).unwrap();
        let wrong = errors(mode, &of_body(path), &body);
        let shown: String = body.to_string().chars().take(300).collect();
        assert!(wrong.is_empty(), "{path} accepts {shown}: {wrong:?}");
    }
    answered(mode, "post", path, answer);
}

/// Checks that the document describes the answer of a route.
fn answered(mode: GenerationMode, method: &str, path: &str, answer: &HttpAnswer) {
    let media = answer.header("content-type").unwrap();
    let schema = of_answer(method, path, answer.status, media);
    assert!(
        document_of(mode).pointer(&schema).is_some(),
        "{path}: {} {media} is not described",
        answer.status
    );
    if media == "application/json" {
        let text = answer.text();
        let wrong = errors(mode, &schema, &serde_json::from_str(&text).unwrap());
        assert!(wrong.is_empty(), "{method} {path} {text}: {wrong:?}");
    }
}

/// Checks that the document describes the data of an event.
pub(crate) fn described_event(mode: GenerationMode, path: &str, data: &str) {
    let media = of_answer("post", path, 200, "text/event-stream; charset=utf-8");
    let data_of = format!("{media}/properties/data/anyOf");
    match serde_json::from_str(data) {
        Ok(event) => {
            let wrong = errors(mode, &format!("{data_of}/1/contentSchema"), &event);
            assert!(wrong.is_empty(), "{path} {data}: {wrong:?}");
        }
        Err(_) => assert!(errors(mode, &format!("{data_of}/0"), &json!(data)).is_empty(), "{path}: {data}"),
    }
}

#[test]
fn the_document_has_exactly_the_routes_of_the_server() {
    let keys = ServerConfig { keys: vec![ApiKey::new("a", "secret")], ..ServerConfig::default() };
    let document = document(&keys, GenerationMode::Autoregressive);
    let (mut described, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let route = format!("{} {path}", method.to_uppercase());
            assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{route}");
            assert_eq!(operation["requestBody"].is_object(), method == "post", "{route}");
            assert!(operation["responses"]["200"]["content"].is_object(), "{route}");
            let public = operation["security"] == json!([]);
            assert_eq!(operation["responses"]["401"].is_null(), public, "{route}");
            let id = operation["operationId"].as_str().unwrap();
            let words: Vec<_> = id.split('_').collect();
            assert!(words.len() > 1 && words.iter().all(|word| !word.is_empty()), "{route}: {id}");
            assert!(ids.insert(id.to_owned()), "{route}: {id}");
            described.insert((route, public));
        }
    }
    let route =
        |RouteInfo { method, path, public }| (format!("{method} {}", path.replace("{*", "{")), public);
    assert_eq!(described, routes().into_iter().map(route).collect());
    assert!(!document["components"]["securitySchemes"]["bearer"].is_null());
    let plain = ServerConfig { page: false, public_metrics: true, ..keys };
    let plain = self::document(&plain, GenerationMode::Autoregressive);
    assert_eq!(plain["paths"]["/metrics"]["get"]["security"], json!([]));
    assert!(plain["paths"]["/"]["get"].is_null() && plain["paths"]["/page/abilities"].is_null());
    assert!(DOCUMENT["components"]["securitySchemes"].is_null());
    assert_eq!(DOCUMENT["paths"]["/v1/score"]["post"]["security"], json!([]));
    assert_eq!(DOCUMENT["paths"]["/"]["get"]["operationId"], "get_index");
    assert_eq!(DOCUMENT["paths"]["/v1/models/{id}"]["get"]["operationId"], "get_v1_models_id");
}

#[test]
fn the_route_answers_with_the_document() {
    let answer = start().client.get("/openapi.json").unwrap();
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    assert_eq!(serde_json::from_str::<Value>(&answer.text()).unwrap(), *DOCUMENT);
}

/// Calls `visit` for every schema below a value, with its place.
fn schemas(value: &Value, place: &str, visit: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let inner = format!("{place}/{key}");
                if ["schema", "contentSchema"].contains(&key.as_str()) || place == "/components/schemas" {
                    visit(&inner, value);
                }
                schemas(value, &inner, visit);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| schemas(value, place, visit)),
        _ => (),
    }
}

#[test]
fn the_document_is_valid() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(entries) => {
                found.extend(entries.get("$ref").and_then(Value::as_str).map(str::to_owned));
                entries.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => (),
        }
    }
    let document = &*DOCUMENT;
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["info"]["title"].is_string() && document["info"]["version"].is_string());
    for document in [document, &OF_CANVASES] {
        assert!(!document.to_string().contains("[`"), "a link of Rust's documentation");
    }
    let mut count = 0;
    schemas(document, "", &mut |place, schema| {
        count += 1;
        assert!(schema.is_object() || schema.is_boolean(), "{place}: {schema}");
        let named = json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "allOf": [schema] });
        assert!(meta::is_valid(&named), "{place}: {schema}");
    });
    assert!(count > 200, "{count}");
    let mut found = BTreeSet::new();
    references(document, &mut found);
    assert!(found.len() > 40, "{found:?}");
    let named = document["components"]["schemas"].as_object().unwrap();
    for reference in &found {
        assert!(document.pointer(&reference[1..]).is_some_and(Value::is_object), "{reference}");
    }
    assert_eq!(found.len(), named.len(), "schemas that nothing refers to");
    for (path, operations) in document["paths"].as_object().unwrap() {
        assert!(path.starts_with('/'), "{path}");
        for operation in operations.as_object().unwrap().values() {
            let parameters = operation["parameters"].as_array().unwrap();
            assert!(
                parameters.iter().all(|one| one["name"].is_string() && one["schema"].is_object()),
                "{path}"
            );
            let in_path = parameters.iter().filter(|one| one["in"] == "path");
            let in_path: Vec<_> =
                in_path.map(|one| format!("{{{}}}", one["name"].as_str().unwrap())).collect();
            assert_eq!(in_path.len(), path.matches('{').count(), "{path}");
            assert!(in_path.iter().all(|name| path.contains(name)), "{path}");
            let answers = operation["responses"].as_object().unwrap();
            assert!(answers.values().all(|answer| answer["description"].is_string()), "{path}");
        }
    }
}

/// A server that answers every line of the guide.
fn server() -> Running {
    server_with("parts.jinja")
}

fn server_with(template: &str) -> Running {
    let model = model_with(|options| options.adapters = Some(AdapterOptions::default()));
    start_with(model, |config| {
        config.chat = Some(chat(template));
        config.aliases = vec!["demo-chat".to_owned()];
        config.classes = vec!["good".to_owned(), "bad".to_owned()];
        let adapters = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo-adapter");
        config.adapter_root = Some(PathBuf::from(adapters));
    })
}

#[test]
fn the_lines_of_the_guide_and_their_answers_are_described() {
    // A template that knows tools.
    let server = server_with("qwen-3.jinja");
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/vectors");
    let sparse = start_with(loaded_from(&vectors.join("distilbert-splade-a"), |_| ()), |_| ());
    let mut paths = BTreeSet::new();
    for line in GUIDE.lines().filter(|line| line.starts_with("curl ")) {
        let Some((_, rest)) = line.split_once("http://127.0.0.1:8000") else { continue };
        let (method, path, body) = match rest.split_once(" --json '") {
            Some((path, body)) => ("post", path, body.trim_end_matches('\'')),
            None => ("get", rest, ""),
        };
        let server = if path == "/embed_sparse" { &sparse } else { &server };
        let answer = server.client.request(&method.to_uppercase(), path, body.as_bytes()).unwrap();
        // The demo model has no tokens for gaps.
        let expect = if path == "/infill" { 400 } else { 200 };
        assert_eq!(answer.status, expect, "{path}: {}", answer.text());
        let path = path.replace("/v1/models/demo-chat", "/v1/models/{id}").replace("page.css", "{file}");
        if method == "post" {
            described(server.mode, &path, body, &answer);
        } else {
            answered(server.mode, method, &path, &answer);
        }
        paths.insert(path);
    }
    assert_eq!(paths.len(), DOCUMENT["paths"].as_object().unwrap().len(), "{paths:?}");
}

#[test]
fn a_field_that_no_schema_names_is_found() {
    let server = server();
    let path = "/v1/completions";
    let answer = server.ok(path, r#"{"prompt":"a","max_tokens":1,"logprobs":1}"#);
    let of_answer = of_answer("post", path, 200, "application/json");
    assert_eq!(errors(server.mode, &of_answer, &answer), [""; 0]);
    for object in ["", "/choices/0", "/choices/0/logprobs", "/usage/prompt_tokens_details"] {
        let mut answer = answer.clone();
        answer.pointer_mut(object).unwrap()["unknown"] = json!(1);
        assert!(!errors(server.mode, &of_answer, &answer).is_empty(), "{object}");
    }
}

#[test]
fn texts_without_tokens_are_scored() {
    let server = server();
    server.ok("/v1/score", r#"{"query":[],"items":[[5]],"label_token_ids":[5]}"#);
    server.ok("/v1/score", r#"{"query":[5],"items":[[]],"label_token_ids":[5]}"#);
    // Neither has one: the item fails.
    server.ok("/v1/score", r#"{"query":[],"items":[[],[5]],"label_token_ids":[5],"item_errors":true}"#);
}

/// Checks that a server refuses these bodies, and that its document does too.
fn check_invalid(server: &Running, all: &[(&str, &[&str])]) {
    for (path, bodies) in all {
        for body in *bodies {
            let answer = server.client.post(path, body).unwrap();
            assert!([400, 422].contains(&answer.status), "{path} {body}: {}", answer.text());
            described(server.mode, path, body, &answer);
            assert_eq!(allows(server.mode, path, body), Some(false), "{path} {body}");
        }
    }
}

#[test]
fn what_the_server_refuses_is_invalid_in_the_document_too() {
    check_invalid(&server(), INVALID);
}

#[test]
fn what_a_model_that_fills_masks_does_not_support_is_invalid_in_its_document() {
    let server = start_with(masked(), |config| config.chat = Some(chat("parts.jinja")));
    check_invalid(&server, INVALID_FOR_CANVASES);
    let sampling = r#""min_p":0,"temperature":1"#;
    let neutral = format!(
        r#"{sampling},"n":1,"typical_p":1,"presence_penalty":0,"frequency_penalty":0,"repetition_penalty":1,"logit_bias":{{}}"#
    );
    server.ok(
        "/v1/completions",
        &format!(r#"{{"prompt":"a","max_tokens":1,{neutral},"best_of":1,"echo":false,"logprobs":null}}"#),
    );
    let messages = r#""messages":[{"role":"user","content":"a"}],"max_tokens":1"#;
    server.ok(
        "/v1/chat/completions",
        &format!(r#"{{{messages},{neutral},"logprobs":false,"top_logprobs":0}}"#),
    );
    server.ok("/v1/responses", &format!(r#"{{"input":"a","max_output_tokens":1,{sampling}}}"#));
}

#[test]
fn what_is_refused_before_its_handler_has_the_form_of_its_route() {
    let server = server();
    let tardy = server.client.clone().with_header("x-queue-timeout", "never");
    let damaged = server.client.clone().with_header("content-encoding", "gzip");
    let of_tei = OF_TEI.iter().map(|path| (*path, r#"{"inputs":"a""#));
    for (path, body) in BODIES.iter().copied().chain(of_tei) {
        let body = format!("{body}}}");
        let invalid = if OF_TEI.contains(&path) || path == "/v1/systemone" { 422 } else { 400 };
        for (client, status) in [(&tardy, invalid), (&damaged, 400)] {
            let answer = client.post(path, &body).unwrap();
            assert_eq!(answer.status, status, "{path}: {}", answer.text());
            described(server.mode, path, &body, &answer);
        }
    }
}

/// The schemas of the bodies of a route, of which a body has one.
fn forms(document: &'static Value, path: &str) -> Vec<&'static Value> {
    let schema = document.pointer(&of_body(path)).unwrap();
    let forms = schema["anyOf"].as_array().map_or(std::slice::from_ref(schema), Vec::as_slice);
    forms.iter().map(|form| document.pointer(&form["$ref"].as_str().unwrap()[1..]).unwrap()).collect()
}

/// The fields that bodies of a route may have.
pub(crate) fn fields(path: &str) -> BTreeSet<&'static str> {
    let fields = |form: &'static Value| form["properties"].as_object().unwrap().keys();
    forms(&DOCUMENT, path).into_iter().flat_map(fields).map(String::as_str).collect()
}

/// A value at a limit of a field, or beyond it.
struct Probe {
    /// The value, as JSON.
    value: String,
    is_valid: bool,
    /// Whether the model limits the field further.
    of_model: bool,
    /// Whether the field has other forms, in which a value beyond this limit may be valid.
    has_alternatives: bool,
}

impl Probe {
    fn new(value: String, is_valid: bool) -> Self {
        Self { value, is_valid, of_model: false, has_alternatives: false }
    }

    /// Puts the value into others.
    fn within(self, put: impl FnOnce(String) -> String) -> Self {
        Self { value: put(self.value), ..self }
    }
}

/// Values at and beyond the limits in a schema. `valid` is a valid value, if one is known.
fn probes(of: &Value, valid: Option<&Value>) -> Vec<Probe> {
    let mut all = Vec::new();
    for (key, up) in [("minimum", false), ("maximum", true)] {
        if let Some(limit) = of.get(key) {
            // The canvas or the context limits counts further, and the vocabulary token ids, which are integers that are not optional.
            let of_model =
                *limit == json!(u64::MAX) || (*limit == json!(u32::MAX) && of["type"] == "integer");
            let [at, beyond] = and_beyond(limit, up);
            all.extend([Probe { of_model, ..Probe::new(at, true) }, Probe::new(beyond, false)]);
        }
    }
    let exclusive = ["exclusiveMinimum", "exclusiveMaximum"];
    all.extend(exclusive.iter().filter_map(|key| Some(Probe::new(of.get(key)?.to_string(), false))));
    let count = |key| of.get(key).and_then(Value::as_u64).map(|count| count as usize);
    let text = |length, is_valid| Probe::new(json!("é".repeat(length)).to_string(), is_valid);
    all.extend(count("maxLength").into_iter().flat_map(|most| [text(most, true), text(most + 1, false)]));
    if let Some(least) = count("minLength").filter(|least| *least > 0) {
        all.extend([text(least, true), text(least - 1, false)]);
    }
    if let Some(items) = of.get("items") {
        let (least, most) = (count("minItems").unwrap_or(0), count("maxItems"));
        let list = |count: usize| (0..count).map(|at| sample(items, at, valid)).collect::<Option<Vec<_>>>();
        let probe = |count, is_valid| Some(Probe::new(format!("[{}]", list(count)?.join(",")), is_valid));
        all.extend(probe(least, true));
        all.extend(least.checked_sub(1).and_then(|fewer| probe(fewer, false)));
        // Long lists take long.
        all.extend(most.filter(|most| *most <= 32).and_then(|most| probe(most, true)));
        all.extend(most.and_then(|most| probe(most + 1, false)));
        for inner in probes(items, valid.and_then(|valid| valid.get(0))) {
            let others = (1..least).map(|at| sample(items, at, valid)).collect::<Option<Vec<_>>>();
            let put = |value| format!("[{}]", [vec![value], others.unwrap_or_default()].concat().join(","));
            all.push(inner.within(put));
        }
    }
    if let Some(of_values) = of.get("additionalProperties") {
        let put = |value| format!(r#"{{"7":{value}}}"#);
        all.extend(probes(of_values, None).into_iter().map(|inner| inner.within(put)));
    }
    for form in of["anyOf"].as_array().into_iter().flatten() {
        all.extend(probes(form, valid).into_iter().map(|inner| Probe { has_alternatives: true, ..inner }));
    }
    all
}

/// An element of a list, as JSON: of `valid`, or one of different strings or numbers.
fn sample(of: &Value, at: usize, valid: Option<&Value>) -> Option<String> {
    match of["type"].as_str() {
        Some("string") => Some(json!(format!("x{at}")).to_string()),
        Some("integer" | "number") => Some((at + 5).to_string()),
        Some("array") => Some(format!("[{}]", sample(&of["items"], at, None)?)),
        _ => match of["anyOf"].get(0) {
            Some(first) if valid.is_none() => sample(first, at, None),
            _ => valid.and_then(|valid| valid.get(0)).map(ToString::to_string),
        },
    }
}

/// A number, and one beyond it in this direction.
fn and_beyond(limit: &Value, up: bool) -> [String; 2] {
    let whole = limit.as_u64().map(i128::from).or_else(|| limit.as_i64().map(i128::from));
    let beyond = match whole {
        Some(limit) => (if up { limit + 1 } else { limit - 1 }).to_string(),
        None => {
            let limit = limit.as_f64().unwrap();
            let step = limit.abs().max(1.0) * 0.01;
            (if up { limit + step } else { limit - step }).to_string()
        }
    };
    [limit.to_string(), beyond]
}

/// Further valid bodies: other names and forms of fields.
const FORMS: &[(&str, &str)] = &[
    ("/v1/score", r#"{"query":[5],"items":[[5]],"label_token_ids":[5]"#),
    ("/score", r#"{"queries":"q","documents":["a"]"#),
    ("/score", r#"{"queries":"q","items":["a"]"#),
    ("/score", r#"{"data_1":"q","data_2":["a"]"#),
    ("/v1/classify", r#"{"text":"a","classes":["x","y"]"#),
    ("/v1/classify", r#"{"texts":["a"],"classes":["x","y"]"#),
];

#[test]
fn the_limits_of_the_document_are_those_of_the_server() {
    let needed = [
        ("n", "temperature", json!(1)),
        ("best_of", "temperature", json!(1)),
        ("top_logprobs", "logprobs", json!(true)),
        ("max_tokens", "echo", json!(true)),
        ("input", "instructions", json!("a")),
    ];
    let bodies: Vec<_> = BODIES.iter().chain(FORMS).copied().collect();
    let count = check_limits(&server(), &bodies, &needed);
    assert!(count > 300, "{count}");
}

#[test]
fn the_limits_of_the_document_are_those_of_a_server_that_fills_masks() {
    let server = start_with(masked(), |config| config.chat = Some(chat("parts.jinja")));
    let needed = [("refresh", "cache", json!("dual")), ("input", "instructions", json!("a"))];
    let count = check_limits(&server, &BODIES[..3], &needed);
    assert!(count > 100, "{count}");
}

/// A field that has a limit, another one without which that limit cannot be met alone, and the value of this one.
type Needed = (&'static str, &'static str, Value);

/// Fields whose valid values may be refused: labels must be tokens, and without new tokens the prompt must have a mask.
const OF_MODEL: &[&str] = &["labels", "max_tokens"];

/// Fields whose errors may name another field: other names of a field, and fields that only the engine checks.
const NAMED_AS: &[(&str, &str, &str)] = &[
    ("/v1/classify", "text", "input"),
    ("/v1/classify", "texts", "input"),
    ("/v1/classify", "classes", "input"),
];

/// Checks the limits of the fields that these bodies may have. Returns the number of requests.
fn check_limits(server: &Running, bodies: &[(&str, &str)], needed: &[Needed]) -> usize {
    let (mut count, mut wrong) = (0, Vec::new());
    // The valid values, and those that were sent. Some are valid with some of the bodies only.
    let (mut all, mut sent) = (BTreeSet::new(), BTreeSet::new());
    for (path, valid) in bodies {
        let base: Map<String, Value> = serde_json::from_str(&format!("{valid}}}")).unwrap();
        let named = |form: &&Value| base.keys().all(|key| form["properties"].get(key).is_some());
        let schema = forms(document_of(server.mode), path).into_iter().find(named).unwrap();
        let is_field = |(_, other, _): &&Needed| schema["properties"].get(other).is_some();
        let needed: Vec<_> = needed.iter().filter(is_field).collect();
        for (name, of) in schema["properties"].as_object().unwrap() {
            let probes = probes(of, base.get(name));
            let bodies: Vec<_> =
                probes.iter().map(|probe| body_with(&base, name, &probe.value, &needed)).collect();
            let allowed: Vec<_> =
                bodies.iter().map(|body| allows(server.mode, path, body) == Some(true)).collect();
            let key = |probe: &Probe| (std::ptr::from_ref(schema), name.clone(), probe.value.clone());
            all.extend(probes.iter().filter(|probe| probe.is_valid).map(key));
            let fits = std::iter::zip(&probes, &allowed).any(|(probe, allowed)| probe.is_valid && *allowed);
            let is_list = of.get("items").is_some() && !base.contains_key(name);
            if !fits && (is_list || probes.iter().any(|probe| probe.is_valid)) {
                // The field does not go together with the others, or its elements are not known.
                continue;
            }
            for ((probe, body), allowed) in probes.iter().zip(&bodies).zip(allowed) {
                if probe.is_valid != allowed && (probe.is_valid || probe.has_alternatives) {
                    continue;
                }
                let answer = server.client.post(path, body).unwrap();
                let shown: String = format!("{path} {body}").chars().take(300).collect();
                described(server.mode, path, body, &answer);
                count += 1;
                if probe.is_valid {
                    sent.insert(key(probe));
                    let of_model = probe.of_model || OF_MODEL.contains(&name.as_str());
                    let right = answer.status == 200 || (of_model && answer.status < 500);
                    wrong.extend((!right).then(|| format!("{shown}: {} {}", answer.status, answer.text())));
                } else {
                    let param = if answer.status == 200 { None } else { error(&answer).2 };
                    let place = param.as_deref().and_then(|param| param.strip_prefix(name.as_str()));
                    let right = place.is_some_and(|place| place.is_empty() || place.starts_with(['.', '[']))
                        || NAMED_AS.contains(&(path, name, param.as_deref().unwrap_or_default()));
                    wrong.extend((!right).then(|| format!("{shown}: {} {}", answer.status, answer.text())));
                }
            }
        }
    }
    let missing: Vec<_> = all.difference(&sent).map(|(_, name, value)| (name, value)).collect();
    assert_eq!(wrong, [""; 0]);
    assert!(missing.is_empty(), "no body shows these limits: {missing:?}");
    count
}

/// A body with this value of a field, and with what that field needs.
fn body_with(base: &Map<String, Value>, name: &str, value: &str, needed: &[&Needed]) -> String {
    let mut rest = base.clone();
    rest.remove(name);
    for (_, other, value) in needed.iter().filter(|(of, ..)| *of == name) {
        rest.insert((*other).to_owned(), value.clone());
    }
    if name == "max_completion_tokens" {
        // Its older name would have to have the same value.
        rest.remove("max_tokens");
    }
    let rest = serde_json::to_string(&rest).unwrap();
    let comma = if rest == "{}" { "" } else { "," };
    format!("{{\"{name}\":{value}{comma}{}", &rest[1..])
}

/// Bodies that are JSON, and that their routes refuse.
const INVALID: &[(&str, &[&str])] = &[
    (
        "/v1/completions",
        &[
            r#"{"max_tokens":1}"#,
            r#"{"prompt":null}"#,
            r#"{"prompt":[]}"#,
            r#"{"prompt":[[]]}"#,
            r#"{"prompt":["a",1]}"#,
            r#"{"prompt":"a","n":0}"#,
            r#"{"prompt":"a","n":2}"#,
            r#"{"prompt":"a","n":129,"temperature":1}"#,
            r#"{"prompt":"a","logprobs":21}"#,
            r#"{"prompt":"a","max_tokens":0}"#,
            r#"{"prompt":"a","tempratur":1}"#,
            r#"{"prompt":"a","temperature":101}"#,
            r#"{"prompt":"a","top_p":0}"#,
            r#"{"prompt":"a","timeout_s":0}"#,
            r#"{"prompt":"a","seed":18446744073709551616}"#,
            r#"{"prompt":"a","stop":[""]}"#,
            r#"{"prompt":"a","stream_options":{}}"#,
            r#"{"prompt":"a","stream":true,"stream_options":{"x":1}}"#,
            r#"{"prompt":"a","adapter":["base","b"]}"#,
            r#"{"prompt":"a","adapter":[{"name":"b","scales":1}]}"#,
            r#"{"prompt":"a","adapter":[["b",1]]}"#,
            r#"{"prompt":"a","stream":true,"stream_options":[true,null,null,null]}"#,
            r#"{"prompt":"a","logit_bias":{"x":1}}"#,
            r#"{"prompt":"a","logit_bias":{"07":1}}"#,
            r#"{"prompt":"a","logit_bias":{"7":101}}"#,
            r#"{"prompt":"a","steps":4}"#,
            r#"{"prompt":"a","cache":"dual"}"#,
            r#"{"prompt":"a","stream":true,"stream_options":{"include_canvas":true}}"#,
            r#"{"prompt":"a","echo":true,"logprobs":1,"n":2,"temperature":1}"#,
        ],
    ),
    (
        "/v1/chat/completions",
        &[
            r#"{"messages":"a"}"#,
            r#"{"messages":[]}"#,
            r#"{"messages":[{"content":"a"}]}"#,
            r#"{"messages":[{"role":"user"}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}"#,
            r#"{"messages":[{"role":"user","content":"a"}],"max_tokens":0}"#,
            r#"{"messages":[{"role":"user","content":"a"}],"top_logprobs":2}"#,
            r#"{"messages":[{"role":"user","content":"a"}],"logprobs":true,"top_logprobs":21}"#,
            r#"{"messages":[{"role":"user","content":"a"}],"audio":{}}"#,
            r#"{"messages":[{"role":"user","content":"a"}],"tools":[{}]}"#,
            r#"{"messages":[{"role":"user","content":"a"}],"response_format":{"type":"yaml"}}"#,
        ],
    ),
    (
        "/v1/responses",
        &[
            r#"{"input":7}"#,
            r#"{"input":[]}"#,
            r#"{"input":[{"role":"user"}]}"#,
            r#"{"input":[{"role":"user","content":[{"type":"input_image"}]}]}"#,
            r#"{"input":"a","text":{"x":1}}"#,
            r#"{"input":"a","background":true}"#,
            r#"{"input":"a","previous_response_id":"x"}"#,
            r#"{"input":"a","stream":true,"stream_options":{"include_usage":true}}"#,
        ],
    ),
    (
        "/v1/score",
        &[
            r#"{"query":"a","items":["a"]}"#,
            r#"{"query":"a","items":["a"],"labels":[]}"#,
            r#"{"query":"a","items":["a"],"labels":["b"],"label_token_ids":[5]}"#,
            r#"{"query":"a","items":["a",[5]],"labels":["b"]}"#,
            r#"{"query":"a","items":["a"],"labels":["b"],"truncate":"middle"}"#,
            r#"{"query":"a","items":["a"],"text_1":"b"}"#,
        ],
    ),
    (
        "/score",
        &[
            r#"{"text_1":"a"}"#,
            r#"{"text_1":"a","text_2":[]}"#,
            r#"{"text_1":"a","data_2":"b"}"#,
            r#"{"queries":"a","documents":"b","items":"c"}"#,
            r#"{"text_1":"a","text_2":"b","truncate_prompt_tokens":7}"#,
        ],
    ),
    (
        "/v1/rerank",
        &[
            r#"{"query":"q"}"#,
            r#"{"query":"q","documents":[]}"#,
            r#"{"query":"q","documents":[7]}"#,
            r#"{"query":"q","documents":["a"],"texts":["a"]}"#,
            r#"{"query":"q","documents":["a"],"raw_scores":true}"#,
            r#"{"query":"q","texts":["a"],"top_n":1}"#,
        ],
    ),
    (
        "/v1/classify",
        &[
            r#"{"input":"a","classes":["x"]}"#,
            r#"{"input":"a","classes":["x","x"]}"#,
            r#"{"input":"a","text":"a","classes":["x","y"]}"#,
            r#"{"classes":["x","y"]}"#,
            r#"{"input":"a","classes":["x","y"],"template":"no place"}"#,
        ],
    ),
    (
        "/v1/decisions",
        &[
            r#"{"input":"a","questions":[]}"#,
            r#"{"input":[],"questions":[{"type":"predicate","instructions":"b"}]}"#,
            r#"{"input":"a","questions":[{"type":"guess","instructions":"b"}]}"#,
            r#"{"input":"a","questions":[{"type":"predicate","instructions":""}]}"#,
            r#"{"input":"a","questions":[{"type":"predicate","instructions":"b","choices":[]}]}"#,
            r#"{"input":"a","questions":[{"type":"choice","instructions":"b","choices":[{"value":"x"}]}]}"#,
            r#"{"input":"a","questions":[{"type":"choice","instructions":"b"}]}"#,
            r#"{"input":"a","questions":[{"type":"score","instructions":"b","levels":[{"label":""},{"label":"x"}]}]}"#,
            r#"{"input":[{"role":"user"}],"questions":[{"type":"predicate","instructions":"b"}]}"#,
            r#"{"input":[{"role":"assistant","content":[{"type":"input_text","text":"a"}]}],"questions":[{"type":"predicate","instructions":"b"}]}"#,
            r#"{"input":[{"type":"function_call","name":"f","call_id":"c"}],"questions":[{"type":"predicate","instructions":"b"}]}"#,
            r#"{"input":"a","questions":[{"type":"predicate","instructions":"b"}],"temperature":2}"#,
        ],
    ),
    (
        "/v1/systemone",
        &[
            r#"{"questions":{}}"#,
            r#"{"state":7,"questions":{"q":{"type":"noul","instructions":"a"}}}"#,
            r#"{"state":"a","questions":{}}"#,
            r#"{"state":"a","questions":{"":{"type":"noul","instructions":"a"}}}"#,
            r#"{"state":"a","questions":{"q":{"type":"noul"}}}"#,
            r#"{"state":"a","questions":{"q":{"type":"noul","criteria":{"true":""}}}}"#,
            r#"{"state":"a","questions":{"q":{"type":"noul","criteria":7}}}"#,
            r#"{"state":"a","questions":{"q":{"type":"box","instructions":"a"}}}"#,
            r#"{"state":"a","questions":{"q":{"type":"choice","criteria":{}}}}"#,
            r#"{"state":"a","questions":{"q":{"type":"choice","criteria":["a","b"]}}}"#,
            r#"{"state":"a","questions":{"q":{"type":"score","criteria":["a"]}}}"#,
            r#"{"state":"a","questions":{"q":{"type":"score","criteria":["a",{}]}}}"#,
            r#"{"state":"a","questions":{"q":{"type":"noul","instructions":"a"}},"images":["x"]}"#,
        ],
    ),
    (
        "/v1/embeddings",
        &[
            "{}",
            r#"{"input":[],"pooling":"mean"}"#,
            r#"{"input":["a",5],"pooling":"mean"}"#,
            r#"{"input":"a","pooling":"max"}"#,
            r#"{"input":"a","pooling":"mean","encoding_format":"int8"}"#,
            r#"{"input":"a","pooling":"mean","dimensions":-1}"#,
            r#"{"input":"a","pooling":"mean","truncate":true}"#,
            r#"{"input":"a","pooling":"mean","truncate_prompt_tokens":7}"#,
        ],
    ),
    (
        "/embed",
        &[
            r#"{"inputs":[],"pooling":"mean"}"#,
            r#"{"inputs":7,"pooling":"mean"}"#,
            r#"{"inputs":"a","pooling":"mean","truncate":"left"}"#,
            r#"{"inputs":"a","pooling":"mean","encoding_format":"float"}"#,
        ],
    ),
    ("/embed_all", &[r#"{"inputs":[]}"#, r#"{"inputs":7}"#, r#"{"inputs":"a","normalize":true}"#, "{}"]),
    ("/embed_sparse", &[r#"{"inputs":[]}"#, r#"{"inputs":7}"#, r#"{"inputs":"a","normalize":true}"#, "{}"]),
    ("/predict", &[r#"{"inputs":["a","b","c"]}"#, r#"{"inputs":[[]]}"#, r#"{"inputs":[]}"#]),
    ("/tokenize", &[r#"{"prompt":7}"#, r#"{"prompt":"a","text":"b"}"#, "{}"]),
    ("/detokenize", &[r#"{"tokens":["a"]}"#, r#"{"tokens":[-1]}"#]),
    (
        "/v1/load_lora_adapter",
        &[
            r#"{"lora_name":"","lora_path":"jargon"}"#,
            r#"{"lora_name":"base","lora_path":"jargon"}"#,
            r#"{"lora_name":"a b","lora_path":"jargon"}"#,
            r#"{"lora_name":"a\n","lora_path":"jargon"}"#,
            r#"{"lora_name":"a:2","lora_path":"jargon"}"#,
            r#"{"lora_name":"a€","lora_path":"jargon"}"#,
            r#"{"lora_name":"a","lora_path":""}"#,
            r#"{"lora_name":"a","lora_path":"a\u0000"}"#,
        ],
    ),
];

/// Bodies that models which fill masks refuse.
const INVALID_FOR_CANVASES: &[(&str, &[&str])] = &[
    (
        "/v1/completions",
        &[
            r#"{"prompt":"a","n":2,"temperature":1}"#,
            r#"{"prompt":"a","best_of":2,"temperature":1}"#,
            r#"{"prompt":"a","min_p":0.5}"#,
            r#"{"prompt":"a","typical_p":0.5}"#,
            r#"{"prompt":"a","logit_bias":{"7":1}}"#,
            r#"{"prompt":"a","presence_penalty":1}"#,
            r#"{"prompt":"a","frequency_penalty":1}"#,
            r#"{"prompt":"a","repetition_penalty":2}"#,
            r#"{"prompt":"a","echo":true}"#,
            r#"{"prompt":"a","logprobs":0}"#,
        ],
    ),
    (
        "/v1/chat/completions",
        &[
            r#"{"messages":[{"role":"user","content":"a"}],"n":2,"temperature":1}"#,
            r#"{"messages":[{"role":"user","content":"a"}],"min_p":0.5}"#,
            r#"{"messages":[{"role":"user","content":"a"}],"typical_p":0.5}"#,
            r#"{"messages":[{"role":"user","content":"a"}],"logit_bias":{"7":1}}"#,
            r#"{"messages":[{"role":"user","content":"a"}],"presence_penalty":1}"#,
            r#"{"messages":[{"role":"user","content":"a"}],"frequency_penalty":1}"#,
            r#"{"messages":[{"role":"user","content":"a"}],"repetition_penalty":2}"#,
            r#"{"messages":[{"role":"user","content":"a"}],"logprobs":true}"#,
        ],
    ),
    ("/v1/responses", &[r#"{"input":"a","min_p":0.5}"#]),
];
