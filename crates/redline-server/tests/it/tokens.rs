//! Routes about the model and its tokens.

use redline_server::ServerConfig;
use serde_json::json;

use crate::server::{json as document, model, start, start_with};

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
    let version = document(&server.client.get("/version").unwrap());
    assert!(version["version"].is_string());
}
