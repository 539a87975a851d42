//! `/predict`, `/info` and the form of `/rerank` of Text Embeddings Inference. The cases are those of its tests.

use redline_engine::{ClassifyRequest, Label, RerankRequest};
use redline_server::ServerConfig;
use serde_json::{Value, json};

use crate::server::{Running, error, held, json as document, model, start, start_with};

const CLASSES: [&str; 3] = ["good", "bad", "neither"];

fn classify(config: &mut ServerConfig) {
    config.classes = CLASSES.map(str::to_owned).to_vec();
}

fn classifier() -> Running {
    start_with(model(), classify)
}

/// Status and class of an error in TEI's form.
fn refusal(server: &Running, body: &str) -> (u16, String) {
    let answer = server.client.post("/predict", body).unwrap();
    let document = document(&answer);
    assert!(document["error"].is_string() && document.as_object().unwrap().len() == 2, "{document}");
    (answer.status, document["error_type"].as_str().unwrap().to_owned())
}

#[test]
fn a_batch_has_the_predictions_of_its_texts_alone() {
    let server = classifier();
    let single = server.ok("/predict", r#"{"inputs":"test"}"#);
    let classes: Vec<&Value> = single.as_array().unwrap().iter().map(|class| &class["label"]).collect();
    assert_eq!(classes.len(), 3);
    let scores: Vec<f64> =
        single.as_array().unwrap().iter().map(|class| class["score"].as_f64().unwrap()).collect();
    assert!(
        scores.is_sorted_by(|a, b| a >= b) && (scores.iter().sum::<f64>() - 1.0).abs() < 1e-5,
        "{single}"
    );
    let batch = server.ok("/predict", r#"{"inputs":[["test"],["test"],["test"],["test"],["test"]]}"#);
    assert_eq!(batch, json!(vec![single.clone(); 5]));
    assert_eq!(server.ok("/predict", r#"{"inputs":["test"]}"#), single);
    let pair = server.ok("/predict", r#"{"inputs":["test","other"]}"#);
    assert_eq!(server.ok("/predict", r#"{"inputs":[["test","other"]]}"#), json!([pair]));
    assert_eq!(server.ok("/predict", &json!({ "inputs": "test\nother" }).to_string()), pair);
}

#[test]
fn predictions_are_those_of_the_engine() {
    let server = classifier();
    let classes = CLASSES.map(|class| Label::Text(class.to_owned())).to_vec();
    let outcome =
        model().engine.classify(ClassifyRequest::new(vec!["I loved it".to_owned()], classes)).unwrap();
    let expect = outcome.texts[0].as_ref().unwrap();
    let told = |raw: bool| {
        let answer = server.ok("/predict", &json!({ "inputs": "I loved it", "raw_scores": raw }).to_string());
        let score = |class: &str| {
            let entry = answer.as_array().unwrap().iter().find(|entry| entry["label"] == class).unwrap();
            entry["score"].as_f64().unwrap() as f32
        };
        CLASSES.map(score).to_vec()
    };
    assert_eq!(told(false), expect.probabilities);
    assert_eq!(told(true), expect.logprobs);
    for (log, share) in expect.logprobs.iter().zip(&expect.probabilities) {
        assert!((log.exp() - share).abs() < 1e-6);
    }
}

#[test]
fn errors_have_the_form_and_the_status_of_tei() {
    let server = classifier();
    assert_eq!(refusal(&server, r#"{"inputs":7}"#), (422, "validation".to_owned()));
    assert_eq!(refusal(&server, r#"{"inputs":[]}"#), (422, "validation".to_owned()));
    assert_eq!(refusal(&server, r#"{"inputs":["a","b","c"]}"#), (422, "validation".to_owned()));
    assert_eq!(refusal(&server, r#"{"inputs":"a","x":1}"#), (422, "validation".to_owned()));
    assert_eq!(refusal(&server, r#"{"inputs":"#), (400, "validation".to_owned()));
    let many: Vec<Value> = (0..2_049).map(|_| json!(["a"])).collect();
    assert_eq!(refusal(&server, &json!({ "inputs": many }).to_string()), (413, "validation".to_owned()));
    let long = "word ".repeat(2_000);
    assert_eq!(refusal(&server, &json!({ "inputs": long }).to_string()), (413, "validation".to_owned()));
    for direction in ["Left", "Right", "left"] {
        let body = json!({ "inputs": long, "truncate": true, "truncation_direction": direction });
        server.ok("/predict", &body.to_string());
    }
    assert_eq!(refusal(&start(), r#"{"inputs":"a"}"#), (424, "backend".to_owned()));
}

#[test]
fn a_full_queue_is_overloaded() {
    let held = held(|config| {
        classify(config);
        config.limits.queue = 1;
    });
    let running = held.server.client.send("POST", "/predict", br#"{"inputs":"a"}"#).unwrap();
    held.holding.recv().unwrap();
    assert_eq!(refusal(&held.server, r#"{"inputs":"a"}"#), (429, "overloaded".to_owned()));
    drop(held.go);
    drop(running);
}

#[test]
fn equal_texts_have_equal_scores_and_repeat_their_text() {
    let server = start();
    let body = json!({ "query": "test", "texts": ["test", "other", "test"], "return_text": true });
    let ranks = server.ok("/rerank", &body.to_string());
    let of = |index: usize| ranks.as_array().unwrap().iter().find(|rank| rank["index"] == index).unwrap();
    assert_eq!((&of(0)["score"], &of(0)["text"]), (&of(2)["score"], &json!("test")));
    let places: Vec<u64> =
        ranks.as_array().unwrap().iter().map(|rank| rank["index"].as_u64().unwrap()).collect();
    let at = |index: u64| places.iter().position(|&place| place == index).unwrap();
    assert_eq!(at(2), at(0) + 1, "equals follow each other by index: {places:?}");
}

#[test]
fn raw_scores_of_ranks_are_log_odds() {
    let server = start();
    let documents = ["It rains.", "Henry is king."];
    let request = RerankRequest::new("Who is king?".to_owned(), documents.map(str::to_owned).to_vec());
    let outcome = model().engine.rerank(request).unwrap();
    let expect: Vec<_> = outcome.results.into_iter().flatten().collect();
    let body = json!({ "query": "Who is king?", "texts": documents, "raw_scores": true });
    let ranks = server.ok("/rerank", &body.to_string());
    for (rank, expect) in ranks.as_array().unwrap().iter().zip(&expect) {
        assert_eq!(rank["score"].as_f64().unwrap() as f32, expect.log_odds);
        let odds = f64::from(expect.log_odds).exp();
        assert!((odds / (1.0 + odds) - f64::from(expect.relevance)).abs() < 1e-6);
    }
}

#[test]
fn documents_are_cut_to_a_number_of_tokens() {
    let server = start();
    let tokens = |text: &str| {
        let body = json!({ "prompt": text, "add_special_tokens": false });
        server.ok("/tokenize", &body.to_string())["count"].as_u64().unwrap()
    };
    let ranks = |documents: Value, most: u64| {
        let body = json!({ "query": "q", "documents": documents, "max_tokens_per_doc": most });
        server.ok("/v2/rerank", &body.to_string())["results"].clone()
    };
    let short = "Henry is king";
    let long = format!("{short}{}", " of a long land".repeat(300));
    let most = tokens(short);
    assert_eq!(ranks(json!([long]), most), ranks(json!([short]), most));
    assert_eq!(ranks(json!([{ "text": long }]), most), ranks(json!([short]), 4_096));
    let refused = |path: &str, body: Value, param: &str| {
        let answer = server.client.post(path, &body.to_string()).unwrap();
        assert_eq!(error(&answer), (400, "invalid_value".to_owned(), Some(param.to_owned())), "{body}");
    };
    let documents = |rest: Value| {
        let mut body = json!({ "query": "q", "documents": ["a"] });
        body.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        body
    };
    refused("/v1/rerank", documents(json!({ "max_tokens_per_doc": 0 })), "max_tokens_per_doc");
    refused("/v1/rerank", documents(json!({ "raw_scores": true })), "raw_scores");
    let plain = server.ok("/v1/rerank", &documents(json!({})).to_string());
    let probabilities = server.ok("/v1/rerank", &documents(json!({ "raw_scores": false })).to_string());
    assert_eq!(probabilities["results"], plain["results"]);
    refused("/v1/rerank", documents(json!({ "truncation_direction": "Left" })), "truncation_direction");
    refused(
        "/rerank",
        json!({ "query": "q", "texts": ["a"], "max_tokens_per_doc": 5 }),
        "max_tokens_per_doc",
    );
}

#[test]
fn the_server_tells_what_its_model_is_for() {
    let info = document(&classifier().client.get("/info").unwrap());
    assert_eq!(
        info["model_type"]["classifier"]["id2label"],
        json!({ "0": "good", "1": "bad", "2": "neither" })
    );
    assert_eq!(info["model_type"]["classifier"]["label2id"]["bad"], 1);
    assert_eq!((&info["model_id"], &info["max_input_length"]), (&json!("demo"), &json!(512)));
    let info = document(&start().client.get("/info").unwrap());
    assert!(info["model_type"]["reranker"].is_object() && info["max_client_batch_size"] == 1_000);
}

#[test]
fn a_batch_may_mix_texts_and_pairs() {
    let server = classifier();
    let alone = |inputs: Value| server.ok("/predict", &json!({ "inputs": inputs }).to_string());
    let mixed = alone(json!([["a"], ["b", "c"], ["a"]]));
    assert_eq!(mixed, json!([alone(json!("a")), alone(json!(["b", "c"])), alone(json!("a"))]));
    assert_ne!(mixed[0], mixed[1]);
    let nulls = json!({ "inputs": "a", "truncate": null, "truncation_direction": null, "raw_scores": null });
    assert_eq!(server.ok("/predict", &nulls.to_string()), mixed[0]);
    for body in [r#"{"inputs":"a","truncation_direction":"up"}"#, r#"{"inputs":"a","truncate":"yes"}"#, "{}"]
    {
        assert_eq!(refusal(&server, body), (422, "validation".to_owned()), "{body}");
    }
}

#[test]
fn a_text_is_cut_at_the_end_that_is_named() {
    let server = classifier();
    let long = "word ".repeat(2_000);
    let [first, second] = ["king", "rain"].map(|word| [format!("{word} {long}"), format!("{long}{word}")]);
    let predicted = |text: &str, direction: Value| {
        let body = json!({ "inputs": text, "truncate": true, "truncation_direction": direction });
        server.ok("/predict", &body.to_string())
    };
    let ranked = |text: &str, direction: Value| {
        let body =
            json!({ "query": "q", "texts": [text], "truncate": true, "truncation_direction": direction });
        server.ok("/rerank", &body.to_string())
    };
    let check = |answer: &dyn Fn(&str, Value) -> Value| {
        // What differs stands at the beginning, or at the end.
        for (at, lost) in [(0, "Left"), (1, "Right")] {
            for direction in ["Left", "Right"] {
                let is_same = answer(&first[at], json!(direction)) == answer(&second[at], json!(direction));
                assert_eq!(is_same, direction == lost, "{at} {direction}");
            }
            assert_eq!(answer(&first[at], json!(null)), answer(&first[at], json!("right")));
        }
    };
    check(&predicted);
    check(&ranked);
}
