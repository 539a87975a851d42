//! Compares ids and texts with those of the reference, recorded by `fixtures/make.py`.

use crate::fixtures;
use redline_tokenizer::Tokenizer;
use std::path::PathBuf;

fn check(name: &str, tokenizer: &Tokenizer) {
    let golden = fixtures::json(&format!("{name}.golden.json"));
    let encodings: Vec<(String, Vec<u32>, Vec<u32>)> =
        serde_json::from_value(golden["encode"].clone()).unwrap();
    let decodings: Vec<(Vec<u32>, String, String)> =
        serde_json::from_value(golden["decode"].clone()).unwrap();
    assert!(encodings.len() > 40 && decodings.len() > 60);
    for (text, plain, special) in &encodings {
        assert_eq!(tokenizer.encode(text, false).unwrap(), *plain, "{name}: {text:?}");
        assert_eq!(tokenizer.encode(text, true).unwrap(), *special, "{name}: {text:?} with special tokens");
    }
    for (ids, all, skipped) in &decodings {
        assert_eq!(tokenizer.decode(ids, false).unwrap(), *all, "{name}: {ids:?}");
        assert_eq!(tokenizer.decode(ids, true).unwrap(), *skipped, "{name}: {ids:?} without special tokens");
    }
    let texts: Vec<&str> = encodings.iter().map(|(text, ..)| text.as_str()).collect();
    let batch: Vec<Vec<u32>> = encodings.iter().map(|(.., special)| special.clone()).collect();
    assert_eq!(tokenizer.encode_batch(&texts, true, 2).unwrap(), batch);
}

fn file(name: &str) -> PathBuf {
    fixtures::path(name)
}

#[test]
fn byte_level_like_llama_3() {
    check("byte_level", &Tokenizer::from_file(&file("byte_level.json")).unwrap());
}

#[test]
fn sentencepiece_style_like_llama_2() {
    check("llama", &Tokenizer::from_file(&file("llama.json")).unwrap());
}

#[test]
fn vocab_and_merges_of_gpt2() {
    check("gpt2", &Tokenizer::from_dir(&file("gpt2")).unwrap());
}

#[test]
fn vocab_and_merges_of_dream() {
    check("dream", &Tokenizer::from_dir(&file("dream")).unwrap());
}
