//! Every setting of a tokenizer, changed: where the changed tokenizer still loads, it encodes and decodes as the reference library.

use std::panic::{AssertUnwindSafe, catch_unwind};

use redline_tokenizer::Tokenizer;
use serde_json::{Value, json};

use crate::forms;

/// The parts of a `tokenizer.json` whose settings are changed.
const PARTS: [&str; 5] = ["normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens"];
/// The settings of the model that are changed.
const OF_MODEL: [&str; 6] = [
    "ignore_merges",
    "byte_fallback",
    "fuse_unk",
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
];
const FAMILIES: [&str; 8] = [
    "gpt2",
    "gpt2 with a space before",
    "llama3",
    "qwen2",
    "llama2",
    "gemma",
    "mistral first split true",
    "llama2 with added tokens of every kind",
];
const TEXTS: [&str; 12] = [
    "",
    " ",
    "hello world",
    " Hello  world ",
    "red▁line and  red line's 1234567 end",
    "\n\n a\tb \r\n",
    "caf\u{e9} cafe\u{301} \u{1f600}",
    "<s> a <s>b</s> <|endoftext|> c<think> d ",
    "  <|endoftext|>  x",
    "I'll WE'RE they'd",
    "▁▁x▁",
    "don't stop\u{a0}now",
];

/// Pointers to every scalar below `value`, and to every element of a list and key of an object.
fn places(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                places(value, format!("{at}/{key}"), found);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                places(value, format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
    found.push(at);
}

/// What else could stand there.
fn others(value: &Value) -> Vec<Value> {
    match value {
        Value::Bool(on) => vec![json!(!on), Value::Null],
        Value::Number(n) => vec![json!(n.as_u64().unwrap_or(0) + 1), json!(0)],
        Value::String(text) => {
            let words =
                [" ", "▁", "Isolated", "Removed", "MergedWithPrevious", "first", "always", "never", "a"];
            words.iter().filter(|word| *word != text).map(|word| json!(word)).collect()
        }
        Value::Null => vec![json!("a")],
        Value::Array(list) => {
            let backwards = Value::Array(list.iter().rev().cloned().collect());
            let repeated = Value::Array(list.iter().chain(list.last()).cloned().collect());
            vec![json!([]), backwards, repeated, Value::Array(list.iter().skip(1).cloned().collect())]
        }
        Value::Object(_) => vec![Value::Null],
    }
}

/// Replaces the value at a pointer, and returns whether that changed anything. Without a value the key is removed.
fn replace(json: &mut Value, at: &str, by: Option<&Value>) -> bool {
    let Some(by) = by else {
        let (parent, key) = at.rsplit_once('/').unwrap();
        let parent = json.pointer_mut(parent).and_then(Value::as_object_mut);
        return parent.is_some_and(|parent| parent.remove(key).is_some());
    };
    let there = json.pointer_mut(at).unwrap();
    let changed = there != by;
    *there = by.clone();
    changed
}

/// The reference library; `None` where it rejects the file, or panics.
fn library(json: &Value) -> Option<tokenizers::Tokenizer> {
    catch_unwind(|| tokenizers::Tokenizer::from_bytes(json.to_string()).ok()).ok()?
}

/// Compares encoding and decoding of all texts; returns whether both could be loaded.
fn compare(json: &Value, what: &str) -> bool {
    let Ok(ours) = Tokenizer::from_bytes("variation", json.to_string().as_bytes()) else { return false };
    let Some(library) = library(json) else { return false };
    for text in TEXTS {
        for special in [false, true] {
            let expected = catch_unwind(AssertUnwindSafe(|| library.encode_fast(text, special)));
            let Ok(Ok(expected)) = expected else { continue };
            let got = ours.encode(text, special).unwrap();
            assert_eq!(got, expected.get_ids(), "{what}: {text:?}, special {special}");
            let back = catch_unwind(AssertUnwindSafe(|| library.decode(&got, special)));
            if let Ok(Ok(back)) = back {
                assert_eq!(ours.decode(&got, special).unwrap(), back, "{what}: decoding {text:?}");
            }
        }
    }
    true
}

#[test]
fn a_changed_setting_has_the_librarys_effect_or_is_refused() {
    let mut compared = 0;
    for family in FAMILIES {
        let base = &forms::families().find(|form| form.name == family).unwrap().json;
        let mut found = Vec::new();
        for part in PARTS {
            places(&base[part], format!("/{part}"), &mut found);
        }
        found.extend(OF_MODEL.iter().map(|key| format!("/model/{key}")));
        for at in found {
            let there = base.pointer(&at).cloned().unwrap_or_default();
            let changes = others(&there).into_iter().map(Some).chain([None]);
            for by in changes {
                let mut json = base.clone();
                if base.pointer(&at).is_none() && by.is_some() {
                    json["model"][at.rsplit('/').next().unwrap()] = Value::Null;
                }
                if replace(&mut json, &at, by.as_ref()) {
                    let to = by.map_or_else(|| "removed".to_owned(), |by| by.to_string());
                    compared += usize::from(compare(&json, &format!("{family}, {at} = {to}")));
                }
            }
        }
    }
    assert!(compared > 500, "{compared}");
}
