//! `/v1/score`, the routes that rerank, and `/v1/classify` give what the engine gives.

use redline_engine::{ClassifyRequest, Label, Prompt, RerankRequest, ScoreRequest};
use serde_json::{Value, json};

use crate::server::{Running, error, model, start};

fn text(text: &str) -> Prompt {
    Prompt::Text(text.to_owned())
}

/// A row of numbers, as `f32`.
fn row(of: &Value) -> Vec<f32> {
    of.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
}

#[test]
fn scores_are_those_of_the_engine() {
    let server = start();
    let labels = [" the", " God"];
    for softmax in [false, true] {
        let body = json!({ "query": "In", "items": [" the beginning", ""], "labels": labels, "apply_softmax": softmax,
            "return_logprobs": true });
        let answer = server.ok("/v1/score", &body.to_string());
        let labels = labels.map(|label| Label::Text(label.to_owned())).to_vec();
        let mut request = ScoreRequest::new(text("In"), vec![text(" the beginning"), text("")], labels);
        request.softmax = softmax;
        let expect = model().engine.score(request).unwrap();
        for (at, item) in expect.items.iter().enumerate() {
            let item = item.as_ref().unwrap();
            assert_eq!(row(&answer["scores"][at]), item.scores);
            assert_eq!(row(&answer["logprobs"][at]), item.logprobs);
        }
        assert_eq!(answer["object"], "scoring");
        assert_eq!(answer["usage"]["completion_tokens"], 0);
    }
    let ids = json!({ "query": [5, 6], "items": [[7], [8, 9]], "label_token_ids": [10, 11, 10] });
    let answer = server.ok("/v1/score", &ids.to_string());
    let scores = row(&answer["scores"][1]);
    assert!(scores.len() == 3 && scores[0] == scores[2] && answer["logprobs"].is_null());
    let none = server.ok("/v1/score", r#"{"query":"a","items":[],"labels":[" the"]}"#);
    assert_eq!(none["scores"], json!([]));
}

#[test]
fn documents_are_ranked_as_by_the_engine_in_every_form() {
    let server = start();
    let documents = ["It rains.", "Henry is king.", "A rose."];
    let request =
        RerankRequest::new("Who is king?".to_owned(), documents.iter().map(|&d| d.to_owned()).collect());
    let expect: Vec<_> = model().engine.rerank(request).unwrap().results.into_iter().flatten().collect();
    let body = json!({ "query": "Who is king?", "documents": [documents[0], { "text": documents[1] }, documents[2]],
        "return_documents": true });
    for path in ["/rerank", "/v1/rerank", "/v2/rerank"] {
        let answer = server.ok(path, &body.to_string());
        let results = answer["results"].as_array().unwrap();
        assert_eq!(results.len(), 3);
        for (result, expect) in results.iter().zip(&expect) {
            assert_eq!(result["index"], expect.index);
            assert_eq!(result["relevance_score"].as_f64().unwrap() as f32, expect.relevance);
            assert_eq!(result["document"]["text"], documents[expect.index]);
        }
    }
    let first = json!({ "query": "Who is king?", "documents": documents, "top_n": 1 });
    let answer = server.ok("/v2/rerank", &first.to_string());
    assert_eq!(answer["results"].as_array().unwrap().len(), 1);
    assert!(answer["results"][0]["document"].is_null());
    let list = server.ok("/rerank", &json!({ "query": "Who is king?", "texts": documents }).to_string());
    for (rank, expect) in list.as_array().unwrap().iter().zip(&expect) {
        assert_eq!(rank["index"], expect.index);
        assert_eq!(rank["score"].as_f64().unwrap() as f32, expect.relevance);
        assert!(rank["text"].is_null());
    }
}

#[test]
fn classes_are_those_of_the_engine() {
    let server = start();
    let body = json!({ "input": ["I loved it", "Never again"], "classes": ["good", "bad"] });
    let answer = server.ok("/v1/classify", &body.to_string());
    let classes = ["good", "bad"].map(|class| Label::Text(class.to_owned())).to_vec();
    let request = ClassifyRequest::new(vec!["I loved it".to_owned(), "Never again".to_owned()], classes);
    let expect = model().engine.classify(request).unwrap();
    for (at, text) in expect.texts.iter().enumerate() {
        let (text, entry) = (text.as_ref().unwrap(), &answer["data"][at]);
        assert_eq!(row(&entry["probs"]), text.probabilities);
        assert_eq!(entry["label"], ["good", "bad"][text.best.unwrap()]);
        assert_eq!((&entry["index"], &entry["num_classes"]), (&json!(at), &json!(2)));
    }
    let sure = json!({ "input": "I loved it", "classes": ["good", "bad"], "threshold": 1.0 });
    assert_eq!(server.ok("/v1/classify", &sure.to_string())["data"][0]["label"], Value::Null);
}

const FOUR: [&str; 4] =
    ["It rains.", "Henry is king.", "A rose.", "Learning is the process of understanding."];

/// The results of Cohere's form.
fn results(server: &Running, body: &Value) -> Vec<Value> {
    server.ok("/v1/rerank", &body.to_string())["results"].as_array().unwrap().clone()
}

#[test]
fn the_most_relevant_documents_come_first_up_to_the_number_asked_for() {
    let server = start();
    let all = results(&server, &json!({ "query": "Who is king?", "documents": FOUR }));
    let relevance: Vec<f64> = all.iter().map(|one| one["relevance_score"].as_f64().unwrap()).collect();
    assert!(relevance.is_sorted_by(|a, b| a > b), "{relevance:?}");
    assert!(relevance.iter().all(|share| (0.0..=1.0).contains(share)), "{relevance:?}");
    for (top, count) in
        [(json!(null), 4), (json!(0), 4), (json!(1), 1), (json!(2), 2), (json!(4), 4), (json!(99), 4)]
    {
        for repeated in [json!(null), json!(false), json!(true)] {
            let body = json!({ "query": "Who is king?", "documents": FOUR, "top_n": top, "return_documents": repeated });
            let some = results(&server, &body);
            assert_eq!(some.len(), count, "{body}");
            for (one, of_all) in some.iter().zip(&all) {
                assert_eq!(
                    (&one["index"], &one["relevance_score"]),
                    (&of_all["index"], &of_all["relevance_score"])
                );
                let text = FOUR[one["index"].as_u64().unwrap() as usize];
                let document = if repeated == true { json!({ "text": text }) } else { Value::Null };
                assert_eq!(one["document"], document, "{body}");
            }
        }
    }
    let list = server.ok("/rerank", &json!({ "query": "Who is king?", "texts": FOUR }).to_string());
    let scores: Vec<f64> =
        list.as_array().unwrap().iter().map(|rank| rank["score"].as_f64().unwrap()).collect();
    assert_eq!(scores, relevance);
}

#[test]
fn a_document_has_the_relevance_and_the_tokens_that_it_has_alone() {
    let server = start();
    let usage = |answer: &Value| answer["usage"]["prompt_tokens"].as_u64().unwrap();
    let body = json!({ "query": "Who is king?", "documents": FOUR });
    let all = server.ok("/v1/rerank", &body.to_string());
    let mut sum = 0;
    for (at, text) in FOUR.iter().enumerate() {
        let body = json!({ "query": "Who is king?", "documents": [text] });
        let alone = server.ok("/v1/rerank", &body.to_string());
        let one = all["results"].as_array().unwrap().iter().find(|one| one["index"] == at).unwrap();
        assert_eq!(alone["results"], json!([{ "index": 0, "relevance_score": one["relevance_score"] }]));
        sum += usage(&alone);
    }
    for answer in [
        all,
        server
            .ok("/v1/rerank", &json!({ "query": "Who is king?", "documents": FOUR, "top_n": 1 }).to_string()),
    ] {
        assert_eq!((usage(&answer), &answer["usage"]["total_tokens"]), (sum, &json!(sum)), "{answer}");
        assert_eq!(answer["usage"]["completion_tokens"], 0);
    }
}

#[test]
fn what_are_no_documents_is_refused_by_name() {
    let server = start();
    let check = |body: Value, code: &str, param: &str| {
        for path in ["/rerank", "/v1/rerank", "/v2/rerank"] {
            let answer = server.client.post(path, &body.to_string()).unwrap();
            assert_eq!(error(&answer), (400, code.to_owned(), Some(param.to_owned())), "{path} {body}");
        }
    };
    for key in ["documents", "texts"] {
        check(json!({ "query": "q", (key): [] }), "invalid_value", key);
        check(json!({ "query": "q", (key): null }), "invalid_value", "documents");
        check(json!({ "query": "q", (key): 123 }), "invalid_type", key);
        check(json!({ "query": "q", (key): [1, 2, 3] }), "invalid_type", &format!("{key}[0]"));
        check(json!({ "query": "q", (key): ["a", null] }), "invalid_type", &format!("{key}[1]"));
        check(json!({ (key): ["a"] }), "missing_field", "query");
        check(json!({ "query": ["q"], (key): ["a"] }), "invalid_type", "query");
        let many = vec!["a"; 1_001];
        check(json!({ "query": "q", (key): many }), "invalid_value", key);
        check(json!({ "query": "q", (key): ["a"], "instruct": "i" }), "unknown_parameter", "instruct");
    }
    check(json!({ "query": "q", "documents": [{ "title": "a" }] }), "invalid_type", "documents[0]");
    check(json!({ "query": "q", "documents": ["a"], "top_n": -1 }), "invalid_type", "top_n");
    let answer = server.client.post("/v1/rerank", r#"{"query":"q","documents":[1]}"#).unwrap();
    assert!(answer.text().contains("neither a string nor an object with a `text`"), "{}", answer.text());
}
