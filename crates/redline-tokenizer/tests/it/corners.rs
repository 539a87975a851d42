//! Unusual combinations of settings, and positions that are not safe ends of a cached prefix.

use crate::fixtures::{library, load};
use crate::forms::{self, named};
use redline_tokenizer::{PrefixCacheOptions, Tokenizer};
use serde_json::{Value, json};

fn form(name: &str) -> Value {
    named(name).json.clone()
}

/// The form without added tokens, whose ids depend on the size of the vocabulary.
fn bare(name: &str) -> Value {
    let mut value = form(name);
    value["added_tokens"] = json!([]);
    value["post_processor"] = Value::Null;
    value
}

/// Appends these tokens to the vocabulary.
fn with_tokens(mut value: Value, tokens: &[&str]) -> Value {
    let vocab = value["model"]["vocab"].as_object_mut().unwrap();
    let ids = vocab.values().filter_map(Value::as_u64).max().unwrap() + 1000..;
    for (token, id) in tokens.iter().zip(ids) {
        vocab.entry(*token).or_insert(id.into());
    }
    value
}

fn with_merge(mut value: Value, left: &str, right: &str) -> Value {
    value = with_tokens(value, &[left, right, &format!("{left}{right}")]);
    value["model"]["merges"].as_array_mut().unwrap().push(json!([left, right]));
    value
}

/// Checks ids and offsets against the library.
fn check(value: &Value, texts: &[&str]) {
    let (ours, theirs) = (load(value), library(value));
    for text in texts {
        let expected = theirs.encode(*text, true).unwrap();
        assert_eq!(ours.encode(text, true).unwrap(), expected.get_ids(), "{text:?}");
        let places: Vec<_> = expected.get_offsets().iter().map(|(start, end)| *start..*end).collect();
        assert_eq!(ours.encode_with_offsets(text, true).unwrap().offsets, places, "{text:?}");
    }
}

#[test]
fn a_stretch_that_is_a_token_as_a_whole() {
    for name in ["llama2", "gemma", "mistral first split false", "mistral always split true"] {
        let mut value = with_tokens(bare(name), &["▁zq", "▁a▁b", "zq", "a▁b"]);
        value["model"]["ignore_merges"] = true.into();
        check(&value, &["zq", "say zq", "a b", "a b c", " a b", "zq zq", ""]);
    }
}

#[test]
fn a_mark_without_a_token() {
    for name in ["llama2", "gemma", "mistral first split true"] {
        let mut value = bare(name);
        let merges = value["model"]["merges"].as_array_mut().unwrap();
        merges.retain(|merge| !merge.to_string().contains('▁'));
        let vocab = value["model"]["vocab"].as_object_mut().unwrap();
        vocab.retain(|token, _| !token.contains('▁'));
        check(&value, &["a b", "the  road", " "]);
    }
}

#[test]
fn a_byte_token_that_a_merge_makes() {
    let mut value = bare("llama2");
    for (left, right) in [("<", "0"), ("<0", "x"), ("<0x", "0"), ("<0x0", "A"), ("<0x0A", ">")] {
        value = with_merge(value, left, right);
    }
    check(&value, &["x<0x0A>y", "<0x0A>", "a\nb <0x0A> c"]);
}

#[test]
fn one_added_token_said_twice() {
    for name in ["gpt2", "qwen2", "llama2"] {
        for (first, then) in [(false, true), (true, false)] {
            let mut value = form(name);
            let token = |normalized: bool| {
                json!({ "content": "<x>", "special": false, "normalized": normalized, "single_word": false,
                    "lstrip": !normalized, "rstrip": false })
            };
            let next = load(&value).vocab_size();
            let tokens = value["added_tokens"].as_array_mut().unwrap();
            for mut token in [token(first), token(then)] {
                token["id"] = next.into();
                tokens.push(token);
            }
            check(&value, &["a <x>", "<x>", "a<x> b  <x>"]);
        }
    }
}

/// Checks that the cached prefix fits the text, for every prefix length.
fn check_beginnings(tokenizer: Tokenizer, text: &str) {
    let expected = tokenizer.encode(text, false).unwrap();
    let ends = (0..=text.len()).filter(|end| text.is_char_boundary(*end));
    for end in ends.clone() {
        let beginning = tokenizer.begin(&text[..end]).unwrap();
        assert_eq!(tokenizer.encode_after(&beginning, text, false).unwrap(), expected, "{:?}", &text[..end]);
    }
    let mut tokenizer = tokenizer;
    for end in ends {
        tokenizer = tokenizer.with_prefix_cache(PrefixCacheOptions { entries: 2, bytes: end });
        for _ in 0..2 {
            assert_eq!(tokenizer.encode(text, false).unwrap(), expected, "{end} bytes");
        }
    }
}

#[test]
fn a_space_put_before_is_no_beginning() {
    let mut value = form("gpt2 with a space before");
    value["normalizer"] = json!({ "type": "NFC" });
    check_beginnings(load(&value), "\n\u{315}x and more");
    check_beginnings(load(&form("llama2")), "  two spaces");
    check_beginnings(load(&form("mistral first split true")), "x y z");
}

/// A word whose end was decided at the end of the text is not kept: following text may change it.
#[test]
fn a_word_cut_at_the_end_of_a_beginning_is_not_safe() {
    for form in forms::families() {
        for text in [
            "the river; they're going somewhere; we'll see",
            "they'VE said so; we'd, I'm",
            "a road \n  \n\t x",
            "an old  \u{a0}  road",
            "12345678 and 9",
            "a/b //\n/ c",
            "WEll'll ABc dEF'S",
        ] {
            check_beginnings(load(&form.json), text);
        }
    }
}

#[test]
fn marks_that_follow_reach_back_to_an_added_token() {
    for name in ["gpt2", "qwen2"] {
        let mut value = form(name);
        value["normalizer"] = json!({ "type": "NFC" });
        let next = load(&value).vocab_size();
        value["added_tokens"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "id": next, "content": "!é", "special": false,
            "normalized": true, "single_word": false, "lstrip": false, "rstrip": false }));
        check(&value, &["a!e\u{315}\u{315}\u{315}\u{301} b"]);
        check_beginnings(load(&value), "a!e\u{315}\u{315}\u{315}\u{301} b and so on");
    }
}

#[test]
fn whitespace_that_two_tokens_want() {
    let mut value = bare("gpt2");
    let id = |content: &str| value["model"]["vocab"][content].clone();
    let next = value["model"]["vocab"].as_object().unwrap().len();
    let token = |id: Value, content: &str, lstrip: bool, rstrip: bool| {
        json!({ "id": id, "content": content, "special": false, "normalized": false, "single_word": false,
            "lstrip": lstrip, "rstrip": rstrip })
    };
    value["added_tokens"] = json!([token(id("a"), "a", false, true), token(next.into(), " ", true, false)]);
    // The library cuts this text before its beginning and fails, so there is nothing to compare with.
    let ours = load(&value);
    assert!(ours.encode("a    b", true).is_ok() && ours.encode_with_offsets("a    b", true).is_ok());
    check(&value, &["ab", "b", "ba "]);
}
