//! Invalid requests are refused with the field at fault, and never with a status of 5xx.

use crate::openapi::described;
use crate::server::{error, start, start_chat};

/// A valid body of each route.
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
    ("/v1/decisions", r#"{"input":"a","questions":[{"type":"predicate","instructions":"b"}]"#),
    ("/v1/systemone", r#"{"state":"a","questions":{"q":{"type":"noul","instructions":"b"}}"#),
    ("/tokenize", r#"{"prompt":"a""#),
    ("/detokenize", r#"{"tokens":[5]"#),
];

/// Fields of `/v1/chat/completions`.
#[rustfmt::skip]
const CHAT_FIELDS: &[&str] = &[
    "messages", "max_completion_tokens", "max_tokens", "temperature", "top_p", "top_k", "min_p", "typical_p",
    "n", "seed", "stop", "stream", "stream_options", "logprobs", "top_logprobs", "logit_bias",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "ignore_eos", "chat_template_kwargs",
    "documents", "date", "add_generation_prompt", "continue_final_message", "cache_salt", "timeout_s",
    "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "response_format",
    "modalities", "audio", "prediction", "reasoning_effort", "verbosity", "web_search_options", "moderation",
    "user", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention",
    "safety_identifier",
];

/// Fields of `/v1/responses`.
#[rustfmt::skip]
const RESPONSES_FIELDS: &[&str] = &[
    "input", "instructions", "max_output_tokens", "temperature", "top_p", "top_k", "min_p", "seed",
    "ignore_eos", "stream", "stream_options", "chat_template_kwargs", "cache_salt", "timeout_s", "metadata",
    "store", "text", "tools", "tool_choice", "parallel_tool_calls", "truncation", "background", "include",
    "top_logprobs", "previous_response_id", "conversation", "prompt", "reasoning", "context_management",
    "max_tool_calls", "moderation", "user", "service_tier", "prompt_cache_key", "prompt_cache_retention",
    "safety_identifier",
];

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

/// The fields of each route.
fn fields(path: &str) -> &'static [&'static str] {
    match path {
        "/v1/completions" => &[
            "model",
            "prompt",
            "max_tokens",
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "typical_p",
            "n",
            "best_of",
            "seed",
            "stop",
            "stream",
            "stream_options",
            "echo",
            "logprobs",
            "logit_bias",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
            "ignore_eos",
            "return_token_ids",
            "cache_salt",
            "timeout_s",
            "suffix",
        ],
        "/v1/chat/completions" => CHAT_FIELDS,
        "/v1/responses" => RESPONSES_FIELDS,
        "/v1/score" => &[
            "model",
            "query",
            "items",
            "label_token_ids",
            "labels",
            "apply_softmax",
            "item_first",
            "long_labels",
            "tokenization",
            "truncate",
            "item_errors",
            "return_logprobs",
            "cache_salt",
            "timeout_s",
        ],
        "/v1/rerank" | "/v2/rerank" | "/rerank" => &[
            "model",
            "query",
            "documents",
            "texts",
            "top_n",
            "return_documents",
            "return_text",
            "truncate",
            "truncation_direction",
            "raw_scores",
            "max_tokens_per_doc",
            "cache_salt",
            "timeout_s",
        ],
        "/v1/classify" => {
            &["model", "input", "classes", "threshold", "template", "calibrate", "cache_salt", "timeout_s"]
        }
        "/v1/decisions" | "/v1/systemone" | "/score" => further_fields(path),
        "/tokenize" => &["model", "prompt", "add_special_tokens", "return_token_strs"],
        "/detokenize" => &["model", "tokens"],
        _ => panic!("{path} has no fields"),
    }
}

/// The fields of further routes.
fn further_fields(path: &str) -> &'static [&'static str] {
    match path {
        "/score" => &[
            "model",
            "text_1",
            "text_2",
            "queries",
            "documents",
            "items",
            "data_1",
            "data_2",
            "truncate_prompt_tokens",
            "use_activation",
            "cache_salt",
            "timeout_s",
        ],
        "/v1/decisions" => &[
            "model",
            "input",
            "questions",
            "instructions",
            "chat_template_kwargs",
            "prompt_cache_key",
            "prompt_cache_options",
            "safety_identifier",
            "temperature",
            "cache_salt",
            "timeout_s",
        ],
        "/v1/systemone" => &[
            "model",
            "state",
            "questions",
            "instructions",
            "chat_template_kwargs",
            "cache_salt",
            "timeout_s",
            "assets",
            "images",
            "videos",
        ],
        _ => panic!("{path} has no fields"),
    }
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
                body.remove(*field);
                let rest = serde_json::to_string(&body).unwrap();
                let rest = rest.trim_start_matches('{').trim_end_matches('}');
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
    let check = |path: &str, body: &str, param: &str| {
        let answer = server.client.post(path, body).unwrap();
        described(server.mode, path, body, &answer);
        let expect = (400, "invalid_value".to_owned(), Some(param.to_owned()));
        assert_eq!(error(&answer), expect, "{path} {}", &body[..body.len().min(100)]);
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
    completion(r#""n":3,"best_of":2,"temperature":1"#, "best_of");
    completion(r#""logprobs":21"#, "logprobs");
    completion(r#""max_tokens":0"#, "max_tokens");
    completion(r#""stop":["a",""]"#, "stop[1]");
    completion(r#""logit_bias":{"7":101}"#, "logit_bias.7");
    completion(r#""frequency_penalty":2.5"#, "frequency_penalty");
    completion(r#""repetition_penalty":0"#, "repetition_penalty");
    completion(r#""timeout_s":0"#, "timeout_s");
    completion(r#""suffix":"x""#, "suffix");
    completion(r#""echo":true,"logprobs":1,"n":2,"temperature":1"#, "echo");
    completion(r#""stream_options":{"include_usage":true}"#, "stream_options");
    completion(&format!("\"cache_salt\":\"{}\"", "s".repeat(257)), "cache_salt");
    check("/v1/completions", r#"{"prompt":[]}"#, "prompt");
    check("/v1/completions", r#"{"prompt":[[5],[]]}"#, "prompt[1]");
    check("/v1/completions", r#"{"prompt":[1000000]}"#, "prompt");
    check("/v1/completions", &format!("{{\"prompt\":\"{}\"}}", "word ".repeat(100_000)), "prompt");
    check("/v1/score", r#"{"query":"q","items":["a"]}"#, "label_token_ids");
    check("/v1/score", r#"{"query":"q","items":["a"],"label_token_ids":[]}"#, "label_token_ids");
    check("/v1/score", r#"{"query":"q","items":["a",[5]],"label_token_ids":[5]}"#, "items[1]");
    check("/v1/rerank", r#"{"query":"q"}"#, "documents");
    check("/v1/rerank", r#"{"query":"q","documents":[]}"#, "documents");
    check("/v1/rerank", r#"{"query":"q","documents":["a"],"texts":["a"]}"#, "texts");
    check("/v1/rerank", r#"{"query":"q","texts":["a"],"top_n":1}"#, "top_n");
    check("/v1/classify", r#"{"input":"a","classes":["x"]}"#, "classes");
    check("/v1/classify", r#"{"input":[],"classes":["x","y"]}"#, "input");
    check("/detokenize", r#"{"tokens":[5,-1]}"#, "tokens[1]");
}
