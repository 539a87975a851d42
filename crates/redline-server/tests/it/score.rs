//! `/v1/score` in SGLang's form. The cases are those of its tests of this route, as far as they concern what this server does.

use serde_json::{Value, json};

use crate::server::{Running, error, json as document, start};

const LABELS: [u32; 3] = [10, 11, 12];

/// The answer about these items, with further fields.
fn scored(server: &Running, query: &Value, items: &Value, more: &Value) -> Value {
    let mut body = json!({ "query": query, "items": items, "label_token_ids": LABELS });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server.ok("/v1/score", &body.to_string())
}

/// The scores of the labels after each item.
fn rows(answer: &Value) -> Vec<Vec<f64>> {
    let row = |row: &Value| row.as_array().unwrap().iter().map(|score| score.as_f64().unwrap()).collect();
    answer["scores"].as_array().unwrap().iter().map(row).collect()
}

/// The tokens of a text, with those that the tokenizer puts before it.
fn tokens(server: &Running, text: &str) -> Vec<u64> {
    let answer = server.ok("/tokenize", &json!({ "prompt": text }).to_string());
    answer["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

#[test]
fn an_item_has_the_scores_that_it_has_alone_whatever_the_number_of_items() {
    let server = start();
    let (query, softmax) = (json!("The test was"), json!({ "apply_softmax": true }));
    let texts: Vec<String> = (0..20).map(|at| format!(" test {at}")).collect();
    let alone: Vec<Vec<f64>> =
        texts.iter().map(|text| rows(&scored(&server, &query, &json!([text]), &softmax)).remove(0)).collect();
    for row in &alone {
        assert!(row.len() == 3 && row.iter().all(|share| (0.0..=1.0).contains(share)), "{row:?}");
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{row:?}");
    }
    for (at, row) in alone.iter().enumerate() {
        assert!(!alone[..at].contains(row), "every item has scores of its own: {row:?}");
    }
    for count in [1, 2, 4, 6, 8, 10, 20] {
        let items = json!(texts[..count]);
        let answer = scored(&server, &query, &items, &softmax);
        assert_eq!(rows(&answer), alone[..count], "{count}");
        assert_eq!(scored(&server, &query, &items, &softmax)["scores"], answer["scores"], "{count}");
    }
    assert_eq!(rows(&scored(&server, &query, &json!(texts[0]), &softmax)), alone[..1], "one item as a text");
}

#[test]
fn scores_are_shares_of_the_labels_only_if_asked() {
    let server = start();
    let (query, items) = (json!("Rate each:"), json!([" good", " bad", " neutral"]));
    for count in [1, 2, 4, 8] {
        let labels: Vec<u32> = (10..10 + count).collect();
        let with = |softmax: Value| {
            rows(&scored(
                &server,
                &query,
                &items,
                &json!({ "label_token_ids": labels, "apply_softmax": softmax }),
            ))
        };
        let (plain, shares) = (with(Value::Null), with(json!(true)));
        assert_eq!(plain, with(json!(false)));
        assert!(plain.len() == 3 && shares.len() == 3);
        for (plain, shares) in plain.iter().zip(&shares) {
            let sum: f64 = plain.iter().sum();
            assert!(plain.len() == labels.len() && sum < 0.9, "{plain:?}");
            for (probability, share) in plain.iter().zip(shares) {
                assert!((0.0..=1.0).contains(probability));
                assert!((probability / sum - share).abs() < 1e-5, "{plain:?} {shares:?}");
            }
        }
        if count == 1 {
            assert_eq!(shares, vec![vec![1.0]; 3]);
        }
    }
}

#[test]
fn no_items_have_no_scores_and_no_tokens() {
    let server = start();
    for query in [json!("Test query"), json!([5, 6])] {
        let answer = scored(&server, &query, &json!([]), &json!({}));
        assert_eq!((&answer["scores"], &answer["usage"]["total_tokens"]), (&json!([]), &json!(0)));
    }
}

#[test]
fn an_item_stands_before_the_query_if_asked() {
    let server = start();
    let first = json!({ "item_first": true });
    let pairs = [
        (json!(" is a city"), json!("Tokyo")),
        (json!(" is a city"), json!("")),
        (json!(""), json!("Tokyo")),
        (json!([5, 6]), json!([7])),
    ];
    for (query, item) in pairs {
        let before = scored(&server, &query, &json!([item]), &first);
        assert_eq!(
            before["scores"],
            scored(&server, &item, &json!([query]), &json!({}))["scores"],
            "{query}"
        );
        let after = scored(&server, &query, &json!([item]), &json!({}));
        let is_same = query == "" || item == "";
        assert_eq!(before["scores"] == after["scores"], is_same, "{query} {item}");
    }
}

#[test]
fn a_text_has_the_scores_and_the_number_of_its_tokens() {
    let server = start();
    let items = ["选项A", " to", "@", "#$", "", " 😀é", "\n\n"];
    for query in ["选择最佳选项：", "I pledge allegiance", "", &"In the context of learning, ".repeat(10)]
    {
        let answer = scored(&server, &json!(query), &json!(items), &json!({}));
        let mut sum = 0;
        for (item, row) in items.iter().zip(rows(&answer)) {
            let ids = tokens(&server, &format!("{query}{item}"));
            sum += ids.len();
            let (head, rest) = ids.split_at(1);
            // Nothing is a token alone, that of the beginning.
            if !rest.is_empty() {
                let of_ids = scored(&server, &json!(head), &json!([rest]), &json!({}));
                assert_eq!(rows(&of_ids), [row], "{query}{item}");
            }
        }
        let usage = &answer["usage"];
        assert_eq!((&usage["prompt_tokens"], &usage["total_tokens"]), (&json!(sum), &json!(sum)), "{query}");
        assert_eq!(usage["completion_tokens"], 0);
    }
}

#[test]
fn a_fault_is_blamed_on_the_field_that_has_it() {
    let server = start();
    let check = |query: Value, items: Value, more: Value, code: &str, param: &str| {
        let mut body = json!({ "query": query, "items": items, "label_token_ids": LABELS });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body.as_object_mut().unwrap().retain(|_, value| *value != "absent");
        let answer = server.client.post("/v1/score", &body.to_string()).unwrap();
        assert_eq!(error(&answer), (400, code.to_owned(), Some(param.to_owned())), "{body}");
    };
    let (q, items) = (json!("q"), json!(["a"]));
    let labels = |labels: Value| json!({ "label_token_ids": labels });
    let texts = |texts: Value| json!({ "labels": texts, "label_token_ids": "absent" });
    check(q.clone(), items.clone(), labels(json!("bad")), "invalid_type", "label_token_ids");
    check(q.clone(), items.clone(), labels(json!([1, "bad"])), "invalid_type", "label_token_ids[1]");
    check(q.clone(), items.clone(), labels(json!("absent")), "invalid_value", "label_token_ids");
    for id in [-1_i64, 4_096, i64::MAX] {
        check(q.clone(), items.clone(), labels(json!([5, id])), "invalid_value", "label_token_ids");
        check(json!([5, id]), json!([[6]]), json!({}), "invalid_value", "query");
        check(json!([5]), json!([[6], [id]]), json!({}), "invalid_value", "items");
    }
    check(q.clone(), items.clone(), labels(json!([[5, 6]])), "invalid_value", "label_token_ids");
    check(q.clone(), items.clone(), texts(json!([" a", ""])), "invalid_value", "labels[1]");
    check(q.clone(), items.clone(), texts(json!([" the king of all"])), "invalid_value", "labels");
    check(q.clone(), items.clone(), json!({ "labels": [" a"] }), "invalid_value", "labels");
    check(q.clone(), json!(42), json!({}), "invalid_type", "items");
    check(q.clone(), json!(null), json!({}), "invalid_type", "items");
    check(q.clone(), json!("absent"), json!({}), "missing_field", "items");
    check(json!("absent"), items.clone(), json!({}), "missing_field", "query");
    check(q.clone(), json!(["a", 5]), json!({}), "invalid_type", "items[1]");
    for foreign in
        ["query_embed_overrides", "item_embed_overrides", "return_pooled_hidden_states", "item_delimiter"]
    {
        check(q.clone(), items.clone(), json!({ (foreign): [[1.0]] }), "unknown_parameter", foreign);
    }
    scored(&server, &q, &items, &json!({}));
}

#[test]
fn requests_at_the_same_time_have_the_scores_that_they_have_one_after_the_other() {
    let server = start();
    let of = |query: &str, items: &[&str]| {
        json!({ "query": query, "items": items, "label_token_ids": LABELS }).to_string()
    };
    let bodies = [
        of("Is this a fruit?", &[" apple", " car", " banana"]),
        of("Is this an animal?", &[" dog", " table"]),
        of("Is this a country?", &[" France", " pizza", " Japan", " chair"]),
        of("Is this a color?", &[" red"]),
    ];
    let alone: Vec<Value> =
        bodies.iter().map(|body| server.ok("/v1/score", body)["scores"].clone()).collect();
    // Another server, which has nothing of these in its cache.
    let server = start();
    std::thread::scope(|scope| {
        for at in 0..16 {
            let (client, body, alone) = (server.client.clone(), &bodies[at % 4], &alone[at % 4]);
            scope.spawn(move || {
                let answer = client.post("/v1/score", body).unwrap();
                assert_eq!(&document(&answer)["scores"], alone, "{body}");
            });
        }
    });
}
