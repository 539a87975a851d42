//! `suffix` of `/v1/completions`, and `/infill`: texts with a gap.

use std::path::Path;

use redline_api::model::LoadedModel;
use serde_json::{Value, json};

use crate::server::{Running, error, json as document, loaded_from, masked, start, start_with};

/// The names of the last tokens of the vocabulary of [`model`], and the id of the first of them.
const NAMES: [&str; 5] =
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"];
const FIRST: u64 = 4091;

/// The demo model, whose last tokens are those of Qwen2.5-Coder for gaps.
fn model() -> LoadedModel {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("demo");
    std::fs::create_dir(&dir).unwrap();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
    for file in ["config.json", "generation_config.json", "model.safetensors"] {
        std::fs::copy(demo.join(file), dir.join(file)).unwrap();
    }
    let mut tokenizer: Value =
        serde_json::from_slice(&std::fs::read(demo.join("tokenizer.json")).unwrap()).unwrap();
    let merges = tokenizer["model"]["merges"].as_array_mut().unwrap();
    merges.truncate(merges.len() - NAMES.len());
    let vocab = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    vocab.retain(|_, id| id.as_u64().unwrap() < FIRST);
    let mut added = tokenizer["added_tokens"].as_array().unwrap().clone();
    for (id, name) in (FIRST..).zip(NAMES) {
        tokenizer["model"]["vocab"][name] = json!(id);
        added
            .push(json!({ "id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true }));
    }
    tokenizer["added_tokens"] = Value::Array(added);
    std::fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    loaded_from(&dir, |_| ())
}

fn server() -> Running {
    start_with(model(), |_| ())
}

/// The ids of a text, without those that are put around it.
fn ids(server: &Running, text: &str) -> Vec<u64> {
    let body = json!({ "prompt": text, "add_special_tokens": false }).to_string();
    server.ok("/tokenize", &body)["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap())
        .collect()
}

/// The continuation of these ids.
fn continued(server: &Running, ids: &[u64], max_tokens: usize) -> Value {
    let ends: Vec<u64> = vec![FIRST + 3, FIRST + 4];
    let body =
        json!({ "prompt": ids, "max_tokens": max_tokens, "stop_token_ids": ends, "return_token_ids": true });
    server.ok("/v1/completions", &body.to_string())
}

#[test]
fn a_completion_fills_the_gap_before_its_suffix() {
    let server = server();
    let [prefix, suffix, middle] = [FIRST, FIRST + 1, FIRST + 2];
    let (before, after) = (ids(&server, "In the beginning"), ids(&server, " the earth."));
    let prompt = [&[0, prefix], &before[..], &[suffix], &after, &[middle]].concat();
    let expect = continued(&server, &prompt, 8);
    let body = json!({ "prompt": "In the beginning", "suffix": " the earth.", "max_tokens": 8, "return_token_ids": true });
    let answer = server.ok("/v1/completions", &body.to_string());
    assert_eq!(
        (&answer["choices"], &answer["usage"]["prompt_tokens"]),
        (&expect["choices"], &json!(prompt.len()))
    );
    let plain = server.ok("/v1/completions", r#"{"prompt":"In the beginning","suffix":"","max_tokens":8}"#);
    assert_ne!(plain["choices"][0]["text"], answer["choices"][0]["text"]);
    for (rest, param) in
        [(r#""prompt":"a","suffix":"b","echo":true"#, "echo"), (r#""prompt":[5],"suffix":"b""#, "suffix")]
    {
        let answer = server.client.post("/v1/completions", &format!("{{{rest}}}")).unwrap();
        assert_eq!(error(&answer), (400, "invalid_value".to_owned(), Some(param.to_owned())));
    }
}

#[test]
fn an_infill_has_other_files_before_the_text_and_the_beginning_after_it() {
    let server = server();
    let [prefix, suffix, middle, repository, file] = [0, 1, 2, 3, 4].map(|at| FIRST + at);
    let of = |text: &str| ids(&server, text);
    let (name, text, started) = (of("a.txt\n"), of("Henry is king."), of(" and"));
    let files = [&[repository], &of("repository\n")[..], &[file], &name, &text].concat();
    let gap = [&[prefix], &of("In the")[..], &[suffix], &of(" earth")[..], &[middle], &started[..]].concat();
    let expect = continued(&server, &[&[0], &files[..], &gap].concat(), 8);
    let body = json!({ "input_prefix": "In the", "input_suffix": " earth", "prompt": " and", "n_predict": 8,
        "input_extra": [{ "filename": "a.txt", "text": "Henry is king." }] });
    let answer = server.ok("/infill", &body.to_string());
    let choice = &expect["choices"][0];
    assert_eq!((&answer["content"], &answer["tokens"]), (&choice["text"], &choice["token_ids"]));
    assert_eq!(answer["tokens_evaluated"], expect["usage"]["prompt_tokens"]);
    assert_eq!(
        (&answer["stop"], &answer["stop_type"], &answer["model"]),
        (&json!(true), &json!("limit"), &json!("demo"))
    );
    let mut streamed = body;
    streamed["stream"] = json!(true);
    let events = server.events("/infill", &streamed.to_string());
    let content: String = events.iter().map(|event| event["content"].as_str().unwrap()).collect();
    assert_eq!((json!(content), events.len()), (answer["content"].clone(), 8));
    let last = events.last().unwrap();
    assert_eq!((&last["stop"], &last["tokens_predicted"]), (&json!(true), &json!(8)));
    assert!(events[..7].iter().all(|event| event["stop"] == false && event["stop_type"].is_null()));
    let first = answer["tokens"][0].as_u64().unwrap();
    let mut stopped = streamed;
    stopped["stream"] = json!(false);
    stopped["stop_token_ids"] = json!([first]);
    assert_eq!(server.ok("/infill", &stopped.to_string())["stop_type"], "eos");
}

#[test]
fn what_does_not_fit_is_cut() {
    let server = server();
    let long = "word ".repeat(600);
    let body = json!({ "input_prefix": long, "input_suffix": long, "n_predict": 12,
        "input_extra": [{ "filename": "a", "text": long }] });
    assert_eq!(server.ok("/infill", &body.to_string())["tokens_evaluated"], 500);
    let open = json!({ "input_prefix": long, "input_suffix": "b", "stop": ["."] });
    let answer = server.ok("/infill", &open.to_string());
    assert_eq!(answer["tokens_evaluated"], 384);
    let completion = json!({ "prompt": long, "suffix": "b", "max_tokens": 12 });
    let refused = server.client.post("/v1/completions", &completion.to_string()).unwrap();
    assert!(
        refused.status == 400 && document(&refused)["error"]["message"].as_str().unwrap().contains("exceed")
    );
    let cut = json!({ "prompt": long, "suffix": "b", "max_tokens": 12, "truncate_prompt_tokens": 40 });
    assert_eq!(server.ok("/v1/completions", &cut.to_string())["usage"]["prompt_tokens"], 40);
}

#[test]
fn a_model_without_tokens_for_gaps_says_so() {
    let body = r#"{"input_prefix":"a","input_suffix":"b"}"#;
    let answer = start().client.post("/infill", body).unwrap();
    assert_eq!(error(&answer), (400, "invalid_value".to_owned(), Some("input_suffix".to_owned())));
    assert!(answer.text().contains("`demo` has no tokens that mark a gap in a text"), "{}", answer.text());
    let answer = start_with(masked(), |_| ()).client.post("/infill", body).unwrap();
    assert_eq!(error(&answer), (400, "invalid_value".to_owned(), Some("input_suffix".to_owned())));
}
