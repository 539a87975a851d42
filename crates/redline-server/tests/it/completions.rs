//! `/v1/completions` gives what the engine gives.

use redline_engine::{Cancel, GenerateRequest, Prompt, PromptLogprobs, Sampling, Ticket};
use serde_json::{Value, json};

use crate::server::{error, model, start, start_chat};

const PROMPT: &str = "In the beginning";

fn generated(request: GenerateRequest) -> redline_engine::GenerateOutcome {
    model().engine.submit_generate(request, &Cancel::new()).and_then(Ticket::wait).unwrap()
}

#[test]
fn a_completion_is_that_of_the_engine() {
    let server = start();
    let answer = server.ok(
        "/v1/completions",
        &json!({ "prompt": PROMPT, "max_tokens": 12, "return_token_ids": true }).to_string(),
    );
    let expect = generated(GenerateRequest::new(Prompt::Text(PROMPT.to_owned()), 12));
    let choice = &answer["choices"][0];
    assert_eq!(choice["text"], expect.text);
    assert_eq!(choice["token_ids"], json!(expect.token_ids));
    assert_eq!((&choice["index"], &choice["logprobs"]), (&json!(0), &Value::Null));
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!((&answer["object"], &answer["model"]), (&json!("text_completion"), &json!("demo")));
    let usage = &answer["usage"];
    assert_eq!(usage["prompt_tokens"], expect.prompt_token_ids.len());
    assert_eq!(usage["completion_tokens"], 12);
    assert!(answer["id"].as_str().unwrap().starts_with("cmpl-") && answer["created"].is_u64());
}

#[test]
fn continuations_have_their_seeds_and_prompts_their_order() {
    let server = start();
    let body = json!({ "prompt": [PROMPT, "To be"], "max_tokens": 8, "n": 2, "temperature": 0.9, "seed": 7 });
    let answer = server.ok("/v1/completions", &body.to_string());
    let mut expect = Vec::new();
    for prompt in [PROMPT, "To be"] {
        let sampling = Sampling { temperature: 0.9, seed: 7, ..Sampling::default() };
        let request =
            GenerateRequest { sampling, n: 2, ..GenerateRequest::new(Prompt::Text(prompt.to_owned()), 8) };
        expect.extend(generated(request).take_continuations().into_iter().map(|one| one.text));
    }
    let choices = answer["choices"].as_array().unwrap();
    let texts: Vec<_> = choices.iter().map(|choice| choice["text"].as_str().unwrap()).collect();
    assert_eq!(texts, expect);
    assert!(choices.iter().enumerate().all(|(at, choice)| choice["index"] == at));
    // The same request again gives the same answer.
    assert_eq!(server.ok("/v1/completions", &body.to_string())["choices"], answer["choices"]);
}

#[test]
fn an_integer_may_be_written_with_a_fraction_of_zero() {
    let server = start();
    let rest = r#""prompt":[[5,6],[7]],"temperature":0.5"#;
    let plain =
        format!(r#"{{{rest},"max_tokens":4,"n":2,"top_k":9,"seed":7,"logprobs":1,"stop_token_ids":[5]}}"#);
    let fractions = plain.replace("[[5,6],[7]]", "[[5.0,6],[7e0]]").replace("[5]}", "[5.0]}");
    let fractions = ["max_tokens\":4", "n\":2", "top_k\":9", "seed\":7", "logprobs\":1"]
        .iter()
        .fold(fractions, |body, field| body.replace(field, &format!("{field}.0")));
    let of = |body: &str| server.ok("/v1/completions", body)["choices"].clone();
    assert_eq!(of(&fractions), of(&plain));
    let one = |seed: &str| of(&format!(r#"{{"prompt":"a","max_tokens":4,"temperature":2,"seed":{seed}}}"#));
    assert_eq!(one("18446744073709551615"), one("-1"));
    for field in ["max_tokens", "n", "top_k", "seed", "logprobs", "min_tokens"] {
        let body = format!(r#"{{"prompt":"a","{field}":4.5}}"#);
        let answer = server.client.post("/v1/completions", &body).unwrap();
        assert_eq!(error(&answer), (400, "invalid_type".to_owned(), Some(field.to_owned())));
    }
}

#[test]
fn a_stop_token_ends_a_text_and_has_none() {
    let server = start();
    let of = |rest: &str| {
        let body = format!(r#"{{"prompt":"{PROMPT}","max_tokens":12,"return_token_ids":true{rest}}}"#);
        server.ok("/v1/completions", &body)["choices"][0].clone()
    };
    let whole = of("");
    let ids = whole["token_ids"].as_array().unwrap();
    let ended = of(&format!(r#","stop_token_ids":[{}]"#, ids[4]));
    let first = ids.iter().position(|id| *id == ids[4]).unwrap();
    assert_eq!((&ended["token_ids"], &ended["finish_reason"]), (&json!(ids[..=first]), &json!("stop")));
    assert!(whole["text"].as_str().unwrap().starts_with(ended["text"].as_str().unwrap()));
    let answer = server.client.post("/v1/completions", r#"{"prompt":"a","stop_token_ids":[4096]}"#).unwrap();
    assert_eq!(error(&answer), (400, "invalid_value".to_owned(), Some("stop_token_ids".to_owned())));
}

#[test]
fn the_last_tokens_of_a_prompt_are_kept() {
    let server = start_chat("parts.jinja");
    let of = |path: &str, rest: &str| server.ok(path, &format!(r#"{{"max_tokens":4,{rest}}}"#));
    let ids = [9, 8, 7, 6, 5];
    let last = of("/v1/completions", r#""prompt":[6,5]"#);
    let cut = of("/v1/completions", &format!(r#""prompt":{ids:?},"truncate_prompt_tokens":2"#));
    assert_eq!((&cut["choices"], &cut["usage"]["prompt_tokens"]), (&last["choices"], &json!(2)));
    let long = "word ".repeat(600);
    let fits = of("/v1/completions", &format!(r#""prompt":"{long}","truncate_prompt_tokens":-1"#));
    assert_eq!(fits["usage"]["prompt_tokens"], 508);
    let messages = r#""messages":[{"role":"user","content":"Who is king?"}]"#;
    let chat = of("/v1/chat/completions", &format!(r#"{messages},"truncate_prompt_tokens":3"#));
    assert_eq!(chat["usage"]["prompt_tokens"], 3);
    for most in [0, -2] {
        let body = format!(r#"{{"prompt":"a","truncate_prompt_tokens":{most}}}"#);
        let answer = server.client.post("/v1/completions", &body).unwrap();
        assert_eq!(
            error(&answer),
            (400, "invalid_value".to_owned(), Some("truncate_prompt_tokens".to_owned()))
        );
    }
}

#[test]
fn a_stop_string_ends_a_text() {
    let server = start();
    let whole = server.ok("/v1/completions", &json!({ "prompt": PROMPT, "max_tokens": 24 }).to_string());
    let whole = whole["choices"][0]["text"].as_str().unwrap().to_owned();
    let stop = whole.trim().split(' ').nth(2).unwrap();
    let body = json!({ "prompt": PROMPT, "max_tokens": 24, "stop": stop });
    let choice = &server.ok("/v1/completions", &body.to_string())["choices"][0];
    assert_eq!(choice["text"].as_str(), whole.split(stop).next());
    assert_eq!(choice["finish_reason"], "stop");
}

/// What lm-evaluation-harness sends and sums up for a log-likelihood.
#[test]
fn echoed_log_probabilities_are_those_of_the_prompt() {
    let server = start();
    let ids = model().engine.tokenizer().unwrap().encode("In the beginning God created", true).unwrap();
    let body = json!({ "prompt": [ids, ids], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": true });
    let answer = server.ok("/v1/completions", &body.to_string());
    let request = GenerateRequest {
        logprobs: Some(1),
        prompt_logprobs: Some(PromptLogprobs { from: 0, top: 1 }),
        ..GenerateRequest::new(Prompt::Ids(ids.iter().map(|&id| i64::from(id)).collect()), 1)
    };
    let expect = generated(request);
    for index in 0..2 {
        let logprobs = &answer["choices"][index]["logprobs"];
        let list = |key: &str| logprobs[key].as_array().unwrap();
        assert_eq!(list("tokens").len(), ids.len() + 1);
        assert_eq!((&list("token_logprobs")[0], &list("top_logprobs")[0]), (&Value::Null, &Value::Null));
        let positions = expect.prompt_logprobs.as_ref().unwrap().iter().flatten();
        let positions = positions.chain(expect.logprobs.iter().flatten());
        for (at, position) in (1..).zip(positions) {
            let value = list("token_logprobs")[at].as_f64().unwrap() as f32;
            assert_eq!(value.to_bits(), position.chosen.logprob.to_bits());
            let top = list("top_logprobs")[at].as_object().unwrap();
            let token = list("tokens")[at].as_str().unwrap();
            assert_eq!(top[token].as_f64().unwrap() as f32, value, "the token is among the most probable");
            let best = top.values().map(|v| v.as_f64().unwrap()).fold(f64::MIN, f64::max);
            assert_eq!(best as f32, position.top[0].logprob);
        }
        let offsets: Vec<u64> = list("text_offset").iter().map(|offset| offset.as_u64().unwrap()).collect();
        assert!(offsets.is_sorted() && offsets[0] == 0);
        let text = answer["choices"][index]["text"].as_str().unwrap();
        assert!(text.starts_with("In the beginning God created"), "{text}");
    }
}

#[test]
fn a_prompt_may_be_echoed_alone() {
    let server = start();
    let body = json!({ "prompt": PROMPT, "max_tokens": 0, "echo": true, "logprobs": 0 });
    let answer = server.ok("/v1/completions", &body.to_string());
    let choice = &answer["choices"][0];
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(PROMPT), &json!("length")));
    assert_eq!(answer["usage"]["completion_tokens"], 0);
    let tokens = choice["logprobs"]["tokens"].as_array().unwrap().len();
    assert_eq!(answer["usage"]["prompt_tokens"], tokens);
}
