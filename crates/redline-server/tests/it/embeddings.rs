//! `/v1/embeddings` and `/embed` give what the engine gives, and `/info` says what encoders are for.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redline_engine::{EmbedRequest, Pooling, Prompt, RerankRequest, Truncate};
use serde_json::{Value, json};

use crate::encoder::{encoder, reading_encoder};
use crate::server::{Running, error, json as document, loaded_from, masked, model, start, start_with};

/// A server with an encoder that has no tokenizer.
fn embedding(name: &str) -> Running {
    start_with(encoder(name), |_| ())
}

/// A server with an encoder that reads a few words.
fn reading(name: &str) -> Running {
    start_with(reading_encoder(name), |_| ())
}

/// A list of numbers, as `f32`.
fn row(of: &Value) -> Vec<f32> {
    of.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
}

/// The vectors of an answer of `/v1/embeddings`.
fn vectors(server: &Running, body: &Value) -> Vec<Vec<f32>> {
    let answer = server.ok("/v1/embeddings", &body.to_string());
    let entries = answer["data"].as_array().unwrap();
    for (at, entry) in entries.iter().enumerate() {
        assert_eq!((&entry["object"], &entry["index"]), (&json!("embedding"), &json!(at)), "{body}");
    }
    entries.iter().map(|entry| row(&entry["embedding"])).collect()
}

fn length(of: &[f32]) -> f32 {
    of.iter().map(|value| value * value).sum::<f32>().sqrt()
}

#[test]
fn vectors_are_those_of_the_engine() {
    for name in ["bert-a", "xlmr-a", "modernbert-a"] {
        let server = embedding(name);
        let texts = [vec![5, 6, 7], vec![8], vec![9, 10, 11, 12]];
        let request = EmbedRequest::new(texts.iter().cloned().map(Prompt::Ids).collect());
        let expect = encoder(name).engine.embed(request).unwrap();
        let answer = server.ok("/v1/embeddings", &json!({ "input": texts, "user": "somebody" }).to_string());
        assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!(name)));
        assert_eq!(
            (&answer["usage"]["prompt_tokens"], &answer["usage"]["total_tokens"]),
            (&json!(8), &json!(8))
        );
        for (entry, expect) in answer["data"].as_array().unwrap().iter().zip(&expect.texts) {
            assert_eq!(row(&entry["embedding"]), expect.values, "{name}");
        }
        // The bits do not depend on the other texts of the request.
        for (text, expect) in texts.iter().zip(&expect.texts) {
            for input in [json!(text), json!([text])] {
                assert_eq!(vectors(&server, &json!({ "input": input })).concat(), expect.values, "{name}");
            }
        }
    }
}

#[test]
fn base64_has_the_same_numbers_as_a_list() {
    let server = embedding("bert-a");
    let texts = json!([[5, 6, 7], [8]]);
    let float = vectors(&server, &json!({ "input": texts, "encoding_format": "float" }));
    let body = json!({ "input": texts, "encoding_format": "base64" });
    let answer = server.ok("/v1/embeddings", &body.to_string());
    for (entry, expect) in answer["data"].as_array().unwrap().iter().zip(&float) {
        let bytes = STANDARD.decode(entry["embedding"].as_str().unwrap()).unwrap();
        let (numbers, rest) = bytes.as_chunks::<4>();
        assert!(rest.is_empty());
        let numbers: Vec<f32> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        assert_eq!(&numbers, expect);
    }
}

#[test]
fn a_request_may_ask_for_another_form_of_the_vectors() {
    let server = embedding("bert-a");
    let ids = [5, 6, 7];
    let of = |more: Value| {
        let mut body = json!({ "input": ids });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        vectors(&server, &body).remove(0)
    };
    let (unit, plain) = (of(json!({})), of(json!({ "normalize": false })));
    assert!((length(&unit) - 1.0).abs() < 1e-5 && (length(&plain) - 1.0).abs() > 1e-3);
    let short = of(json!({ "dimensions": 8 }));
    assert!(short.len() == 8 && (length(&short) - 1.0).abs() < 1e-5);
    assert_eq!(of(json!({ "dimensions": 8, "normalize": false })), plain[..8]);
    assert_eq!(of(json!({ "dimensions": unit.len() })), unit);
    assert_eq!(of(json!({ "dimensions": 0, "modality": "text" })), of(json!({})));
    let engine = encoder("bert-a").engine;
    for (name, pooling) in [("cls", Pooling::First), ("mean", Pooling::Mean), ("last", Pooling::Last)] {
        let request = EmbedRequest {
            pooling: Some(pooling),
            ..EmbedRequest::new(vec![Prompt::Ids(ids.map(i64::from).to_vec())])
        };
        let expect = engine.embed(request).unwrap().texts.remove(0).values;
        assert_eq!(of(json!({ "pooling": name })), expect);
        assert_eq!(expect == unit, name == "mean", "the model takes the mean");
    }
}

#[test]
fn a_long_text_is_cut_at_the_end_that_is_named() {
    let server = embedding("bert-a");
    let long: Vec<i64> = (0..100).map(|at| 5 + at).collect();
    let refused = server.client.post("/v1/embeddings", &json!({ "input": long }).to_string()).unwrap();
    assert_eq!(error(&refused), (400, "invalid_value".to_owned(), Some("input".to_owned())));
    assert!(refused.text().contains("100 tokens exceed the maximum of 64"), "{}", refused.text());
    let [first, last] = [&long[..64], &long[36..]].map(|ids| vectors(&server, &json!({ "input": ids })));
    assert_eq!(vectors(&server, &json!({ "input": long, "truncate": "right" })), first);
    assert_eq!(vectors(&server, &json!({ "input": long, "truncate": "left" })), last);
    for (direction, expect) in [(json!(null), &first), (json!("Right"), &first), (json!("Left"), &last)] {
        let body = json!({ "inputs": long, "truncate": true, "truncation_direction": direction });
        assert_eq!(row(&server.ok("/embed", &body.to_string())[0]), expect[0], "{body}");
    }
}

#[test]
fn texts_are_read_with_the_prompt_of_their_task() {
    let server = reading("bert-a");
    let of = |body: Value| vectors(&server, &body);
    let king = of(json!({ "input": "Henry is king." }));
    assert_eq!(king, of(json!({ "input": ["henry is king."] })));
    assert_eq!(king, of(json!({ "input": [2, 8, 5, 6, 11, 3] })), "between `[CLS]` and `[SEP]`");
    let query = of(json!({ "input": "who is king?", "prompt_name": "query" }));
    assert_eq!(query, of(json!({ "input": "query: who is king?" })));
    assert_ne!(query, of(json!({ "input": "who is king?" })));
    assert_eq!(of(json!({ "input": "" })), of(json!({ "input": [2, 3] })));
    let engine = reading_encoder("bert-a").engine;
    let long = "a rose ".repeat(60);
    let request = EmbedRequest {
        truncate: Some(Truncate::Right),
        ..EmbedRequest::new(vec![Prompt::Text(long.clone())])
    };
    let expect = engine.embed(request).unwrap().texts.remove(0);
    assert!(expect.truncated && expect.prompt_tokens == 64);
    assert_eq!(of(json!({ "input": long, "truncate": "right" })), [expect.values]);
}

#[test]
fn vectors_of_tei_are_a_plain_list() {
    let server = reading("bert-a");
    let texts = ["Henry is king.", "It rains."];
    let expect = vectors(&server, &json!({ "input": texts }));
    let of = |body: Value| {
        let answer = server.ok("/embed", &body.to_string());
        answer.as_array().unwrap().iter().map(row).collect::<Vec<_>>()
    };
    assert_eq!(of(json!({ "inputs": texts })), expect);
    assert_eq!(of(json!({ "inputs": texts[0] })), expect[..1], "one text has a list of one vector");
    assert_eq!(of(json!({ "inputs": [texts[1]], "normalize": true })), expect[1..]);
    let plain = vectors(&server, &json!({ "input": texts, "normalize": false, "dimensions": 8 }));
    assert_eq!(of(json!({ "inputs": texts, "normalize": false, "dimensions": 8 })), plain);
    let query = vectors(&server, &json!({ "input": texts, "prompt_name": "query" }));
    assert_eq!(of(json!({ "inputs": texts, "prompt_name": "query" })), query);
    let nulls = json!({ "inputs": texts, "normalize": null, "truncate": null, "truncation_direction": null,
        "prompt_name": null, "dimensions": null, "pooling": null });
    assert_eq!(of(nulls), expect);
}

/// The mean of the states of all tokens is the embedding of a model that takes the mean, and the first one that of another.
#[test]
fn states_of_tokens_are_what_is_pooled() {
    let server = reading("bert-a");
    let texts = ["Henry is king.", "It rains."];
    let all = server.ok("/embed_all", &json!({ "inputs": texts }).to_string());
    for (text, states) in texts.iter().zip(all.as_array().unwrap()) {
        let states: Vec<Vec<f32>> = states.as_array().unwrap().iter().map(row).collect();
        let ids = server.ok("/tokenize", &json!({ "inputs": text }).to_string());
        assert_eq!(states.len(), ids[0].as_array().unwrap().len(), "special tokens included");
        let of = |pooling: &str| {
            let body = json!({ "inputs": text, "normalize": false, "pooling": pooling });
            row(&server.ok("/embed", &body.to_string())[0])
        };
        assert_eq!((&of("cls"), &of("last")), (states.first().unwrap(), states.last().unwrap()));
        let sum = |at: usize| states.iter().map(|state| f64::from(state[at])).sum::<f64>();
        let mean: Vec<f32> = (0..states[0].len()).map(|at| (sum(at) / states.len() as f64) as f32).collect();
        assert_eq!(of("mean"), mean);
    }
    let long = json!({ "inputs": "a rose ".repeat(60) });
    assert_eq!(server.client.post("/embed_all", &long.to_string()).unwrap().status, 413);
    let cut = json!({ "inputs": "a rose ".repeat(60), "truncate": true });
    assert_eq!(server.ok("/embed_all", &cut.to_string())[0].as_array().unwrap().len(), 64);
    let query = json!({ "inputs": texts[0], "prompt_name": "query" });
    let longer = server.ok("/embed_all", &query.to_string());
    assert!(longer[0].as_array().unwrap().len() > all[0].as_array().unwrap().len());
    // A model that was trained for something else has states too.
    let server = start();
    let states = server.ok("/embed_all", &json!({ "inputs": [5, 6, 7] }).to_string());
    assert_eq!(states[0].as_array().unwrap().len(), 3);
    let last = server
        .ok("/embed", &json!({ "inputs": [5, 6, 7], "pooling": "last", "normalize": false }).to_string());
    assert_eq!(states[0][2], last[0]);
}

/// Three ways to ask for the same weights.
#[test]
fn sparse_vectors_are_weights_of_tokens() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/vectors/distilbert-splade-a");
    let server = start_with(loaded_from(&dir, |_| ()), |_| ());
    let texts = ["The old king wrote this book.", "Rain falls on the fields."];
    let body = json!({ "inputs": texts });
    let weights = server.ok("/embed_sparse", &body.to_string());
    let by_openai = server.ok("/v1/embeddings", &json!({ "input": texts, "form": "sparse" }).to_string());
    for (text, weights) in weights.as_array().unwrap().iter().enumerate() {
        let field = |name: &str| weights.as_array().unwrap().iter().map(|it| it[name].clone()).collect();
        let (indices, values): (Vec<Value>, Vec<Value>) = (field("index"), field("value"));
        assert!(indices.len() > 20 && indices.is_sorted_by_key(Value::as_u64));
        assert!(values.iter().all(|value| value.as_f64().unwrap() > 0.0));
        let embedding = &by_openai["data"][text]["embedding"];
        assert_eq!(embedding, &json!({ "indices": indices, "values": values }));
    }
    let info: Value = serde_json::from_slice(&server.client.get("/info").unwrap().body).unwrap();
    assert_eq!(info["model_type"], json!({ "embedding": { "pooling": "splade" } }));
    // It makes no dense vectors, and others make no sparse ones.
    let dense = server.client.post("/embed", &body.to_string()).unwrap();
    assert_eq!(dense.status, 422, "{}", dense.text());
    assert!(dense.text().contains("sparse vectors"), "{}", dense.text());
    let none = start().client.post("/embed_sparse", &body.to_string()).unwrap();
    assert_eq!(none.status, 422, "{}", none.text());
    assert!(none.text().contains("makes no sparse vectors"), "{}", none.text());
}

/// Vectors of tokens, and the documents ranked by them.
#[test]
fn late_interaction_is_served() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/vectors/colbert-a");
    let server = start_with(loaded_from(&dir, |_| ()), |_| ());
    let embed = |task: &str, text: &str| -> Vec<Vec<f32>> {
        let body = json!({ "input": text, "form": "multi_vector", "prompt_name": task });
        let answer = server.ok("/v1/embeddings", &body.to_string());
        answer["data"][0]["embedding"].as_array().unwrap().iter().map(row).collect()
    };
    let (query, documents) = ("rain", ["Rain falls.", "the old king", "sea"]);
    let queries = embed("query", query);
    assert_eq!((queries.len(), queries[0].len()), (12, 16));
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let similarity = |document: &[Vec<f32>]| -> f32 {
        let most = |query: &Vec<f32>| document.iter().map(|one| product(query, one)).fold(f32::MIN, f32::max);
        queries.iter().map(most).sum()
    };
    let body = json!({ "query": query, "documents": documents });
    let ranked = server.ok("/v1/rerank", &body.to_string());
    let results = ranked["results"].as_array().unwrap();
    let of = |result: &Value| {
        (result["index"].as_u64().unwrap() as usize, result["relevance_score"].as_f64().unwrap())
    };
    assert!(results.len() == 3 && results.is_sorted_by(|a, b| of(a).1 >= of(b).1), "{ranked}");
    for (index, score) in results.iter().map(of) {
        let want = similarity(&embed("document", documents[index]));
        assert!((score - f64::from(want)).abs() < 1e-5, "{index}: {score} {want}");
    }
}

#[test]
fn what_is_no_request_is_refused_by_name() {
    let server = reading("bert-a");
    for (body, code, param) in [
        (json!({}), "missing_field", "input"),
        (json!({ "input": 7 }), "invalid_type", "input"),
        (json!({ "input": [] }), "invalid_value", "input"),
        (json!({ "input": [[]] }), "invalid_value", "input"),
        (json!({ "input": [167] }), "invalid_value", "input"),
        (json!({ "input": [[5], [-1]] }), "invalid_value", "input"),
        (json!({ "input": vec!["a"; 2_049] }), "invalid_value", "input"),
        (json!({ "input": "a", "dimensions": -1 }), "invalid_type", "dimensions"),
        (json!({ "input": "a", "modality": "image" }), "invalid_value", "modality"),
        (json!({ "input": "a", "dimensions": 61 }), "invalid_value", "dimensions"),
        (json!({ "input": "a", "prompt_name": "code" }), "invalid_value", "prompt_name"),
        (json!({ "input": "a", "timeout_s": 0 }), "invalid_value", "timeout_s"),
        (json!({ "input": "a", "normalise": true }), "unknown_parameter", "normalise"),
        (
            json!({ "input": "a", "truncate_prompt_tokens": -1 }),
            "unknown_parameter",
            "truncate_prompt_tokens",
        ),
    ] {
        let answer = server.client.post("/v1/embeddings", &body.to_string()).unwrap();
        let shown: String = body.to_string().chars().take(100).collect();
        assert_eq!(
            error(&answer),
            (400, code.to_owned(), Some(param.to_owned())),
            "{shown}: {}",
            answer.text()
        );
    }
    for (body, param) in [
        (json!({ "input": "a", "pooling": "max" }), "pooling"),
        (json!({ "input": "a", "encoding_format": "int8" }), "encoding_format"),
        (json!({ "input": "a", "truncate": "middle" }), "truncate"),
    ] {
        let answer = server.client.post("/v1/embeddings", &body.to_string()).unwrap();
        let (status, _, named) = error(&answer);
        assert_eq!((status, named.as_deref()), (400, Some(param)), "{body}");
    }
    let unknown = json!({ "input": "a", "prompt_name": "code" }).to_string();
    let answer = server.client.post("/v1/embeddings", &unknown).unwrap();
    assert!(answer.text().contains("this model has `passage`, `query`"), "{}", answer.text());
}

#[test]
fn errors_of_embed_have_the_form_and_the_status_of_tei() {
    let server = reading("bert-a");
    for (body, status) in [
        (r#"{"inputs":"#.to_owned(), 400),
        (r#"{"inputs":7}"#.to_owned(), 422),
        (r#"{"inputs":[]}"#.to_owned(), 422),
        (r#"{"inputs":[[]]}"#.to_owned(), 422),
        (r#"{"inputs":[-1]}"#.to_owned(), 422),
        (r#"{"inputs":[["a","b"]]}"#.to_owned(), 422),
        (r#"{"inputs":"a","dimensions":61}"#.to_owned(), 422),
        (r#"{"inputs":"a","prompt_name":"code"}"#.to_owned(), 422),
        (r#"{"inputs":"a","x":1}"#.to_owned(), 422),
        (json!({ "inputs": "a rose ".repeat(60) }).to_string(), 413),
        (json!({ "inputs": ["a", "a rose ".repeat(60)] }).to_string(), 413),
        (json!({ "inputs": vec!["a"; 2_049] }).to_string(), 413),
    ] {
        let answer = server.client.post("/embed", &body).unwrap();
        let told = document(&answer);
        let shown: String = body.chars().take(100).collect();
        assert_eq!((answer.status, &told["error_type"]), (status, &json!("validation")), "{shown}: {told}");
        assert!(told["error"].is_string() && told.as_object().unwrap().len() == 2, "{told}");
    }
    let long = json!({ "inputs": "a rose ".repeat(60) }).to_string();
    let answer = server.client.post("/embed", &long).unwrap();
    assert!(answer.text().contains("or cut it with `truncate` = true"), "{}", answer.text());
    let cut = json!({ "inputs": "a rose ".repeat(60), "truncate": true }).to_string();
    assert_eq!(server.client.post("/embed", &cut).unwrap().status, 200);
    let answer = embedding("bert-a").client.post("/embed", r#"{"inputs":"a"}"#).unwrap();
    assert_eq!((answer.status, &document(&answer)["error_type"]), (501, &json!("backend")));
}

#[test]
fn models_that_embed_nothing_say_what_to_do() {
    let refused = |server: &Running, body: &str, expect: &str| {
        let answer = server.client.post("/v1/embeddings", body).unwrap();
        assert_eq!(error(&answer), (400, "invalid_value".to_owned(), Some("input".to_owned())), "{body}");
        assert!(answer.text().contains(expect), "{}", answer.text());
    };
    refused(&start(), r#"{"input":"a"}"#, "it has no `modules.json`; give `pooling` = mean");
    refused(
        &start_with(masked(), |_| ()),
        r#"{"input":"a","pooling":"mean"}"#,
        "fills masks and embeds no texts",
    );
    let reranker = embedding("xlmr-b");
    refused(&reranker, r#"{"input":[5],"pooling":"mean"}"#, "was trained to classify, not to embed");
    // A model that writes text embeds texts if the request says how.
    let request = EmbedRequest {
        pooling: Some(Pooling::Last),
        ..EmbedRequest::new(vec![Prompt::Text("a".to_owned())])
    };
    let expect = model().engine.embed(request).unwrap().texts.remove(0).values;
    assert_eq!(vectors(&start(), &json!({ "input": "a", "pooling": "last" })), [expect]);
}

#[test]
fn an_encoder_generates_and_scores_nothing() {
    let server = reading("bert-a");
    for (path, body) in [
        ("/v1/completions", r#"{"prompt":"a","max_tokens":1}"#),
        ("/v1/completions", r#"{"prompt":[5],"max_tokens":1}"#),
        ("/v1/score", r#"{"query":"a","items":["rose"],"labels":["king"]}"#),
    ] {
        let answer = server.client.post(path, body).unwrap();
        assert_eq!((error(&answer).0, error(&answer).1.as_str()), (400, "invalid_value"), "{path}");
        assert!(answer.text().contains("is an encoder: it predicts no tokens"), "{path}: {}", answer.text());
    }
    for (path, body) in [
        ("/v1/rerank", r#"{"query":"who is king?","documents":["it rains."]}"#),
        ("/v1/classify", r#"{"input":"a","classes":["king","rose"]}"#),
    ] {
        assert_eq!(error(&server.client.post(path, body).unwrap()).0, 400, "{path}");
    }
    let told = document(&server.client.get("/page/abilities").unwrap());
    let parts: Vec<_> = told["unavailable"].as_object().unwrap().keys().collect();
    assert_eq!(parts, ["chat", "completion", "decisions", "diffusion", "scores"]);
}

#[test]
fn a_cross_encoder_ranks_documents_as_the_engine_does() {
    let server = reading("xlmr-b");
    let documents = ["it rains.", "henry is king.", "a rose"];
    let request = RerankRequest::new("who is king?".to_owned(), documents.map(str::to_owned).to_vec());
    let outcome = reading_encoder("xlmr-b").engine.rerank(request).unwrap();
    let expect: Vec<_> = outcome.results.into_iter().flatten().collect();
    assert_eq!(expect.len(), 3);
    let body = json!({ "query": "who is king?", "documents": documents });
    let answer = server.ok("/v1/rerank", &body.to_string());
    for (result, expect) in answer["results"].as_array().unwrap().iter().zip(&expect) {
        assert_eq!(result["index"], expect.index);
        assert_eq!(result["relevance_score"].as_f64().unwrap() as f32, expect.relevance);
    }
    let body = json!({ "query": "who is king?", "texts": documents, "raw_scores": true });
    let answer = server.ok("/rerank", &body.to_string());
    for (rank, expect) in answer.as_array().unwrap().iter().zip(&expect) {
        assert_eq!(
            (&rank["index"], rank["score"].as_f64().unwrap() as f32),
            (&json!(expect.index), expect.log_odds)
        );
    }
}

#[test]
fn the_server_tells_what_an_encoder_is_for() {
    let get = |server: &Running, path: &str| document(&server.client.get(path).unwrap());
    for (name, pooling) in [("bert-a", "mean"), ("xlmr-a", "cls"), ("qwen3-embed-a", "last_token")] {
        let info = get(&embedding(name), "/info");
        assert_eq!(info["model_type"], json!({ "embedding": { "pooling": pooling } }), "{name}");
        assert_eq!(info["max_client_batch_size"], 2_048);
        if name == "bert-a" {
            // Its `max_seq_length`, below the 80 positions that it has.
            let of_model = get(&embedding(name), "/v1/models")["data"][0]["max_model_len"].clone();
            assert_eq!((&info["max_input_length"], &of_model), (&json!(64), &json!(64)));
        }
    }
    let server = embedding("xlmr-b");
    let info = get(&server, "/info");
    let classes = json!({ "id2label": { "0": "LABEL_0" }, "label2id": { "LABEL_0": 0 } });
    assert_eq!(
        (&info["model_type"], &info["max_client_batch_size"]),
        (&json!({ "reranker": classes }), &json!(1_000))
    );
    assert_eq!(info["generation"], Value::Null);
    assert_eq!(get(&server, "/v1/models")["data"][0]["generation"], Value::Null);
    assert_eq!(get(&embedding("qwen3-embed-a"), "/info")["generation"], "autoregressive");
}
