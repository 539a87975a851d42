//! Streamed completions: the same text as without a stream, and every way in which a stream ends.

use std::io::Read as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::server::{Held, Streamed, error, held, json as document, model, start, start_with, uncached};

const PROMPT: &str = "In the beginning";

/// A body with these fields too.
fn with(body: &Value, fields: Value) -> String {
    let mut body = body.clone();
    let Value::Object(fields) = fields else { panic!("{fields}") };
    body.as_object_mut().unwrap().extend(fields);
    body.to_string()
}

/// The choices that the chunks of a stream add up to.
fn added_up(events: &[Value], choices: usize) -> Vec<Value> {
    let mut all = vec![json!({}); choices];
    for chunk in events {
        for delta in chunk["choices"].as_array().into_iter().flatten() {
            let choice = &mut all[delta["index"].as_u64().unwrap() as usize];
            assert!(choice["finish_reason"].is_null(), "nothing follows the end: {delta}");
            for (key, value) in delta.as_object().unwrap() {
                let own = &mut choice[key.as_str()];
                *own = joined(own.take(), value);
            }
        }
    }
    all
}

/// Texts and lists are joined, and so are the lists of objects; other values are replaced.
fn joined(mut before: Value, after: &Value) -> Value {
    match (&mut before, after) {
        (Value::String(text), Value::String(more)) => text.push_str(more),
        (Value::Array(list), Value::Array(more)) => list.extend(more.iter().cloned()),
        (Value::Object(object), Value::Object(more)) => {
            for (key, value) in more {
                let own = object.entry(key).or_insert(Value::Null);
                *own = joined(own.take(), value);
            }
        }
        (before, after) => *before = after.clone(),
    }
    before
}

#[test]
fn a_stream_adds_up_to_the_answer_without_one() {
    let server = start_with(uncached(), |_| ());
    let whole = server.ok("/v1/completions", &json!({ "prompt": PROMPT, "max_tokens": 40 }).to_string());
    let words: Vec<_> = whole["choices"][0]["text"].as_str().unwrap().split(' ').collect();
    let stop = words[4..6].join(" ");
    for fields in [
        json!({}),
        json!({ "stop": [stop, "xyz"] }),
        json!({ "prompt": [PROMPT, "To be"], "n": 3, "temperature": 1.2, "seed": 5 }),
        json!({ "temperature": 6, "seed": 2, "max_tokens": 80 }),
        json!({ "logprobs": 3, "return_token_ids": true }),
        json!({ "echo": true, "n": 2, "temperature": 1 }),
        json!({ "echo": true, "logprobs": 2, "prompt": [PROMPT, "To be"] }),
        json!({ "echo": true, "logprobs": 0, "max_tokens": 0 }),
        json!({ "echo": true, "max_tokens": 0, "prompt": [[5, 6], [7]] }),
        json!({ "logprobs": 1, "temperature": 3, "seed": 9, "stop": "e" }),
    ] {
        let body = json!({ "prompt": PROMPT, "max_tokens": 40 });
        let whole = server.ok("/v1/completions", &with(&body, fields.clone()));
        let streaming = json!({ "stream": true, "stream_options": { "include_usage": true } });
        let body: Value = serde_json::from_str(&with(&body, fields)).unwrap();
        let mut events = server.events("/v1/completions", &with(&body, streaming));
        assert_eq!(events.pop(), Some(Value::Null), "the mark of the end");
        let usage = events.pop().unwrap();
        assert_eq!((&usage["usage"], &usage["choices"]), (&whole["usage"], &json!([])));
        assert!(events.iter().all(|chunk| chunk["usage"].is_null() && chunk.get("usage").is_some()));
        assert!(events.iter().all(|chunk| chunk["object"] == "text_completion" && chunk["model"] == "demo"));
        let choices = whole["choices"].as_array().unwrap();
        assert_eq!(&added_up(&events, choices.len()), choices, "{body}");
    }
}

#[test]
fn token_counts_come_only_where_they_are_asked_for() {
    let server = start();
    let body = json!({ "prompt": PROMPT, "max_tokens": 6, "stream": true, "ignore_eos": true });
    let events = server.events("/v1/completions", &body.to_string());
    assert!(events.iter().all(|chunk| chunk.get("usage").is_none()), "{events:?}");
    let fields = json!({ "stream_options": { "continuous_usage_stats": true } });
    let events = server.events("/v1/completions", &with(&body, fields));
    let told: Vec<_> =
        events.iter().filter_map(|chunk| chunk["usage"]["completion_tokens"].as_u64()).collect();
    assert_eq!(told, [1, 2, 3, 4, 5, 6]);
    let whole = server.ok("/v1/completions", &with(&body, json!({ "stream": false })));
    assert_eq!(events[0]["usage"]["prompt_tokens"], whole["usage"]["prompt_tokens"]);
}

#[test]
fn what_cannot_be_streamed_is_refused_before_the_stream_begins() {
    let server = start();
    let refused = |fields: Value, param: &str| {
        let body = with(&json!({ "prompt": PROMPT, "stream": true }), fields);
        let answer = server.client.post("/v1/completions", &body).unwrap();
        assert_eq!(error(&answer), (400, "invalid_value".to_owned(), Some(param.to_owned())), "{body}");
    };
    refused(json!({ "best_of": 2, "temperature": 1 }), "best_of");
    refused(
        json!({ "stream_options": { "include_obfuscation": true } }),
        "stream_options.include_obfuscation",
    );
    refused(json!({ "stream": false, "stream_options": {} }), "stream_options");
    refused(json!({ "prompt": "word ".repeat(2000) }), "prompt");
}

#[test]
fn a_stream_has_its_line_in_the_log_when_it_ends() {
    let Held { server, holding, go } = held(|_| ());
    let body = json!({ "prompt": PROMPT, "max_tokens": 5, "stream": true }).to_string();
    let mut connection = server.open();
    let mut stream = Streamed::of(connection.send("POST", "/v1/completions", body.as_bytes()).unwrap());
    assert_eq!(stream.answer.head.status, 200, "the head comes before the first token");
    holding.recv().unwrap();
    server.client.get("/health").unwrap();
    drop(go);
    while stream.next().is_some() {}
    let (summary, log) = server.end();
    let told: Vec<_> = log.iter().map(|line| line["route"].as_str().unwrap()).collect();
    assert_eq!(told, ["/health", "/v1/completions"]);
    assert_eq!((&log[1]["status"], &log[1]["completion_tokens"]), (&json!(200), &json!(5)));
    assert!(log[1]["prompt_tokens"].as_u64().unwrap() > 0 && log[1]["code"].is_null());
    assert_eq!((summary.admitted, summary.ended), (1, 1));
}

#[test]
fn a_client_that_leaves_a_stream_cancels_its_request() {
    let Held { server, holding, go } = held(|config| config.limits.queue = 1);
    let body = json!({ "prompt": PROMPT, "max_tokens": 400, "ignore_eos": true, "stream": true }).to_string();
    let mut connection = server.open();
    let stream = Streamed::of(connection.send("POST", "/v1/completions", body.as_bytes()).unwrap());
    holding.recv().unwrap();
    drop(stream);
    // The server notices while the engine is held.
    while server.client.post("/tokenize", r#"{"prompt":"a"}"#).unwrap().status == 429 {}
    drop(go);
    let (summary, log) = server.end();
    assert_eq!(summary.admitted, summary.ended);
    let left: Vec<_> = log.iter().filter(|line| line["status"] == 499).collect();
    assert_eq!(left.len(), 1, "{log:?}");
    assert!(left[0]["completion_tokens"].as_u64().unwrap() < 400, "{}", left[0]);
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let Held { server, holding, go } = held(|config| {
        config.limits.queue = 1;
        config.limits.stream_bytes = 4096;
        config.limits.send_time = Duration::from_millis(100);
    });
    // Far more than the system holds for a connection.
    let body = json!({ "prompt": PROMPT, "max_tokens": 400, "n": 64, "temperature": 1, "logprobs": 20, "ignore_eos": true,
        "stream": true });
    let stream = server.client.send("POST", "/v1/completions", body.to_string().as_bytes()).unwrap();
    holding.recv().unwrap();
    drop(go);
    while server.client.post("/tokenize", r#"{"prompt":"a"}"#).unwrap().status == 429 {}
    drop(stream);
    let (summary, log) = server.end();
    assert_eq!(summary.admitted, summary.ended);
    let line = log.iter().find(|line| line["route"] == "/v1/completions").unwrap();
    assert!(line["status"] == 499 || line["code"] == "slow_reader", "{line}");
    assert!(line["completion_tokens"].as_u64().unwrap() < 64 * 400, "{line}");
}

#[test]
fn a_stream_that_outlives_the_end_of_the_server_says_so() {
    let Held { server, holding, go } = held(|config| config.limits.drain_time = Duration::ZERO);
    let body = json!({ "prompt": PROMPT, "max_tokens": 400, "ignore_eos": true, "stream": true }).to_string();
    let mut connection = server.open();
    let mut stream = Streamed::of(connection.send("POST", "/v1/completions", body.as_bytes()).unwrap());
    holding.recv().unwrap();
    server.stop();
    // The requests are cancelled after the port has closed.
    while server.client.get("/health").is_ok() {}
    let mut last = None;
    drop(go);
    while let Some((_, data)) = stream.next() {
        last = Some(data);
    }
    let last: Value = serde_json::from_str(&last.unwrap()).unwrap();
    assert_eq!(
        (&last["error"]["code"], &last["error"]["type"]),
        (&json!("draining"), &json!("unavailable_error"))
    );
    let (summary, log) = server.end();
    assert_eq!((summary.admitted, summary.ended), (1, 1));
    let line = log.iter().find(|line| line["route"] == "/v1/completions").unwrap();
    assert_eq!((&line["status"], &line["code"]), (&json!(503), &json!("draining")));
}

#[test]
fn a_stream_that_takes_too_long_ends_with_an_error() {
    let Held { server, holding, go } = held(|_| ());
    let body = json!({ "prompt": PROMPT, "max_tokens": 400, "stream": true, "timeout_s": 0.05 }).to_string();
    let mut stream = server.client.send("POST", "/v1/completions", body.as_bytes()).unwrap();
    // Held until the time has passed: the server's clock goes on while it refuses requests that are already late.
    if holding.recv_timeout(Duration::from_secs(20)).is_ok() {
        std::thread::sleep(Duration::from_millis(60));
    }
    drop(go);
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains(r#""code":"deadline_exceeded""#) && !text.contains("[DONE]"), "{text}");
}

#[test]
fn the_memory_of_answers_is_limited() {
    let server = start_with(model(), |config| config.limits.all_answer_bytes = 1 << 20);
    let body = json!({ "prompt": PROMPT, "max_tokens": 400, "n": 100, "temperature": 1 });
    let answer = server.client.post("/v1/completions", &body.to_string()).unwrap();
    assert_eq!(error(&answer), (400, "answer_too_large".to_owned(), Some("prompt".to_owned())));
    let small = with(&body, json!({ "n": 1, "max_tokens": 2 }));
    assert_eq!(server.client.post("/v1/completions", &small).unwrap().status, 200);
    let Held { server, holding, go } = held(|config| config.limits.all_answer_bytes = 1 << 20);
    let large = with(&body, json!({ "n": 50 }));
    let running = server.client.send("POST", "/v1/completions", large.as_bytes()).unwrap();
    holding.recv().unwrap();
    let answer = server.client.post("/v1/completions", &large).unwrap();
    assert_eq!(error(&answer), (429, "bytes_budget".to_owned(), None));
    assert_eq!(answer.header("retry-after"), Some("1"));
    drop((go, running));
}

#[test]
fn a_large_answer_comes_whole() {
    let server = start();
    let ids: Vec<usize> = (0..120).map(|at| 5 + at % 50).collect();
    let prompts: Vec<_> = (0..128).map(|_| &ids).collect();
    let body = json!({ "prompt": prompts, "max_tokens": 1, "echo": true, "logprobs": 5 }).to_string();
    let answer = server.client.post("/v1/completions", &body).unwrap();
    assert!(answer.body.len() > 1 << 20, "{}", answer.body.len());
    assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()));
    assert_eq!(document(&answer)["choices"].as_array().unwrap().len(), 128);
}
