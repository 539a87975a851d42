//! Queries about the tokens of a tokenizer.

use crate::fixtures;
use redline_tokenizer::{Tokenizer, TokenizerError};

fn byte_level() -> Tokenizer {
    Tokenizer::from_file(&fixtures::path("byte_level.json")).unwrap()
}

fn llama() -> Tokenizer {
    Tokenizer::from_file(&fixtures::path("llama.json")).unwrap()
}

#[test]
fn is_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Tokenizer>();
}

#[test]
fn tokens_and_ids_are_each_others_inverse() {
    for tokenizer in [byte_level(), llama()] {
        for id in 0..tokenizer.vocab_size() as u32 {
            let token = tokenizer.token(id).unwrap();
            assert_eq!(tokenizer.id(&token), Some(id), "{token}");
        }
        assert_eq!(tokenizer.token(tokenizer.vocab_size() as u32), None);
        assert_eq!(tokenizer.id("no such token"), None);
    }
    // A token that is normalised before the search keeps its name from the file.
    assert!(llama().id("red line").is_some());
}

#[test]
fn the_size_counts_added_tokens() {
    assert_eq!(byte_level().vocab_size(), 706);
    assert_eq!(byte_level().id("redline"), Some(705));
}

#[test]
fn the_text_of_one_token() {
    let tokenizer = byte_level();
    let text = |token: &str| tokenizer.token_text(tokenizer.id(token).unwrap()).unwrap();
    assert_eq!(text("Ġthe"), " the");
    assert_eq!(text("Ċ"), "\n");
    assert_eq!(text("ð"), "\u{fffd}");
    assert_eq!(text("<|mask|>"), "<|mask|>");
    let tokenizer = llama();
    let text = |token: &str| tokenizer.token_text(tokenizer.id(token).unwrap()).unwrap();
    assert_eq!(text("▁the"), " the");
    assert_eq!(text("<0x0A>"), "\n");
    assert_eq!(text("<0xE4>"), "\u{fffd}");
    assert_eq!(text("<s>"), "<s>");
    assert!(tokenizer.token_text(100_000).is_err());
    for id in 0..tokenizer.vocab_size() as u32 {
        if let (Ok(text), Ok(bytes)) = (tokenizer.token_text(id), tokenizer.token_bytes(id)) {
            assert_eq!(String::from_utf8_lossy(&bytes), text, "{id}");
        }
    }
    assert!(tokenizer.token_bytes(100_000).is_err());
}

#[test]
fn prefix_and_suffix() {
    let tokenizer = byte_level();
    assert!(tokenizer.adds_bos());
    assert_eq!(tokenizer.prefix_ids(), [700]);
    assert_eq!(tokenizer.suffix_ids(), [0_u32; 0]);

    let mut value = fixtures::json("llama.json");
    let eos = serde_json::json!({ "SpecialToken": { "id": "</s>", "type_id": 0 } });
    value["post_processor"]["single"].as_array_mut().unwrap().push(eos);
    value["post_processor"]["special_tokens"]["</s>"] =
        serde_json::json!({ "id": "</s>", "ids": [2], "tokens": ["</s>"] });
    let tokenizer = fixtures::load(&value);
    assert_eq!((tokenizer.prefix_ids(), tokenizer.suffix_ids()), ([1].as_slice(), [2].as_slice()));
    let expected = fixtures::library(&value).encode_fast("the text", true).unwrap();
    assert_eq!(tokenizer.encode("the text", true).unwrap(), expected.get_ids());

    value["post_processor"] = serde_json::json!({ "type": "RobertaProcessing", "sep": ["</s>", 2],
        "cls": ["<s>", 1], "trim_offsets": true, "add_prefix_space": false });
    let tokenizer = fixtures::load(&value);
    let expected = fixtures::library(&value).encode_fast("", true).unwrap();
    assert_eq!(tokenizer.encode("", true).unwrap(), expected.get_ids());

    value["post_processor"] = serde_json::Value::Null;
    assert!(!fixtures::load(&value).adds_bos());
}

#[test]
fn an_id_without_a_token_is_named() {
    let tokenizer = byte_level();
    let error = tokenizer.decode(&[1, 706, 2], true).unwrap_err();
    assert!(matches!(error, TokenizerError::UnknownId { id: 706, size: 706 }), "{error:?}");
    assert_eq!(error.to_string(), "token id 706 is not in the vocabulary (size 706)");
    assert!(error.hint().unwrap().contains("0 to 705"));
}

#[test]
fn a_gap_in_the_ids_is_no_token() {
    let mut value = fixtures::json("llama.json");
    let vocab = value["model"]["vocab"].as_object_mut().unwrap();
    let last = vocab.values().filter_map(serde_json::Value::as_u64).max().unwrap() as u32;
    vocab.insert("far".to_owned(), (last + 10).into());
    value["added_tokens"].as_array_mut().unwrap().pop();
    let tokenizer = fixtures::load(&value);
    assert_eq!(tokenizer.vocab_size(), last as usize + 11);
    assert_eq!(tokenizer.decode(&[last + 10], false).unwrap(), "far");
    assert!(tokenizer.decode(&[last + 5], false).is_err());
}

#[test]
fn neither_truncation_nor_padding_changes_a_text() {
    let mut value = fixtures::json("llama.json");
    let text = "the river runs along the old road";
    let expected = fixtures::load(&value).encode(text, true).unwrap();
    value["truncation"] = serde_json::json!({ "direction": "Right", "max_length": 2, "strategy": "LongestFirst",
        "stride": 0 });
    value["padding"] = serde_json::json!({ "strategy": { "Fixed": 64 }, "direction": "Left",
        "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "<unk>" });
    assert_eq!(fixtures::load(&value).encode(text, true).unwrap(), expected);
}

#[test]
fn merges_may_be_written_as_lines() {
    let value = fixtures::json("llama.json");
    let merges = value["model"]["merges"].as_array().unwrap();
    let line = |merge: &serde_json::Value| {
        let part = |at: usize| merge[at].as_str().unwrap();
        format!("{} {}", part(0), part(1))
    };
    let mut lines = vec!["#version: 0.2".to_owned()];
    lines.extend(merges.iter().map(line));
    let mut written = value.clone();
    written["model"]["merges"] = lines.into();
    let text = "the river runs along the old road";
    let expected = fixtures::load(&value).encode(text, true).unwrap();
    assert_eq!(fixtures::load(&written).encode(text, true).unwrap(), expected);
    assert_eq!(fixtures::library(&written).encode_fast(text, true).unwrap().get_ids(), expected);
}

#[test]
fn a_dropout_of_zero_changes_nothing() {
    let mut value = fixtures::json("llama.json");
    let text = "the river runs along the old road";
    let expected = fixtures::load(&value).encode(text, true).unwrap();
    value["model"]["dropout"] = serde_json::json!(0.0);
    assert_eq!(fixtures::load(&value).encode(text, true).unwrap(), expected);
}

/// The first mark of a text is removed; that of a token alone is not.
#[test]
fn the_text_of_one_token_is_that_in_the_middle_of_a_text() {
    let mut value = fixtures::json("llama.json");
    for scheme in ["first", "always", "never"] {
        value["decoder"] =
            serde_json::json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme });
        let tokenizer = fixtures::load(&value);
        let the = tokenizer.id("▁the").unwrap();
        assert_eq!(tokenizer.token_text(the).unwrap(), " the", "{scheme}");
        let alone = if scheme == "never" { " the" } else { "the" };
        assert_eq!(tokenizer.decode(&[the], false).unwrap(), alone, "{scheme}");
    }
}

#[test]
fn older_files_state_neither_a_version_nor_the_type_of_the_model() {
    let mut value = fixtures::json("llama.json");
    let text = "the river runs along the old road";
    let expected = fixtures::load(&value).encode(text, true).unwrap();
    value.as_object_mut().unwrap().remove("version").unwrap();
    value["model"].as_object_mut().unwrap().remove("type").unwrap();
    assert_eq!(fixtures::load(&value).encode(text, true).unwrap(), expected);
}
