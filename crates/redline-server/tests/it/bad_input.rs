//! Invalid requests are refused with the field at fault, and never with a status of 5xx.

use crate::openapi::{allows, described, fields};
use crate::server::{error, start, start_chat};

/// Valid bodies without their closing braces, so that tests can add fields: of each route with a field `model`, apart from those whose
/// errors have the form of Text Embeddings Inference. The first three generate text from what is usual.
pub(crate) const BODIES: &[(&str, &str)] = &[
    ("/v1/completions", r#"{"prompt":"In the","max_tokens":1"#),
    ("/v1/chat/completions", r#"{"messages":[{"role":"user","content":"a"}],"max_tokens":1"#),
    ("/v1/responses", r#"{"input":"a","max_output_tokens":1"#),
    ("/v1/score", r#"{"query":"In the","items":["a"],"labels":[" the"]"#),
    ("/score", r#"{"text_1":"q","text_2":["a"]"#),
    ("/v1/rerank", r#"{"query":"q","documents":["a"]"#),
    ("/rerank", r#"{"query":"q","texts":["a"]"#),
    ("/v2/rerank", r#"{"query":"q","documents":["a"]"#),
    ("/v1/classify", r#"{"input":"a","classes":["x","y"]"#),
    ("/v1/embeddings", r#"{"input":"a","pooling":"mean""#),
    ("/v1/decisions", r#"{"input":"a","questions":[{"type":"predicate","instructions":"b"}]"#),
    ("/v1/systemone", r#"{"state":"a","questions":{"q":{"type":"noul","instructions":"b"}}"#),
    ("/v1/messages", r#"{"messages":[{"role":"user","content":"a"}],"max_tokens":4"#),
    ("/v1/messages/count_tokens", r#"{"messages":[{"role":"user","content":"a"}],"system":"b""#),
    (
        "/api/chat",
        r#"{"messages":[{"role":"user","content":"a"}],"options":{"num_predict":1},"stream":false"#,
    ),
    ("/api/generate", r#"{"prompt":"a","options":{"num_predict":1},"stream":false"#),
    ("/api/embed", r#"{"input":"a","pooling":"mean""#),
    ("/api/embeddings", r#"{"prompt":"a","pooling":"mean""#),
    ("/api/show", r#"{"verbose":true"#),
    ("/tokenize", r#"{"prompt":"a""#),
    ("/detokenize", r#"{"tokens":[5]"#),
];

/// Routes whose errors have the form of Text Embeddings Inference.
pub(crate) const OF_TEI: &[&str] = &[
    "/predict",
    "/embed",
    "/embed_all",
    "/embed_sparse",
    "/",
    "/generate",
    "/generate_stream",
    "/similarity",
    "/decode",
];
/// Routes with tests of their own: those that need a model with gaps, or that change the server.
const OTHERS: &[&str] = &["/infill", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"];

#[test]
fn every_route_with_a_body_is_sent_what_it_does_not_take() {
    for route in redline_server::routes().iter().filter(|route| route.method == "POST") {
        let path = route.path;
        let listed = BODIES.iter().any(|(known, _)| *known == path);
        assert!(listed || OF_TEI.contains(&path) || OTHERS.contains(&path), "{path} has no line in `BODIES`");
    }
}

/// Values of no field, or of few.
pub(crate) fn values() -> Vec<String> {
    let mut values: Vec<String> = [
        "true",
        "-1",
        "0",
        "1.5",
        "9223372036854775808",
        "18446744073709551616",
        "1e39",
        "-1e400",
        "\"\"",
        "\"text\"",
        "\"NaN\"",
        "NaN",
        "null",
        "[]",
        "[1]",
        "[1,\"a\"]",
        "[null]",
        "{}",
        "[[]]",
        "[-1]",
        "[9223372036854775807]",
        "[true]",
        "{\"a\":1}",
    ]
    .map(str::to_owned)
    .to_vec();
    values.push(format!("[{}1]", "1,".repeat(1_000_000)));
    values
}

#[test]
fn every_field_with_a_value_of_another_kind_is_answered_or_refused_by_name() {
    let server = start_chat("parts.jinja");
    let values = values();
    for (path, valid) in BODIES {
        server.ok(path, &format!("{valid}}}"));
        for field in fields(path) {
            for value in &values {
                // Without the valid value of the field, if it has one.
                let mut body: serde_json::Map<_, _> = serde_json::from_str(&format!("{valid}}}")).unwrap();
                body.remove(field);
                let rest = serde_json::to_string(&body).unwrap();
                let rest = rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap();
                let comma = if rest.is_empty() { "" } else { "," };
                let body = format!("{{\"{field}\":{value}{comma}{rest}}}");
                let answer = server.client.post(path, &body).unwrap();
                let shown = format!("{path} {}: {}", &body[..body.len().min(120)], answer.text());
                let shown: String = shown.chars().take(600).collect();
                assert!(answer.status == 200 || (400..500).contains(&answer.status), "{shown}");
                described(server.mode, path, &body, &answer);
                if answer.status != 200 {
                    let (_, code, param) = error(&answer);
                    assert!(
                        param.is_some() || ["invalid_json", "nested_too_deeply"].contains(&code.as_str()),
                        "{shown}"
                    );
                }
            }
        }
    }
}

#[test]
fn bodies_that_are_not_requests_are_refused() {
    let server = start_chat("parts.jinja");
    for (path, valid) in BODIES {
        let check = |body: &[u8], status: u16, code: &str, param: Option<&str>| {
            let answer = server.client.request("POST", path, body).unwrap();
            described(server.mode, path, &String::from_utf8_lossy(body), &answer);
            let expect = (status, code.to_owned(), param.map(str::to_owned));
            assert_eq!(
                error(&answer),
                expect,
                "{path}: {}",
                String::from_utf8_lossy(&body[..body.len().min(80)])
            );
        };
        let is_systemone = *path == "/v1/systemone";
        let field = if is_systemone { 422 } else { 400 };
        let deep = if is_systemone { (422, "nested_too_deeply") } else { (400, "invalid_json") };
        check(b"", 400, "invalid_json", None);
        check(b"null", 400, "invalid_json", None);
        check(b"[]", 400, "invalid_json", None);
        check(valid.as_bytes(), 400, "invalid_json", None);
        check(format!("{valid}}} {{}}").as_bytes(), 400, "invalid_json", None);
        check(format!("{valid},\"x\":\"\u{0}\"}}").as_bytes(), field, "unknown_parameter", Some("x"));
        check(format!("{valid},\"tempratur\":1}}").as_bytes(), field, "unknown_parameter", Some("tempratur"));
        check("[".repeat(100_000).as_bytes(), deep.0, deep.1, None);
        let nested = format!("{valid},\"model\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        check(nested.as_bytes(), deep.0, deep.1, None);
        let mut broken = format!("{valid},\"model\":\"").into_bytes();
        broken.extend(b"\xff\"}");
        check(&broken, 400, "invalid_json", None);
        let unknown = format!("{valid},\"model\":\"gpt-9\"}}");
        check(unknown.as_bytes(), 404, "model_not_found", Some("model"));
    }
}

#[test]
fn each_limit_names_its_field() {
    let server = start();
    let beyond_schemas = |path: &str, body: &str, param: &str| {
        let answer = server.client.post(path, body).unwrap();
        described(server.mode, path, body, &answer);
        let expect = (400, "invalid_value".to_owned(), Some(param.to_owned()));
        assert_eq!(error(&answer), expect, "{path} {}", &body[..body.len().min(100)]);
    };
    let check = |path: &str, body: &str, param: &str| {
        beyond_schemas(path, body, param);
        assert_eq!(allows(server.mode, path, body), Some(false), "{path} {body}");
    };
    let completion = |rest: &str, param: &str| {
        check("/v1/completions", &format!("{{\"prompt\":\"p\",{rest}}}"), param);
    };
    completion(r#""temperature":-0.5"#, "temperature");
    completion(r#""top_p":0"#, "top_p");
    completion(r#""top_k":-2"#, "top_k");
    completion(r#""n":0"#, "n");
    completion(r#""n":129,"temperature":1"#, "n");
    completion(r#""n":2"#, "n");
    completion(r#""logprobs":21"#, "logprobs");
    completion(r#""max_tokens":0"#, "max_tokens");
    completion(r#""stop":["a",""]"#, "stop[1]");
    completion(r#""logit_bias":{"7":101}"#, "logit_bias.7");
    beyond_schemas("/v1/completions", r#"{"prompt":"p","logit_bias":{"4096":1}}"#, "logit_bias");
    completion(r#""frequency_penalty":2.5"#, "frequency_penalty");
    completion(r#""repetition_penalty":0"#, "repetition_penalty");
    completion(r#""timeout_s":0"#, "timeout_s");
    completion(r#""echo":true,"logprobs":1,"n":2,"temperature":1"#, "echo");
    completion(r#""stream_options":{"include_usage":true}"#, "stream_options");
    completion(&format!("\"cache_salt\":\"{}\"", "s".repeat(257)), "cache_salt");
    check("/v1/completions", r#"{"prompt":[]}"#, "prompt");
    check("/v1/completions", r#"{"prompt":[[5],[]]}"#, "prompt[1]");
    check("/v1/score", r#"{"query":"q","items":["a"]}"#, "label_token_ids");
    check("/v1/score", r#"{"query":[],"items":[[5],[]],"label_token_ids":[5]}"#, "items");
    check("/v1/score", r#"{"query":"q","items":["a"],"label_token_ids":[]}"#, "label_token_ids");
    check("/v1/score", r#"{"query":"q","items":["a",[5]],"label_token_ids":[5]}"#, "items[1]");
    check("/v1/rerank", r#"{"query":"q"}"#, "documents");
    check("/v1/rerank", r#"{"query":"q","documents":[]}"#, "documents");
    check("/v1/rerank", r#"{"query":"q","documents":["a"],"texts":["a"]}"#, "texts");
    check("/v1/rerank", r#"{"query":"q","texts":["a"],"top_n":1}"#, "top_n");
    check("/v1/classify", r#"{"input":"a","classes":["x"]}"#, "classes");
    check("/v1/classify", r#"{"input":[],"classes":["x","y"]}"#, "input");
    beyond_schemas("/v1/classify", r#"{"input":"a","classes":["x","x"]}"#, "classes");
    beyond_schemas("/v1/classify", r#"{"input":"a","classes":["x",""]}"#, "classes");
    check("/v1/embeddings", r#"{"input":[],"pooling":"mean"}"#, "input");
    beyond_schemas("/v1/embeddings", r#"{"input":[1000000],"pooling":"mean"}"#, "input");
    check("/detokenize", r#"{"tokens":[5,-1]}"#, "tokens[1]");
    // The order of two numbers, the vocabulary and the context.
    let path = "/v1/completions";
    beyond_schemas(path, r#"{"prompt":"p","suffix":"x"}"#, "suffix");
    beyond_schemas(path, r#"{"prompt":"p","n":3,"best_of":2,"temperature":1}"#, "best_of");
    beyond_schemas(path, r#"{"prompt":[1000000]}"#, "prompt");
    beyond_schemas(path, &format!("{{\"prompt\":\"{}\"}}", "word ".repeat(100_000)), "prompt");
}

#[test]
fn an_object_is_not_read_from_an_array() {
    let server = start_chat("parts.jinja");
    let check = |path: &str, body: &str, param: &str, expected: &str| {
        let answer = server.client.post(path, body).unwrap();
        described(server.mode, path, body, &answer);
        assert_eq!(allows(server.mode, path, body), Some(false), "{path} {body}");
        let status = if path == "/v1/systemone" { 422 } else { 400 };
        assert_eq!(
            error(&answer),
            (status, "invalid_type".to_owned(), Some(param.to_owned())),
            "{path} {body}"
        );
        assert!(answer.text().contains(expected), "{path} {body}: {}", answer.text());
    };
    let object = "invalid type: sequence, expected an object";
    check("/v1/completions", r#"{"prompt":"a","adapter":[["b",2]]}"#, "adapter[0]", "a name, or an object");
    let options = r#""stream":true,"stream_options":[true,null,null,null]"#;
    check("/v1/completions", &format!(r#"{{"prompt":"a",{options}}}"#), "stream_options", object);
    check("/v1/responses", &format!(r#"{{"input":"a",{options}}}"#), "stream_options", object);
    let messages = r#""messages":[{"role":"user","content":"a"}]"#;
    let chat = "/v1/chat/completions";
    check(chat, &format!("{{{messages},{options}}}"), "stream_options", object);
    check(chat, &format!(r#"{{{messages},"response_format":["text"]}}"#), "response_format", object);
    for (body, param) in [
        (r#"{"input":"a","text":[null,null]}"#, "text"),
        (r#"{"input":"a","text":{"format":["text"]}}"#, "text.format"),
        (r#"{"input":[["message","user","a"]]}"#, "input[0]"),
        (r#"{"input":[{"role":"user","content":[["input_text","a"]]}]}"#, "input[0].content[0]"),
    ] {
        check("/v1/responses", body, param, object);
    }
    let asking = |question: &str| format!(r#"{{"input":"a","questions":[{question}]}}"#);
    let part = r#"["input_text","b",null,null,null,null,null]"#;
    for (body, param) in [
        (asking(r#"["predicate",null,"b",null,null]"#), "questions[0]"),
        (asking(&format!(r#"{{"type":"predicate","instructions":[{part}]}}"#)), "questions[0].instructions[0]"),
        (
            asking(r#"{"type":"choice","instructions":"b","choices":[["x",null],["y",null]]}"#),
            "questions[0].choices[0]",
        ),
        (
            asking(r#"{"type":"score","instructions":"b","levels":[["x",null],["y",null]]}"#),
            "questions[0].levels[0]",
        ),
        (
            r#"{"input":"a","questions":[{"type":"predicate","instructions":"b"}],"prompt_cache_options":["implicit","30m"]}"#
                .to_owned(),
            "prompt_cache_options",
        ),
        (
            r#"{"input":[["message","user","a",null,null,null,null,null,null,null,null,null]],"questions":[{"type":"predicate","instructions":"b"}]}"#
                .to_owned(),
            "input[0]",
        ),
    ] {
        check("/v1/decisions", &body, param, object);
    }
    check("/v1/systemone", r#"{"state":"a","questions":{"q":["noul","b",null]}}"#, "questions.q", object);
}

#[test]
fn heads_that_can_be_read_in_several_ways_are_refused() {
    let server = start();
    let status = |version: &str, headers: &str, body: &str| {
        let head = format!("POST /tokenize HTTP/{version}\r\nConnection: close\r\n{headers}\r\n{body}");
        server.client.raw(head.as_bytes()).unwrap()
    };
    let (host, sized) = ("Host: localhost\r\n", "Content-Length: 14\r\n");
    let body = r#"{"prompt":"x"}"#;
    let chunks = format!("e\r\n{body}\r\n0\r\n\r\n");
    assert_eq!(status("1.1", &format!("{host}{sized}"), body).status, 200);
    assert_eq!(status("1.0", sized, body).status, 200);
    assert_eq!(status("1.1", &format!("{host}Transfer-Encoding: Chunked\r\n"), &chunks).status, 200);
    for (headers, body) in [
        (format!("{host}Transfer-Encoding: gzip, chunked\r\n"), &*chunks),
        (format!("{host}Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), &*chunks),
        (format!("{host}{host}{sized}"), body),
        (sized.to_owned(), body),
        (format!("{host}{sized}Origin: http://localhost\r\nOrigin: http://evil.example\r\n"), body),
    ] {
        let answer = status("1.1", &headers, body);
        assert_eq!(error(&answer), (400, "invalid_http".to_owned(), None), "{headers}");
    }
}
