//! Small tokenizers made by `fixtures/make.py`, and variations of them.

use redline_tokenizer::Tokenizer;
use serde_json::{Value, json};
use std::path::PathBuf;

pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures").join(name)
}

/// A `tokenizer.json` as editable JSON.
pub(crate) fn json(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(path(name)).unwrap()).unwrap()
}

pub(crate) fn load(value: &Value) -> Tokenizer {
    Tokenizer::from_bytes("fixture", value.to_string().as_bytes()).unwrap()
}

/// The same tokenizer in the reference library.
pub(crate) fn library(value: &Value) -> tokenizers::Tokenizer {
    tokenizers::Tokenizer::from_bytes(value.to_string()).unwrap()
}

/// Tokenizers with every supported decoder, on vocabularies where it has an effect.
pub(crate) fn decoder_variations() -> Vec<Value> {
    let replace = json!({ "type": "Replace", "pattern": { "String": "▁" }, "content": " " });
    let fallback = json!({ "type": "ByteFallback" });
    let fuse = json!({ "type": "Fuse" });
    let strip = |start| json!({ "type": "Strip", "content": " ", "start": start, "stop": 0 });
    let metaspace = |scheme| json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme });
    let sequence = |decoders: &[&Value]| json!({ "type": "Sequence", "decoders": decoders });
    let llama = [
        Value::Null,
        fallback.clone(),
        fuse.clone(),
        replace.clone(),
        metaspace("always"),
        metaspace("first"),
        metaspace("never"),
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true }),
        sequence(&[]),
        sequence(&[&replace, &strip(1)]),
        sequence(&[&metaspace("always"), &fallback]),
        sequence(&[&replace, &fallback, &fuse]),
        sequence(&[&replace, &fallback, &fuse, &strip(1)]),
        sequence(&[&sequence(&[&replace, &fallback]), &fuse, &strip(3)]),
    ];
    let mut variations = vec![json("byte_level.json")];
    variations.extend(llama.map(|decoder| {
        let mut tokenizer = json("llama.json");
        tokenizer["decoder"] = decoder;
        tokenizer
    }));
    variations
}
