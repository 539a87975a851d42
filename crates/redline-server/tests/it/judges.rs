//! `/v1/score`, the routes that rerank, and `/v1/classify` give what the engine gives.

use redline_engine::{ClassifyRequest, Label, Prompt, RerankRequest, ScoreRequest};
use serde_json::{Value, json};

use crate::server::{model, start};

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
