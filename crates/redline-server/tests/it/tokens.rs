//! Routes about the model and its tokens.

use std::path::Path;

use redline_api::chat::template::{Chat, ChatOptions};
use redline_engine::{AdapterOptions, Source};
use redline_server::ServerConfig;
use serde_json::json;

use crate::server::{json as document, model, model_with, start, start_with};

#[test]
fn a_text_becomes_tokens_and_a_text_again() {
    let server = start();
    let text = "In the beginning é😀";
    let tokens = server.ok("/tokenize", &json!({ "prompt": text, "return_token_strs": true }).to_string());
    let ids = tokens["tokens"].as_array().unwrap();
    assert_eq!(tokens["count"], ids.len());
    assert_eq!(tokens["token_strs"].as_array().unwrap().len(), ids.len());
    assert!(tokens["max_model_len"].as_u64().unwrap() > 0);
    let plain = server.ok("/tokenize", &json!({ "content": text, "add_special_tokens": false }).to_string());
    assert!(plain["token_strs"].is_null());
    let back = server.ok("/detokenize", &json!({ "tokens": plain["tokens"] }).to_string());
    assert_eq!(back["prompt"], text);
}

#[test]
fn special_tokens_that_a_text_writes_itself_stand_once_as_in_completions() {
    let server = start();
    for text in ["In the beginning", "<|bos|>In the beginning"] {
        let tokens = server.ok("/tokenize", &json!({ "prompt": text }).to_string());
        let answer = server.ok("/v1/completions", &json!({ "prompt": text, "max_tokens": 1 }).to_string());
        assert_eq!(tokens["count"], answer["usage"]["prompt_tokens"], "{text}");
    }
    let twice = server.ok("/tokenize", r#"{"prompt":"<|bos|>a","add_special_tokens":false}"#);
    assert_eq!(twice["tokens"][0], 0);
}

#[test]
fn a_remote_tokenizer_finds_the_special_tokens_and_the_template() {
    let server = start();
    let info = document(&server.client.get("/tokenizer_info").unwrap());
    assert_eq!((&info["bos_token"], &info["eos_token"]), (&json!("<|bos|>"), &json!("<|eos|>")));
    assert_eq!((&info["pad_token"], &info["chat_template"]), (&json!(null), &json!(null)));
    assert_eq!((&info["vocab_size"], &info["model_max_length"]), (&json!(4096), &json!(512)));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/template.jinja");
    let source = std::fs::read_to_string(&file).unwrap();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
    let options = ChatOptions { file: Some(file), ..ChatOptions::default() };
    let chat = Chat::open("demo", &Source::Path(dir), options);
    let server = start_with(model(), |config| config.chat = Some(chat));
    let info = document(&server.client.get("/tokenizer_info").unwrap());
    assert_eq!((&info["bos_token"], &info["chat_template"]), (&json!("<|bos|>"), &json!(source)));
}

#[test]
fn a_model_has_its_name_and_aliases() {
    let named = |config: &mut ServerConfig| config.aliases = vec!["org/other".to_owned()];
    let server = start_with(model(), named);
    let list = document(&server.client.get("/v1/models").unwrap());
    let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|entry| entry["id"].clone()).collect();
    assert_eq!(ids, ["demo", "org/other"]);
    for path in ["/v1/models/org/other", "/v1/models/org%2Fother"] {
        let one = document(&server.client.get(path).unwrap());
        assert_eq!((&one["id"], &one["root"]), (&json!("org/other"), &json!("demo")), "{path}");
    }
    let answer = server.ok("/v1/completions", r#"{"model":"org/other","prompt":"a","max_tokens":1}"#);
    assert_eq!(answer["model"], "org/other");
    assert_eq!(server.client.get("/v1/models/none").unwrap().status, 404);
    assert_eq!(server.client.get("/v1/models/%FF").unwrap().status, 404);
    let any =
        start_with(model_with(|options| options.adapters = Some(AdapterOptions::default())), |config| {
            config.any_model = true;
            config.adapter_root =
                Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo-adapter"));
        });
    let loaded = r#"{"lora_name":"jargon","lora_path":"jargon"}"#;
    assert_eq!(any.client.post("/v1/load_lora_adapter", loaded).unwrap().status, 200);
    let body = |model: &str| format!(r#"{{"model":"{model}","prompt":"It means","max_tokens":8}}"#);
    let plain = any.ok("/v1/completions", &body("gpt-9"));
    assert_eq!(plain["model"], "gpt-9");
    assert_eq!(document(&any.client.get("/v1/models/gpt-9").unwrap())["root"], "demo");
    // The name of an adapter keeps its meaning.
    assert_ne!(any.ok("/v1/completions", &body("jargon"))["choices"], plain["choices"]);
    let answer = any.client.post(
        "/v1/decisions",
        r#"{"model":"jargon","input":"a","questions":[{"type":"predicate","instructions":"b"}]}"#,
    );
    assert_eq!(answer.unwrap().status, 404);
    let version = document(&server.client.get("/version").unwrap());
    assert!(version["version"].is_string());
}
