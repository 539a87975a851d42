//! `/api/...`: Ollama's routes.

use serde_json::{Value, json};

use crate::server::{Running, json as document, start, start_chat};

/// The lines of a streamed answer.
fn lines(server: &Running, path: &str, body: &Value) -> Vec<Value> {
    let answer = server.client.post(path, &body.to_string()).unwrap();
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("application/x-ndjson")),
        "{}",
        answer.text()
    );
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The texts of all lines under this key of the line or of its message, put together.
fn joined(lines: &[Value], key: &str) -> String {
    let text =
        |line: &Value| line.get("message").unwrap_or(line)[key].as_str().unwrap_or_default().to_owned();
    lines.iter().map(text).collect()
}

fn with(body: &Value, fields: &Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn question() -> Value {
    json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Who is king?" }])
}

#[test]
fn a_chat_is_streamed_unless_it_is_not_to_be() {
    let server = start_chat("qwen-3.jinja");
    let body = json!({ "model": "demo:latest", "messages": question(), "options": { "num_predict": 12 }, "think": false });
    let whole = server.ok("/api/chat", &with(&body, &json!({ "stream": false })).to_string());
    let chat = json!({ "messages": question(), "max_tokens": 12, "reasoning_effort": "none" });
    let expected = server.ok("/v1/chat/completions", &chat.to_string());
    let (message, usage) = (&expected["choices"][0]["message"], &expected["usage"]);
    assert_eq!(whole["message"], json!({ "role": "assistant", "content": message["content"] }));
    assert_eq!(
        (&whole["model"], &whole["done"], &whole["done_reason"]),
        (&json!("demo:latest"), &json!(true), &json!("length"))
    );
    assert_eq!((&whole["prompt_eval_count"], &whole["eval_count"]), (&usage["prompt_tokens"], &json!(12)));
    assert!(
        whole["eval_duration"].as_u64().unwrap() > 0 && whole["prompt_eval_duration"].as_u64().unwrap() > 0
    );
    assert!(whole["total_duration"].as_u64() > whole["eval_duration"].as_u64(), "{whole}");
    let created = whole["created_at"].as_str().unwrap();
    assert!(created.starts_with("20") && created.len() == 20 && created.ends_with('Z'), "{created}");

    let lines = lines(&server, "/api/chat", &body);
    let (last, before) = lines.split_last().unwrap();
    assert_eq!(json!(joined(before, "content")), message["content"]);
    assert!(
        before.len() > 2
            && before.iter().all(|line| line["done"] == false && line.get("eval_count").is_none())
    );
    for key in ["done", "done_reason", "prompt_eval_count", "eval_count"] {
        assert_eq!(last[key], whole[key], "{key}");
    }
    assert!(last["eval_duration"].as_u64().unwrap() > 0);
}

#[test]
fn a_prompt_is_a_message_unless_it_is_raw() {
    let server = start_chat("qwen-3.jinja");
    let common = json!({ "prompt": "Who is king?", "stream": false, "options": { "num_predict": 8 } });
    let text = |fields: Value| {
        let whole = server.ok("/api/generate", &with(&common, &fields).to_string());
        let lines =
            lines(&server, "/api/generate", &with(&with(&common, &fields), &json!({ "stream": true })));
        assert_eq!(json!(joined(&lines, "response")), whole["response"]);
        assert_eq!(json!(joined(&lines, "thinking")), whole.get("thinking").cloned().unwrap_or(json!("")));
        (whole["response"].clone(), whole["prompt_eval_count"].clone())
    };
    let chat = |messages: Value, think: Value| {
        let mut body = json!({ "messages": messages, "options": { "num_predict": 8 }, "stream": false });
        body["think"] = think;
        let answer = server.ok("/api/chat", &body.to_string());
        (answer["message"]["content"].clone(), answer["prompt_eval_count"].clone())
    };
    let (system, think) = (json!({ "system": "Be brief.", "think": false }), json!(false));
    assert_eq!(text(system), chat(question(), think.clone()));
    let user = json!([{ "role": "user", "content": "Who is king?" }]);
    assert_eq!(text(json!({ "think": true })), chat(user.clone(), json!(true)));
    assert_eq!(text(json!({ "think": "low" })), chat(user, json!("low")));
    let raw = text(json!({ "raw": true }));
    let plain = server.ok("/v1/completions", r#"{"prompt":"Who is king?","max_tokens":8}"#);
    assert_eq!(raw, (plain["choices"][0]["text"].clone(), plain["usage"]["prompt_tokens"].clone()));
    // Without a template, every prompt is raw.
    let bare = start();
    assert_eq!(bare.ok("/api/generate", &common.to_string())["response"], raw.0);
}

#[test]
fn a_format_holds_and_options_count() {
    let server = start_chat("qwen-3.jinja");
    let schema = json!({ "type": "object", "properties": { "land": { "enum": ["Israel", "Judah"] } }, "required": ["land"],
        "additionalProperties": false });
    let body = json!({ "messages": question(), "think": false, "options": { "num_predict": 64 }, "format": schema, "logprobs": true,
        "top_logprobs": 2 });
    let lines = lines(&server, "/api/chat", &body);
    let told: Value = serde_json::from_str(&joined(&lines, "content")).unwrap();
    assert!(["Israel", "Judah"].contains(&told["land"].as_str().unwrap()), "{told}");
    assert_eq!(lines.last().unwrap()["done_reason"], "stop");
    let whole = server.ok("/api/chat", &with(&body, &json!({ "stream": false })).to_string());
    let tokens: Vec<_> = lines.iter().flat_map(|line| line["logprobs"].as_array().unwrap().clone()).collect();
    assert_eq!(json!(tokens), whole["logprobs"]);
    assert!(
        tokens.len() > 3 && tokens.iter().all(|token| token["top_logprobs"].as_array().unwrap().len() == 2)
    );
    let object = server.ok(
        "/api/generate",
        r#"{"prompt":"a","format":"json","think":false,"stream":false,"options":{"num_predict":24}}"#,
    );
    assert!(object["response"].as_str().unwrap().trim_start().starts_with('{'), "{object}");

    let text = |options: Value| {
        let body = json!({ "prompt": "In the beginning", "raw": true, "stream": false, "options": options });
        server.ok("/api/generate", &body.to_string())["response"].as_str().unwrap().to_owned()
    };
    let plain = |fields: &str| {
        let body = format!(r#"{{"prompt":"In the beginning","max_tokens":24,{fields}}}"#);
        server.ok("/v1/completions", &body)["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let drawn = json!({ "num_predict": 24, "temperature": 1, "seed": 3, "top_k": 5, "top_p": 0.9, "num_ctx": 4096, "numa": false });
    assert_eq!(text(drawn), plain(r#""temperature":1,"seed":3,"top_k":5,"top_p":0.9"#));
    let greedy = text(json!({ "num_predict": 24 }));
    for (last, penalty) in [(None, 1.5), (Some(-1), 1.5), (Some(0), 1.0)] {
        let options = json!({ "num_predict": 24, "repeat_penalty": 1.5, "repeat_last_n": last });
        assert_eq!(text(options), plain(&format!(r#""repetition_penalty":{penalty}"#)), "{last:?}");
    }
    assert_ne!(text(json!({ "num_predict": 24, "repeat_penalty": 1.5 })), greedy);
    assert_eq!(text(json!({ "num_predict": 24, "repeat_last_n": 64, "penalize_newline": true })), greedy);
}

#[test]
fn vectors_are_those_of_other_routes() {
    let server = start();
    let vectors = server
        .ok("/api/embed", r#"{"model":"demo","input":["a","In the"],"keep_alive":"5m","pooling":"mean"}"#);
    let expected = server.ok("/embed", r#"{"inputs":["a","In the"],"pooling":"mean"}"#);
    assert_eq!(vectors["embeddings"], expected);
    assert!(
        vectors["prompt_eval_count"].as_u64().unwrap() >= 3
            && vectors["total_duration"].as_u64().unwrap() > 0
    );
    let one = server.ok("/api/embed", r#"{"input":"a","dimensions":4,"pooling":"mean"}"#);
    assert_eq!(one["embeddings"][0].as_array().unwrap().len(), 4);
    // A text that is longer than the context is cut, unless it may not be.
    let long = "In the beginning ".repeat(400);
    server.ok("/api/embed", &json!({ "input": long, "pooling": "mean" }).to_string());
    let refused = server
        .client
        .post("/api/embed", &json!({ "input": long, "truncate": false, "pooling": "mean" }).to_string())
        .unwrap();
    assert_eq!((refused.status, &document(&refused)["param"]), (400, &json!("input")));
    let older = server.ok("/api/embeddings", r#"{"prompt":"a","pooling":"mean"}"#);
    let raw = server.ok("/embed", r#"{"inputs":"a","normalize":false,"pooling":"mean"}"#);
    assert_eq!(older["embedding"], raw[0]);
}

#[test]
fn the_server_says_what_it_has() {
    let server = start_chat("qwen-3.jinja");
    let get = |path: &str| document(&server.client.get(path).unwrap());
    let model = get("/api/tags")["models"][0].clone();
    assert_eq!((&model["name"], &model["model"]), (&json!("demo"), &json!("demo")));
    assert!(
        model["digest"].as_str().unwrap().len() == 64 && model["size"].as_u64().unwrap() > 1000,
        "{model}"
    );
    let running = get("/api/ps")["models"][0].clone();
    assert_eq!((&running["context_length"], &running["digest"]), (&json!(512), &model["digest"]));
    assert_eq!(get("/api/version")["version"], env!("CARGO_PKG_VERSION"));
    let shown = server.ok("/api/show", r#"{"model":"demo:latest"}"#);
    assert_eq!(shown["capabilities"], json!(["completion", "tools", "thinking"]));
    let family = shown["details"]["family"].as_str().unwrap();
    assert_eq!(shown["model_info"][format!("{family}.context_length")], 512);
    assert!(shown["template"].as_str().unwrap().contains("<tool_call>"));
    assert_eq!(start().ok("/api/show", r#"{"name":"demo"}"#)["capabilities"], json!(["completion"]));
    // What loads a model elsewhere is answered, too.
    for (path, key) in [("/api/chat", "message"), ("/api/generate", "response")] {
        let loaded = server.ok(path, r#"{"model":"demo"}"#);
        assert!(
            loaded["done"] == true && loaded["done_reason"] == "load" && loaded.get(key).is_some(),
            "{loaded}"
        );
    }
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let server = start_chat("qwen-3.jinja");
    for (path, fields, param) in [
        ("/api/generate", json!({ "images": ["aGk="] }), "images"),
        ("/api/generate", json!({ "context": [1] }), "context"),
        ("/api/generate", json!({ "template": "{{ .Prompt }}" }), "template"),
        ("/api/generate", json!({ "raw": true, "system": "a" }), "system"),
        ("/api/generate", json!({ "suffix": "a" }), "suffix"),
        ("/api/generate", json!({ "format": "xml" }), "format"),
        ("/api/generate", json!({ "format": { "type": 3 } }), "format"),
        ("/api/generate", json!({ "think": "very" }), "think"),
        ("/api/generate", json!({ "keep_alive": true }), "keep_alive"),
        ("/api/generate", json!({ "top_logprobs": 1 }), "top_logprobs"),
        ("/api/generate", json!({ "options": { "mirostat": 1 } }), "options.mirostat"),
        ("/api/generate", json!({ "options": { "n": 2, "temperature": 1 } }), "n"),
        ("/api/generate", json!({ "options": { "penalize_newline": false } }), "options.penalize_newline"),
        (
            "/api/generate",
            json!({ "options": { "repeat_penalty": 1.5, "repeat_last_n": 64 } }),
            "options.repeat_last_n",
        ),
        (
            "/api/chat",
            json!({ "messages": [{ "role": "user", "content": "a", "images": ["aGk="] }] }),
            "messages[0].images",
        ),
        (
            "/api/chat",
            json!({ "messages": question(), "tools": [{ "type": "function", "function": {} }] }),
            "tools[0].function.name",
        ),
    ] {
        let body = if path == "/api/generate" { with(&json!({ "prompt": "a" }), &fields) } else { fields };
        let answer = server.client.post(path, &body.to_string()).unwrap();
        let error = document(&answer);
        assert_eq!((answer.status, &error["param"]), (400, &json!(param)), "{body} {error}");
        assert!(error["error"].as_str().unwrap().len() > 10, "{error}");
    }
    let other = server
        .client
        .post("/api/chat", &json!({ "model": "other", "messages": question() }).to_string())
        .unwrap();
    assert!(other.status == 404 && document(&other)["error"].as_str().unwrap().contains("`other`"));
}
