//! The tiny encoders of `tests/golden/encoders`, some with a tokenizer of a few words.

use std::path::{Path, PathBuf};

use redline_api::model::LoadedModel;
use serde_json::{Map, Value, json};

use crate::server::loaded_from;

/// The words that the tokenizer knows, from id 4 on.
const WORDS: [&str; 14] =
    ["who", "is", "king", "?", "henry", "it", "rains", ".", "a", "rose", "query", "passage", ":", "of"];

/// An encoder. It has no tokenizer.
pub(crate) fn encoder(name: &str) -> LoadedModel {
    loaded_from(&golden(name), |_| ())
}

/// An encoder with a tokenizer of [`WORDS`], and with prompts for queries and passages.
pub(crate) fn reading_encoder(name: &str) -> LoadedModel {
    let root = tempfile::tempdir().unwrap();
    loaded_from(&reading_directory(root.path(), name), |_| ())
}

/// The directory of such an encoder, below this one.
pub(crate) fn reading_directory(root: &Path, name: &str) -> PathBuf {
    let dir = root.join(name);
    copy(&golden(name), &dir);
    let write = |file: &str, of: Value| std::fs::write(dir.join(file), of.to_string()).unwrap();
    write("tokenizer.json", tokenizer());
    let prompts = json!({ "query": "query: ", "passage": "passage: " });
    write("config_sentence_transformers.json", json!({ "prompts": prompts, "default_prompt_name": null }));
    dir
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/encoders").join(name)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (from, to) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        if from.is_dir() {
            copy(&from, &to);
        } else {
            std::fs::copy(from, to).unwrap();
        }
    }
}

/// `tokenizer.json` of a WordPiece model.
fn tokenizer() -> Value {
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"];
    let added = special.iter().enumerate().map(|(id, content)| {
        json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true })
    });
    let vocab: Map<String, Value> =
        special.iter().chain(&WORDS).enumerate().map(|(id, word)| ((*word).to_owned(), json!(id))).collect();
    let token = |id: &str, kind: usize| json!({ "SpecialToken": { "id": id, "type_id": kind } });
    let text = |id: &str, kind: usize| json!({ "Sequence": { "id": id, "type_id": kind } });
    let [cls, sep] =
        [("[CLS]", 2), ("[SEP]", 3)].map(|(name, id)| json!({ "id": name, "ids": [id], "tokens": [name] }));
    let first = [token("[CLS]", 0), text("A", 0), token("[SEP]", 0)];
    let pair = [&first[..], &[text("B", 1), token("[SEP]", 1)]].concat();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": { "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": first,
            "pair": pair,
            "special_tokens": { "[CLS]": cls, "[SEP]": sep },
        },
        "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
        "model": { "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab },
    })
}
