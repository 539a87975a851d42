//! `/score` and `/v1/score` in vLLM's form, and the choice between the forms.

use redline_engine::RerankRequest;
use serde_json::{Value, json};

use crate::server::{error, model, start};

const DOCUMENTS: [&str; 3] = ["It rains.", "Henry is king.", "A rose."];

fn scores(answer: &Value) -> Vec<f32> {
    let data = answer["data"].as_array().unwrap();
    for (at, entry) in data.iter().enumerate() {
        assert_eq!((&entry["index"], &entry["object"]), (&json!(at), &json!("score")));
    }
    data.iter().map(|entry| entry["score"].as_f64().unwrap() as f32).collect()
}

/// What the engine's reranking gives for each document.
fn expected(query: &str, documents: &[&str]) -> Vec<(f32, f32)> {
    let documents = documents.iter().map(|&document| document.to_owned()).collect();
    let outcome = model().engine.rerank(RerankRequest::new(query.to_owned(), documents)).unwrap();
    let mut ranked: Vec<_> = outcome.results.into_iter().flatten().collect();
    ranked.sort_by_key(|ranked| ranked.index);
    ranked.iter().map(|ranked| (ranked.relevance, ranked.log_odds)).collect()
}

#[test]
fn one_text_is_compared_with_each_and_lists_pair_by_pair() {
    let server = start();
    let query = "Who is king?";
    let expect = expected(query, &DOCUMENTS);
    let relevance: Vec<f32> = expect.iter().map(|&(relevance, _)| relevance).collect();
    for path in ["/score", "/v1/score"] {
        for (left, right) in
            [("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2")]
        {
            let answer = server.ok(path, &json!({ (left): query, (right): DOCUMENTS }).to_string());
            assert_eq!(scores(&answer), relevance, "{path} {left}");
            assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!("demo")));
            assert!(answer["usage"]["prompt_tokens"].as_u64().unwrap() > 0);
        }
    }
    let one = server.ok("/score", &json!({ "text_1": [query], "text_2": DOCUMENTS[1] }).to_string());
    assert_eq!(scores(&one), [relevance[1]]);
    let raw = json!({ "text_1": query, "text_2": DOCUMENTS, "use_activation": false });
    assert_eq!(
        scores(&server.ok("/score", &raw.to_string())),
        expect.iter().map(|&(_, odds)| odds).collect::<Vec<_>>()
    );
    let queries = [query, query, "Does it rain?"];
    let answer = server.ok("/score", &json!({ "queries": queries, "documents": DOCUMENTS }).to_string());
    let third = expected("Does it rain?", &DOCUMENTS[2..])[0].0;
    assert_eq!(scores(&answer), [relevance[0], relevance[1], third]);
}

#[test]
fn other_combinations_of_fields_are_refused() {
    let server = start();
    let check = |body: Value, code: &str, param: &str| {
        for path in ["/score", "/v1/score"] {
            let answer = server.client.post(path, &body.to_string()).unwrap();
            assert_eq!(error(&answer), (400, code.to_owned(), Some(param.to_owned())), "{body}");
        }
    };
    check(json!({ "text_1": "a" }), "invalid_value", "queries");
    check(json!({ "text_1": "a", "data_2": "b" }), "invalid_value", "queries");
    check(json!({ "text_1": "a", "text_2": "b", "queries": "c" }), "invalid_value", "queries");
    check(json!({ "queries": "a", "documents": "b", "items": "c" }), "invalid_value", "queries");
    check(json!({ "text_1": ["a", "b"], "text_2": "c" }), "invalid_value", "text_2");
    check(json!({ "text_1": ["a", "b"], "text_2": ["c", "d", "e"] }), "invalid_value", "text_2");
    check(json!({ "text_1": [], "text_2": ["c"] }), "invalid_value", "text_1");
    check(
        json!({ "text_1": "a", "text_2": "b", "truncate_prompt_tokens": 5 }),
        "invalid_value",
        "truncate_prompt_tokens",
    );
    check(json!({ "text_1": "a", "text_2": "b", "labels": ["c"] }), "unknown_parameter", "labels");
    check(json!({ "query": "a", "items": ["b"], "text_2": "c" }), "unknown_parameter", "query");
    // The form of SGLang is answered at both paths.
    for path in ["/score", "/v1/score"] {
        server.ok(path, r#"{"query":"a","items":["b"],"labels":[" the"]}"#);
    }
    let long = "word ".repeat(2_000);
    check(json!({ "text_1": "a", "text_2": long }), "invalid_value", "queries");
    server.ok("/score", &json!({ "text_1": "a", "text_2": long, "truncate_prompt_tokens": -1 }).to_string());
}
