//! `/generate`, `/generate_stream` and `POST /`, and the routes of Text Embeddings Inference for tokens and similarity.

use redline_engine::{EmbedRequest, Pooling, Prompt};
use serde_json::{Value, json};

use crate::encoder::{encoder, reading_encoder};
use crate::server::{Running, json as document, masked, model, start, start_with};

const PROMPT: &str = "In the beginning";

/// Status and class of an error.
fn refusal(server: &Running, path: &str, body: &str) -> (u16, String, String) {
    let answer = server.client.post(path, body).unwrap();
    let document = document(&answer);
    let text = |key: &str| document[key].as_str().unwrap_or_else(|| panic!("{document}")).to_owned();
    (answer.status, text("error_type"), text("error"))
}

#[test]
fn a_text_is_that_of_a_completion_and_its_events_are_its_tokens() {
    let server = start();
    let asked = r#""max_new_tokens":12,"temperature":0.5,"seed":3"#;
    let whole = server
        .ok("/generate", &format!(r#"{{"inputs":"{PROMPT}","parameters":{{{asked},"details":true}}}}"#));
    let completion = format!(
        r#"{{"prompt":"{PROMPT}","max_tokens":12,"temperature":0.5,"seed":3,"logprobs":0,"return_token_ids":true}}"#
    );
    let choice = server.ok("/v1/completions", &completion)["choices"][0].clone();
    let details = &whole["details"];
    assert_eq!(whole["generated_text"], choice["text"]);
    assert_eq!((&details["finish_reason"], &details["generated_tokens"]), (&json!("length"), &json!(12)));
    assert_eq!((&details["seed"], &details["prefill"]), (&json!(3), &json!([])));
    let tokens = details["tokens"].as_array().unwrap();
    let of = |key: &str| tokens.iter().map(|token| token[key].clone()).collect::<Vec<_>>();
    assert_eq!(json!(of("id")), choice["token_ids"]);
    assert_eq!(json!(of("logprob")), choice["logprobs"]["token_logprobs"]);
    let streamed = format!(r#"{{"inputs":"{PROMPT}","parameters":{{{asked}}}}}"#);
    let events = server.events("/generate_stream", &streamed);
    assert_eq!(events.len(), 12);
    let text: String = events.iter().map(|event| event["token"]["text"].as_str().unwrap()).collect();
    let ids: Vec<Value> = events.iter().map(|event| event["token"]["id"].clone()).collect();
    assert_eq!((json!(text), ids), (choice["text"].clone(), of("id")));
    let last = events.last().unwrap();
    assert_eq!((&last["generated_text"], &last["index"]), (&choice["text"], &json!(12)));
    let prompt = server.ok("/tokenize", &json!({ "prompt": PROMPT }).to_string())["count"].clone();
    assert_eq!(
        last["details"],
        json!({ "finish_reason": "length", "generated_tokens": 12, "input_length": prompt, "seed": 3 })
    );
    assert!(events[..11].iter().all(|event| event["details"].is_null() && event["generated_text"].is_null()));
    let full = format!(r#"{{"inputs":"{PROMPT}","parameters":{{{asked},"return_full_text":true}}}}"#);
    assert_eq!(
        server.ok("/generate", &full),
        json!({ "generated_text": format!("{PROMPT}{}", choice["text"].as_str().unwrap()) })
    );
}

#[test]
fn a_text_says_why_it_ended_and_a_grammar_restricts_it() {
    let server = start();
    let of = |parameters: &str| {
        let body = format!(r#"{{"inputs":"{PROMPT}","parameters":{{"details":true,{parameters}}}}}"#);
        server.ok("/generate", &body)
    };
    let whole = of(r#""max_new_tokens":12"#);
    let id = &whole["details"]["tokens"][3]["id"];
    let text = whole["details"]["tokens"][3]["text"].as_str().unwrap().trim();
    let reason = |parameters: &str| of(parameters)["details"]["finish_reason"].clone();
    assert_eq!(reason(&format!(r#""stop_token_ids":[{id}]"#)), "eos_token");
    assert_eq!(reason(&format!(r#""stop":[{}]"#, json!(text))), "stop_sequence");
    let chosen = of(r#""grammar":{"type":"regex","value":" (old|young)"}"#);
    assert!([" old", " young"].contains(&chosen["generated_text"].as_str().unwrap()), "{chosen}");
}

#[test]
fn invalid_parameters_are_named() {
    let server = start();
    for (parameters, status, fact) in [
        (r#""top_p":0"#, 422, "`top_p` is 0"),
        (r#""max_new_tokens":1.5"#, 422, "floating point `1.5`"),
        (r#""watermark":true"#, 422, "`watermark` is not supported"),
        (r#""adapter_id":"none""#, 404, "there is no model `none`"),
        (r#""colour":1"#, 422, "unknown field `colour`"),
        (r#""grammar":{"type":"regex","value":"("}"#, 422, "grammar"),
    ] {
        for path in ["/generate", "/generate_stream", "/"] {
            let body = format!(r#"{{"inputs":"a","parameters":{{{parameters}}}}}"#);
            let (found, kind, error) = refusal(&server, path, &body);
            assert_eq!((found, kind.as_str()), (status, "validation"), "{path} {body}: {error}");
            assert!(error.contains(fact), "{path} {body}: {error}");
        }
    }
    for server in [start_with(masked(), |_| ()), start_with(encoder("bert-a"), |_| ())] {
        assert_eq!(refusal(&server, "/generate", r#"{"inputs":"a"}"#).0, 422);
    }
}

#[test]
fn the_root_does_what_the_model_is_for() {
    let asked = r#"{"inputs":"In","parameters":{"max_new_tokens":4}}"#;
    let (plain, stream) = (start(), r#"{"inputs":"In","parameters":{"max_new_tokens":4},"stream":true}"#);
    assert_eq!(plain.ok("/", asked), json!([plain.ok("/generate", asked)]));
    assert_eq!(plain.events("/", stream), plain.events("/generate_stream", asked));
    let ranked = r#"{"query":"q","texts":["a","b"]}"#;
    assert_eq!(plain.ok("/", ranked), plain.ok("/rerank", ranked));
    let classifies = start_with(model(), |config| config.classes = vec!["good".to_owned(), "bad".to_owned()]);
    let text = r#"{"inputs":"I loved it"}"#;
    assert_eq!(classifies.ok("/", text), classifies.ok("/predict", text));
    assert_eq!(classifies.ok("/", asked), json!([plain.ok("/generate", asked)]));
    let embeds = start_with(encoder("bert-a"), |_| ());
    let ids = r#"{"inputs":[5,6,7]}"#;
    assert_eq!(embeds.ok("/", ids), embeds.ok("/embed", ids));
    let ranks = start_with(reading_encoder("xlmr-b"), |_| ());
    let ranked = r#"{"query":"who is king ?","texts":["henry is king .","it rains ."]}"#;
    assert_eq!(ranks.ok("/", ranked), ranks.ok("/rerank", ranked));
    // The page is at the same path, and can be left out.
    let bare = start_with(model(), |config| config.page = false);
    assert_eq!((bare.ok("/", asked), bare.client.get("/").unwrap().status), (plain.ok("/", asked), 405));
    assert_eq!(plain.client.get("/").unwrap().status, 200);
}

#[test]
fn similarities_are_the_cosines_of_vectors() {
    let server = start_with(reading_encoder("bert-a"), |_| ());
    let texts = ["henry is king .", "who is king ?", "it rains .", "henry is king ."];
    let body = json!({ "inputs": { "source_sentence": texts[0], "sentences": texts[1..] } });
    let answer = server.ok("/similarity", &body.to_string());
    let request = EmbedRequest {
        normalise: Some(true),
        ..EmbedRequest::new(texts.iter().map(|text| Prompt::Text((*text).to_owned())).collect())
    };
    let vectors = reading_encoder("bert-a").engine.embed(request).unwrap().texts;
    for (at, value) in answer.as_array().unwrap().iter().enumerate() {
        let pairs = vectors[0].values.iter().zip(&vectors[at + 1].values);
        let expect: f32 = pairs.map(|(a, b)| a * b).sum();
        assert!((value.as_f64().unwrap() as f32 - expect).abs() < 1e-5, "{answer}");
    }
    assert_eq!(answer[2], 1.0);
    let by_mean = json!({
        "inputs": { "source_sentence": "a", "sentences": ["b"] },
        "parameters": { "pooling": Pooling::Mean.to_string() },
    });
    start().ok("/similarity", &by_mean.to_string());
    let (status, kind, error) =
        refusal(&server, "/similarity", r#"{"inputs":{"source_sentence":"a","sentences":[]}}"#);
    assert_eq!((status, kind.as_str()), (422, "validation"));
    assert!(error.contains("`inputs.sentences` has 0 elements"), "{error}");
}

#[test]
fn tokens_have_places_and_become_texts_again() {
    let server = start();
    let text = "In the beginning é😀";
    let tokens = server.ok("/tokenize", &json!({ "inputs": [text, "a"] }).to_string());
    let ids = |of: &Value| of.as_array().unwrap().iter().map(|token| token["id"].clone()).collect::<Vec<_>>();
    assert_eq!(
        json!(ids(&tokens[0])),
        server.ok("/tokenize", &json!({ "prompt": text }).to_string())["tokens"]
    );
    let first = json!({ "id": 0, "text": "<|bos|>", "special": true, "start": null, "stop": null });
    assert_eq!((&tokens[0][0], tokens.as_array().unwrap().len()), (&first, 2));
    let plain = server.ok("/tokenize", &json!({ "inputs": text, "add_special_tokens": false }).to_string());
    let texts: String =
        plain[0].as_array().unwrap().iter().filter_map(|token| token["text"].as_str()).collect();
    assert!(texts.starts_with("In the beginning"), "{plain}");
    let lists = json!([ids(&tokens[0]), ids(&tokens[1])]);
    assert_eq!(server.ok("/decode", &json!({ "ids": lists }).to_string()), json!([text, "a"]));
    let special = json!({ "ids": ids(&tokens[1]), "skip_special_tokens": false });
    assert_eq!(server.ok("/decode", &special.to_string()), json!(["<|bos|>a"]));
    for (path, body, fact) in [
        ("/decode", r#"{"ids":[5,-1]}"#, "-1 is no token"),
        ("/decode", r#"{"ids":"a"}"#, "`ids` has a text"),
        ("/decode", r#"{"ids":[]}"#, "`ids` has 0 elements"),
    ] {
        let (status, _, error) = refusal(&server, path, body);
        assert!(status == 422 && error.contains(fact), "{body}: {error}");
    }
    let info = document(&server.client.get("/info").unwrap());
    for (field, expect) in [("max_input_tokens", 511), ("max_total_tokens", 512), ("max_stop_sequences", 16)]
    {
        assert_eq!(info[field], expect);
    }
}
