//! Receipts of the routes, confirmed by another engine.

use redline_api::model::LoadedModel;
use redline_api::receipt::document::ReceiptDocument;
use redline_api::receipt::{Verified, verify};
use redline_engine::Cancel;
use serde_json::{Value, json};

use crate::encoder::encoder;
use crate::server::{Running, chat, json as document, masked, model, model_with, start_with};

fn verified(model: &LoadedModel, answer: &Value) -> Verified {
    let document: ReceiptDocument = serde_json::from_value(answer["receipt"].clone()).unwrap();
    verify(&model.engine, document, &Cancel::new()).unwrap()
}

/// Asks with `receipt` and returns the answer.
fn with_receipt(server: &Running, route: &str, mut body: Value, receipt: Value) -> Value {
    body["receipt"] = receipt;
    server.ok(route, &body.to_string())
}

const PROMPT: &str = "In the beginning";

fn requests() -> Vec<(&'static str, Value)> {
    let documents = json!(["Henry is king.", "It rains."]);
    let messages = json!([{"role": "user", "content": "Who is king?"}]);
    vec![
        (
            "/v1/completions",
            json!({"prompt": PROMPT, "max_tokens": 6, "n": 2, "temperature": 0.7, "seed": 3}),
        ),
        ("/v1/completions", json!({"prompt": PROMPT, "max_tokens": 0, "echo": true, "logprobs": 2})),
        ("/v1/chat/completions", json!({"messages": messages, "max_tokens": 6})),
        ("/v1/responses", json!({"input": "Who is king?", "max_output_tokens": 6})),
        ("/v1/score", json!({"query": PROMPT, "items": [" a", " the"], "labels": [" God", " the"]})),
        ("/v1/classify", json!({"input": ["I loved it"], "classes": ["good", "bad"], "calibrate": "N/A"})),
        ("/v1/rerank", json!({"query": "Who is king?", "documents": documents})),
        ("/v1/embeddings", json!({"input": documents, "pooling": "mean", "dimensions": 8})),
    ]
}

#[test]
fn every_route_gives_receipts_that_another_engine_confirms() {
    let server = start_with(model(), |config| config.chat = Some(chat("qwen-3.jinja")));
    let other = model_with(|options| options.threads = 2);
    for (route, body) in requests() {
        // The second time from the prefix cache.
        for _ in 0..2 {
            let answer = with_receipt(&server, route, body.clone(), json!(true));
            assert_eq!(verified(&other, &answer), Verified::Confirmed, "{route}: {answer}");
            assert_eq!(answer["receipt"]["layers"].as_array().unwrap().len(), other.engine.info().layers);
        }
        let one = with_receipt(&server, route, body.clone(), json!({"layers": [2]}));
        assert_eq!(one["receipt"]["layers"].as_array().unwrap().len(), 1, "{route}");
        assert_eq!(verified(&other, &one), Verified::Confirmed, "{route}");
        let none = with_receipt(&server, route, body, json!(false));
        assert!(none.get("receipt").is_none(), "{route}: {none}");
    }
}

#[test]
fn canvases_and_encoders_have_receipts() {
    let server = start_with(masked(), |_| ());
    let body = json!({"prompt": PROMPT, "max_tokens": 8, "steps": 4, "temperature": 0.5, "seed": 2});
    let answer = with_receipt(&server, "/v1/completions", body, json!(true));
    assert_eq!(verified(&masked(), &answer), Verified::Confirmed, "{answer}");
    let server = start_with(encoder("bert-a"), |_| ());
    let answer = with_receipt(&server, "/v1/embeddings", json!({"input": [[5, 6, 7], [8]]}), json!(true));
    assert_eq!(verified(&encoder("bert-a"), &answer), Verified::Confirmed, "{answer}");
}

#[test]
fn what_has_no_receipt_is_refused() {
    let server = start_with(model(), |config| config.chat = Some(chat("qwen-3.jinja")));
    let messages = json!([{"role": "user", "content": "Who is king?"}]);
    for (route, body, told) in [
        ("/v1/completions", json!({"prompt": PROMPT, "stream": true}), "a receipt is part of a whole answer"),
        ("/v1/chat/completions", json!({"messages": messages, "stream": true}), "is given with `stream`"),
        ("/v1/responses", json!({"input": "Who?", "stream": true}), "is given with `stream`"),
        ("/v1/completions", json!({"prompt": ["a", "b"]}), "is given for 2 prompts"),
        ("/v1/rerank", json!({"query": "a", "texts": ["b"]}), "`receipt` is given with `texts`"),
    ] {
        let mut body = body;
        body["receipt"] = json!(true);
        let answer = server.client.post(route, &body.to_string()).unwrap();
        let refused = document(&answer)["error"].clone();
        assert_eq!(answer.status, 400, "{route}: {refused}");
        assert!(refused["message"].as_str().unwrap().contains(told), "{route}: {refused}");
        assert_eq!(refused["param"], "receipt", "{route}: {refused}");
    }
    let body = json!({"prompt": PROMPT, "receipt": {"layers": [99]}});
    let answer = server.client.post("/v1/completions", &body.to_string()).unwrap();
    let told = document(&answer)["error"]["message"].to_string();
    assert!(answer.status == 400 && told.contains("a receipt of layer 99 was asked for"), "{told}");
}
