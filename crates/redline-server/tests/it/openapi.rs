//! The OpenAPI document describes the routes, what they take and what they answer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::Validator;
use jsonschema::meta;
use redline_api::foreign::GenerationMode;
use redline_client::HttpAnswer;
use redline_engine::AdapterOptions;
use redline_server::{ApiKey, RouteInfo, ServerConfig, openapi, routes};
use redline_wire::DiffusionKeys;
use serde_json::{Map, Value, json};

use crate::bad_input::BODIES;
use crate::server::{Running, chat, error, masked, model_with, start, start_with};

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

/// The errors of a value in the schema at this place of the document.
fn errors(mode: GenerationMode, place: &str, value: &Value) -> Vec<String> {
    static VALIDATORS: Mutex<BTreeMap<String, Arc<Validator>>> = Mutex::new(BTreeMap::new());
    let key = format!("{} {place}", mode.name());
    let validator = VALIDATORS.lock().unwrap().get(&key).cloned().unwrap_or_else(|| {
        let document = document_of(mode);
        let mut schema =
            document.pointer(place).unwrap_or_else(|| panic!("{place} is not described")).clone();
        schema["components"] = document["components"].clone();
        Arc::new(jsonschema::validator_for(&schema).unwrap())
    });
    VALIDATORS.lock().unwrap().insert(key, validator.clone());
    validator.iter_errors(value).map(|error| format!("{} at {}", error, error.instance_path())).collect()
}

/// The place of something that a route takes or answers.
fn place(method: &str, path: &str, rest: &str) -> String {
    format!("/paths/{}/{method}/{rest}", path.replace('/', "~1"))
}

/// The place of the schema of the answers with this status and media type.
fn of_answer(method: &str, path: &str, status: u16, media: &str) -> String {
    place(method, path, &format!("responses/{status}/content/{}/schema", media.replace('/', "~1")))
}

/// Whether the schema allows this body. `None`: it is not JSON that can be checked.
fn allows(mode: GenerationMode, path: &str, body: &str) -> Option<bool> {
    let body = serde_json::from_str(body).ok()?;
    Some(errors(mode, &place("post", path, "requestBody/content/application~1json/schema"), &body).is_empty())
}

/// Checks that the document describes the answer to a body, and the body if it was accepted.
pub(crate) fn described(mode: GenerationMode, path: &str, body: &str, answer: &HttpAnswer) {
    if answer.status == 200 {
        let body = serde_json::from_str(body).unwrap();
        let wrong = errors(mode, &place("post", path, "requestBody/content/application~1json/schema"), &body);
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
fn the_document_has_the_routes_of_the_server_and_none_more() {
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
            assert!(ids.insert(operation["operationId"].to_string()), "{route}");
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
    assert!(plain["paths"]["/"].is_null() && plain["paths"]["/page/abilities"].is_null());
    assert!(DOCUMENT["components"]["securitySchemes"].is_null());
    assert_eq!(DOCUMENT["paths"]["/v1/score"]["post"]["security"], json!([]));
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
    let model = model_with(|options| options.adapters = Some(AdapterOptions::default()));
    start_with(model, |config| {
        config.chat = Some(chat("parts.jinja"));
        config.classes = vec!["good".to_owned(), "bad".to_owned()];
        let adapters = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo-adapter");
        config.adapter_root = Some(PathBuf::from(adapters));
    })
}

#[test]
fn the_lines_of_the_guide_and_their_answers_are_described() {
    let server = server();
    let mut paths = BTreeSet::new();
    for line in GUIDE.lines().filter(|line| line.starts_with("curl ")) {
        let Some((_, rest)) = line.split_once("http://127.0.0.1:8000") else { continue };
        let (method, path, body) = match rest.split_once(" --json '") {
            Some((path, body)) => ("post", path, body.trim_end_matches('\'')),
            None => ("get", rest, ""),
        };
        let answer = server.client.request(&method.to_uppercase(), path, body.as_bytes()).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let path = path.replace("/v1/models/demo", "/v1/models/{id}").replace("page.css", "{file}");
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
fn what_the_server_refuses_is_invalid_in_the_document_too() {
    let server = server();
    for (path, bodies) in INVALID {
        for body in *bodies {
            let answer = server.client.post(path, body).unwrap();
            assert!([400, 422].contains(&answer.status), "{path} {body}: {}", answer.text());
            described(server.mode, path, body, &answer);
            assert_eq!(allows(server.mode, path, body), Some(false), "{path} {body}");
        }
    }
}

#[test]
fn what_is_refused_before_its_handler_has_the_form_of_its_route() {
    let server = server();
    let tardy = server.client.clone().with_header("x-queue-timeout", "never");
    let damaged = server.client.clone().with_header("content-encoding", "gzip");
    for (path, body) in BODIES.iter().chain(&[("/predict", r#"{"inputs":"a""#)]) {
        let body = format!("{body}}}");
        let invalid = if ["/predict", "/v1/systemone"].contains(path) { 422 } else { 400 };
        for (client, status) in [(&tardy, invalid), (&damaged, 400)] {
            let answer = client.post(path, &body).unwrap();
            assert_eq!(answer.status, status, "{path}: {}", answer.text());
            described(server.mode, path, &body, &answer);
        }
    }
}

/// The schema of a body that has these fields.
fn schema_of_body(document: &'static Value, path: &str, body: &Map<String, Value>) -> &'static Value {
    let schema =
        document.pointer(&place("post", path, "requestBody/content/application~1json/schema")).unwrap();
    let forms = schema["anyOf"].as_array().cloned().unwrap_or_else(|| vec![schema.clone()]);
    let forms = forms.iter().map(|form| document.pointer(&form["$ref"].as_str().unwrap()[1..]).unwrap());
    forms.into_iter().find(|form| body.keys().all(|key| form["properties"].get(key).is_some())).unwrap()
}

/// A number and one beyond it, in this direction.
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

/// Values at each limit of a field, and beyond it. There may be none at a limit.
fn at_and_beyond(of: &Value, element: Option<&Value>) -> Vec<[Option<String>; 2]> {
    let mut all = Vec::new();
    for (key, up) in [("minimum", false), ("maximum", true)] {
        // The largest number that can be read is no limit of the field: others, such as the canvas, may limit it further.
        let is_limit = of.get(key) != Some(&json!(u64::MAX));
        all.extend(
            of.get(key)
                .map(|limit| and_beyond(limit, up))
                .map(|[at, beyond]| [is_limit.then_some(at), Some(beyond)]),
        );
    }
    for key in ["exclusiveMinimum", "exclusiveMaximum"] {
        all.extend(of.get(key).map(|limit| [None, Some(limit.to_string())]));
    }
    let text = |length: u64| json!("é".repeat(length as usize)).to_string();
    all.extend(
        of.get("maxLength").and_then(Value::as_u64).map(|most| [most, most + 1].map(|of| Some(text(of)))),
    );
    if let (Some(most), Some(element)) = (of.get("maxItems").and_then(Value::as_u64), element) {
        all.push([None, Some(json!(vec![element; most as usize + 1]).to_string())]);
    }
    all
}

#[test]
fn the_limits_of_the_document_are_those_of_the_server() {
    let needed = [
        ("n", "temperature", json!(1)),
        ("best_of", "temperature", json!(1)),
        ("top_logprobs", "logprobs", json!(true)),
        ("max_tokens", "echo", json!(true)),
    ];
    let count = check_limits(&server(), &needed, |_| true);
    assert!(count > 60, "{count}");
}

#[test]
fn the_limits_of_the_fields_of_canvases_are_those_of_a_server_that_has_them() {
    let server = start_with(masked(), |config| config.chat = Some(chat("parts.jinja")));
    let needed = [("refresh", "cache", json!("dual"))];
    let count = check_limits(&server, &needed, |name| DiffusionKeys::NAMES.contains(&name));
    assert!(count > 3 * 9, "{count}");
}

/// A field that has a limit, another one without which that limit cannot be met alone, and the value of this one.
type Needed = (&'static str, &'static str, Value);

/// Checks the limits of these fields. Returns their number.
fn check_limits(server: &Running, needed: &[Needed], checks: impl Fn(&str) -> bool) -> usize {
    let mut count = 0;
    for (path, valid) in BODIES {
        let base: Map<String, Value> = serde_json::from_str(&format!("{valid}}}")).unwrap();
        let schema = schema_of_body(document_of(server.mode), path, &base);
        let has = |name: &str| schema["properties"].get(name).is_some();
        for (name, of) in schema["properties"].as_object().unwrap() {
            let of_others =
                base.contains_key("texts") && ["top_n", "max_tokens_per_doc"].contains(&name.as_str());
            if of_others || !checks(name) {
                continue;
            }
            let mut rest = base.clone();
            let element = rest.remove(name).and_then(|value| value.get(0).cloned());
            for (_, other, value) in needed.iter().filter(|(of, other, _)| of == name && has(other)) {
                rest.insert((*other).to_owned(), value.clone());
            }
            if name == "max_completion_tokens" {
                // Its older name would have to have the same value.
                rest.remove("max_tokens");
            }
            let body = |value: &str| {
                let rest = serde_json::to_string(&rest).unwrap();
                let comma = if rest == "{}" { "" } else { "," };
                format!("{{\"{name}\":{value}{comma}{}", &rest[1..])
            };
            let fault = |body: &str| {
                let answer = server.client.post(path, body).unwrap();
                described(server.mode, path, body, &answer);
                (answer.status != 200).then(|| error(&answer).2.unwrap_or_default())
            };
            for [at, beyond] in at_and_beyond(of, element.as_ref()) {
                let shown = format!("{path} {name} {of}");
                if let Some(at) = at {
                    assert_ne!(fault(&body(&at)).as_deref(), Some(name.as_str()), "{shown}");
                }
                if let Some(beyond) = beyond {
                    assert_eq!(fault(&body(&beyond)).as_deref(), Some(name.as_str()), "{shown}");
                }
                count += 1;
            }
        }
    }
    count
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
            r#"{"prompt":"a","seed":9223372036854775808}"#,
            r#"{"prompt":"a","stop":[""]}"#,
            r#"{"prompt":"a","stream_options":{}}"#,
            r#"{"prompt":"a","stream":true,"stream_options":{"x":1}}"#,
            r#"{"prompt":"a","adapter":["base","b"]}"#,
            r#"{"prompt":"a","adapter":[{"name":"b","scales":1}]}"#,
            r#"{"prompt":"a","logit_bias":{"x":1}}"#,
            r#"{"prompt":"a","logit_bias":{"07":1}}"#,
            r#"{"prompt":"a","logit_bias":{"7":101}}"#,
            r#"{"prompt":"a","suffix":"x"}"#,
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
            r#"{"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_object"}}"#,
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
    ("/predict", &[r#"{"inputs":["a","b","c"]}"#, r#"{"inputs":[[]]}"#, r#"{"inputs":[]}"#]),
    ("/tokenize", &[r#"{"prompt":7}"#, r#"{"prompt":"a","text":"b"}"#, "{}"]),
    ("/detokenize", &[r#"{"tokens":["a"]}"#, r#"{"tokens":[-1]}"#]),
    (
        "/v1/load_lora_adapter",
        &[r#"{"lora_name":"","lora_path":"a"}"#, r#"{"lora_name":"a","lora_path":""}"#],
    ),
];
