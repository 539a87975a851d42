//! Broken and malicious `tokenizer.json` files give a specific error, never a panic.

use crate::fixtures;
use proptest::prelude::*;
use redline_tokenizer::{Tokenizer, TokenizerError};
use serde_json::{Value, json};

/// The smallest tokenizer that has every part.
fn small() -> Value {
    json!({
        "version": "1.0",
        "added_tokens": [{ "id": 4, "content": "<s>", "special": true }],
        "normalizer": { "type": "Sequence", "normalizers": [{ "type": "NFC" }] },
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": "b+" }, "behavior": "Isolated", "invert": false },
            { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
        ]},
        "post_processor": { "type": "TemplateProcessing",
            "single": [{ "SpecialToken": { "id": "<s>", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
            "pair": [], "special_tokens": { "<s>": { "id": "<s>", "ids": [4], "tokens": ["<s>"] } } },
        "decoder": { "type": "Sequence", "decoders": [{ "type": "ByteLevel" }, { "type": "Fuse" },
            { "type": "Strip", "content": " ", "start": 1, "stop": 1 }] },
        "model": { "type": "BPE", "vocab": { "a": 0, "b": 1, "ab": 2, "Ġ": 3 }, "merges": [["a", "b"]],
            "unk_token": "a" },
    })
}

fn error(value: &Value) -> TokenizerError {
    Tokenizer::from_bytes("small.json", value.to_string().as_bytes()).expect_err(&value.to_string())
}

/// Puts `value` at `pointer` and returns the loader's message.
fn with(pointer: &str, value: Value) -> String {
    let mut json = small();
    *json.pointer_mut(pointer).expect(pointer) = value;
    let message = error(&json).to_string();
    assert!(message.ends_with("\n  in `small.json`"), "{message}");
    message
}

fn without(pointer: &str, name: &str) -> String {
    let mut json = small();
    json.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(name).expect(name);
    error(&json).to_string()
}

fn check(message: &str, expected: &str) {
    assert!(message.contains(expected), "expected {expected:?} in {message:?}");
}

#[test]
fn the_small_one_is_sound() {
    let tokenizer = Tokenizer::from_bytes("small.json", small().to_string().as_bytes()).unwrap();
    assert_eq!(tokenizer.encode("ab<s>a", true).unwrap(), [4, 0, 1, 4, 0]);
}

#[test]
fn not_a_document() {
    let message = |bytes: &[u8]| Tokenizer::from_bytes("x", bytes).unwrap_err().to_string();
    check(&message(b""), "not valid JSON: EOF");
    check(
        &message(b"version https://git-lfs.github.com/spec/v1"),
        "not valid JSON: expected value at line 1",
    );
    check(&message(b"[]"), "invalid length 0");
    check(&message(b"7"), "invalid type: integer");
    check(&message(b"\xff\xfe"), "not valid UTF-8: the byte at offset 0");
    check(&message("[".repeat(100_000).as_bytes()), "line 1 column");
    check(&message(format!("{{\"decoder\":{}", "[".repeat(100_000)).as_bytes()), "recursion limit");
    let whole = small().to_string();
    for end in 0..whole.len() {
        assert!(Tokenizer::from_bytes("cut", &whole.as_bytes()[..end]).is_err());
    }
}

#[test]
fn parts_that_are_missing_or_of_another_kind() {
    check(&without("", "model"), "`model` is missing");
    check(&without("/model", "vocab"), "`model.vocab` is missing");
    check(&without("/model", "merges"), "`model.merges` is missing");
    check(&with("/model", json!([])), "");
    check(&with("/model/vocab", json!([["a", -1.0]])), "`model.vocab` is a list instead of an object");
    check(&with("/model/vocab", json!("a")), "expected a vocabulary");
    check(&with("/model/vocab/a", json!("zero")), "expected u32");
    check(&with("/model/vocab/a", json!(0.5)), "expected u32");
    check(&with("/model/merges", json!("a b")), "expected a sequence");
    check(&with("/model/merges/0", json!(5)), "expected a merge");
    check(&with("/model/type", json!("WordLevel")), "model type `WordLevel` is not one that can be read");
    check(&with("/model/type", json!("Unigram")), "`model.vocab` is an object instead of a list");
    check(&with("/version", json!("2.0")), "version `2.0`");
    check(&with("/added_tokens/0", json!({ "id": 4 })), "missing field `content`");
    check(&with("/added_tokens", json!({})), "expected a sequence");
    // A vocabulary in the form of another model: the error should name the model type.
    check(&with("/model", json!({ "type": "New", "vocab": 7 })), "model type `New`");
    let mut unigram = small();
    unigram["model"] = json!({ "type": "Unigram", "unk_id": 1, "vocab": [["a", -1.0]] });
    check(&error(&unigram).to_string(), "`model.unk_id` is 1, but the vocabulary has 1 tokens");
    unigram["model"] = json!({ "type": "Unigram", "unk_id": null, "vocab": [["a", -1.0]] });
    check(&error(&unigram).to_string(), "`model.unk_id` is missing");
    unigram["model"] = json!({ "type": "Unigram", "unk_id": 0, "vocab": [["a", -1.0], ["a", -2.0]] });
    check(&error(&unigram).to_string(), "token `a` has two ids, 0 and 1");
    check(
        &with("/model", json!({ "type": "WordPiece", "vocab": { "a": 0, "<s>": 4 } })),
        "needs the token `[UNK]`",
    );
    check(&with("/model", json!({ "type": "WordPiece", "vocab": [] })), "is a list instead of an object");
    let map = json!({ "type": "Precompiled", "precompiled_charsmap": "/////w==" });
    check(&with("/normalizer", map), "its trie takes 4294967295 bytes of 0");
}

#[test]
fn a_vocabulary_that_contradicts_itself() {
    check(&with("/model/vocab/b", json!(0)), "id 0 belongs to two tokens, `a` and `b`");
    let twice = small().to_string().replace("\"b\":1", "\"b\":1,\"b\":9");
    let error = Tokenizer::from_bytes("x", twice.as_bytes()).unwrap_err();
    assert!(matches!(error, TokenizerError::DuplicateToken { first: 1, second: 9, .. }), "{error:?}");
    check(&with("/model/vocab/b", json!(u32::MAX)), "but an id can be at most 16777215");
    check(&with("/model/vocab/b", json!(1_u64 << 32)), "expected u32");
    check(&with("/model/unk_token", json!("<unk>")), "`model.unk_token` needs the token `<unk>`");
    check(&with("/model/merges/0", json!(["a"])), "merge 1 has 1 part(s)");
    check(&with("/model/merges/0", json!("a b c")), "merge 1 has 3 part(s)");
    check(&with("/model/merges", json!(["#version: 0.2", "a b c"])), "merge 2 has 3 part(s)");
    check(&with("/model/merges/0", json!(["a", "x"])), "merge 1 needs the token `x`");
    // Both parts exist, but not the result. It is longer than any token, which overruns a buffer in other
    // implementations.
    check(&with("/model/merges/0", json!(["ab", "ab"])), "merge 1 needs the token `abab`");
    let mut prefixed = small();
    prefixed["model"]["continuing_subword_prefix"] = json!("####");
    check(&self::error(&prefixed).to_string(), "merge 1 needs the token `####b`");
    let mut random = small();
    random["model"]["dropout"] = json!(0.1);
    check(&self::error(&random).to_string(), "`model.dropout` is 0.1");
}

#[test]
fn added_tokens_that_contradict_the_vocabulary() {
    check(
        &with("/added_tokens/0/id", json!(7)),
        "added token `<s>` states id 7, but encoding would give it 4",
    );
    check(&with("/added_tokens/0/content", json!("")), "an added token has no text");
    check(&with("/added_tokens/0/content", json!("b")), "states id 4, but encoding would give it 1");
    // The library assigns ids from the number of tokens on, so with a gap the id belongs to another token.
    let mut gap = small();
    gap["model"]["vocab"] = json!({ "a": 0, "b": 1, "ab": 2, "Ġ": 4 });
    gap["added_tokens"] = json!([{ "content": "<s>", "special": true }]);
    check(&error(&gap).to_string(), "id 4 belongs to two tokens, `Ġ` and `<s>`");
}

#[test]
fn components_nobody_can_read() {
    let precompiled = json!({ "type": "Precompiled", "precompiled_charsmap": "AAAA" });
    check(&with("/normalizer/normalizers/0", precompiled), "precompiled_charsmap`: it has only 3 bytes");
    check(&with("/normalizer/normalizers/0", json!({ "type": "Nmt" })), "normalizer `Nmt` is not one");
    check(&with("/normalizer", json!("NFC")), "normalizer `without a type`");
    check(
        &with("/pre_tokenizer/pretokenizers/0/pattern/Regex", json!("(")),
        "`pre_tokenizer` cannot be read",
    );
    let nothing = json!({ "type": "Replace", "pattern": { "String": "" }, "content": "a" });
    check(&with("/normalizer/normalizers/0", nothing), "a `Replace` has an empty pattern");
    let fixed = json!({ "type": "FixedLength", "length": 0 });
    check(&with("/pre_tokenizer", fixed), "pre_tokenizer `FixedLength` is not one");
    check(&with("/decoder", json!({ "type": "CTC" })), "decoder `CTC` is not one");
    check(&with("/decoder", json!({ "type": "WordPiece" })), "a `WordPiece` needs a text as `prefix`");
    check(&with("/decoder", json!({ "type": "Sequence" })), "`decoder.decoders` is not a list");
    check(&with("/decoder/decoders/2/content", json!("ab")), "`content` is not one character");
    check(&with("/decoder/decoders/2/start", json!(-1)), "needs a number as `start`");
    check(
        &with("/decoder/decoders/1", json!({ "type": "ByteFallback" })),
        "decoder `ByteFallback` is not one",
    );
    let regex = json!({ "type": "Replace", "pattern": { "Regex": "." }, "content": "" });
    check(&with("/decoder", regex), "a `Replace` needs a string");
}

#[test]
fn templates_that_lead_nowhere() {
    check(&with("/post_processor/special_tokens", json!({})), "`post_processor.special_tokens` lacks `<s>`");
    check(
        &with("/post_processor/special_tokens/<s>/ids/0", json!(99)),
        "`post_processor` needs the token `id 99`",
    );
    check(&with("/post_processor/special_tokens/<s>/ids/0", json!("x")), "gives `<s>` the id \"x\"");
    check(
        &with("/post_processor/special_tokens/<s>/ids/0", json!(4_294_967_300_u64)),
        "gives `<s>` the id 4294967300, not a number",
    );
    check(&with("/post_processor/single", json!([])), "has the text 0 times");
    check(&with("/post_processor/single/1/Sequence/id", json!("B")), "neither a token nor `A`");
    check(&with("/post_processor", json!({ "type": "BertProcessing" })), "`post_processor.cls` is not");
    check(&with("/post_processor", json!({ "type": "Other" })), "post-processor `Other` is not one");
}

#[test]
fn a_text_that_ends_with_a_token_nobody_has() {
    let mut json = small();
    let (text, end) = (json!({ "Sequence": { "id": "A" } }), json!({ "SpecialToken": { "id": "</s>" } }));
    json["post_processor"]["single"] = json!([text, end]);
    json["post_processor"]["special_tokens"]["</s>"] =
        json!({ "id": "</s>", "ids": [99], "tokens": ["</s>"] });
    check(&error(&json).to_string(), "`post_processor` needs the token `id 99`");
}

#[test]
fn a_second_processor_that_adds_tokens() {
    let template = small()["post_processor"].clone();
    let of = |kind: &str| json!({ "type": kind, "sep": ["<s>", 4], "cls": ["<s>", 4], "trim_offsets": false, "add_prefix_space": true });
    let (bert, roberta) = (of("BertProcessing"), of("RobertaProcessing"));
    for processors in [
        [&template, &template],
        [&template, &bert],
        [&bert, &template],
        [&roberta, &template],
        [&bert, &roberta],
    ] {
        let second = processors[1]["type"].as_str().unwrap();
        let message = with("/post_processor", json!({ "type": "Sequence", "processors": processors }));
        check(&message, &format!("post-processor `second {second}` is not one that can be read"));
    }
}

#[test]
fn a_processor_that_does_not_say_how_it_trims_offsets() {
    for kind in ["ByteLevel", "RobertaProcessing"] {
        for missing in ["trim_offsets", "add_prefix_space"] {
            let mut processor = json!({ "type": kind, "sep": ["<s>", 4], "cls": ["<s>", 4], "trim_offsets": false, "add_prefix_space": true });
            processor.as_object_mut().unwrap().remove(missing);
            let message = with("/post_processor", processor);
            check(&message, &format!("`post_processor.{missing}` is neither true nor false"));
        }
    }
}

#[test]
fn an_id_one_above_the_highest() {
    check(
        &with("/model/vocab/b", json!(16_777_216)),
        "token `b` has id 16777216, but an id can be at most 16777215",
    );
}

#[test]
fn patterns_that_match_nothing() {
    let replace = |pattern: Value| json!({ "type": "Replace", "pattern": pattern, "content": "a" });
    for pattern in [json!({ "String": "" }), json!({ "Regex": "" })] {
        let message = with("/normalizer/normalizers/0", replace(pattern));
        check(&message, "a `Replace` has an empty pattern");
    }
    check(&with("/decoder", replace(json!({ "String": "" }))), "a `Replace` needs a string");
}

#[test]
fn each_fault_has_its_own_advice() {
    let advice = |pointer: &str, value: Value| {
        let mut json = small();
        *json.pointer_mut(pointer).expect(pointer) = value;
        error(&json).hint()
    };
    let bytes = |bytes: &[u8]| Tokenizer::from_bytes("x", bytes).unwrap_err().hint();
    for (hint, expected) in [
        (bytes(b"{"), "the file may be cut short"),
        (bytes(b"\xff"), "the file may be cut short"),
        (bytes(b"7"), "compare with the same file"),
        (advice("/decoder", json!({ "type": "CTC" })), "tokenizers can be read"),
        (advice("/model/vocab/b", json!(u32::MAX)), "ids count from 0"),
        (advice("/model/merges/0", json!("a b c")), "one space between them"),
        (advice("/model/merges/0", json!(["a", "x"])), "two different tokenizers"),
        (advice("/model/unk_token", json!("<unk>")), "two different tokenizers"),
        (advice("/added_tokens/0/id", json!(7)), "here from 4"),
    ] {
        check(&hint.unwrap(), expected);
    }
    assert_eq!(advice("/model/vocab/b", json!(0)), None);
}

/// The unknown token is an added token, which is not in the model's own vocabulary, so an unknown character is an error.
#[test]
fn a_batch_fails_with_the_first_text_that_fails() {
    let mut json = small();
    json["model"]["unk_token"] = json!("<s>");
    let tokenizer = Tokenizer::from_bytes("small.json", json.to_string().as_bytes()).unwrap();
    // Each is long enough to be a piece of work of its own.
    let [fine, first, second] = [("a", 20_000), ("z", 30_000), ("z", 40_000)].map(|(c, n)| c.repeat(n));
    let texts = [&*fine, &*first, &*fine, &*second, "a"];
    for threads in 1..=3 {
        let error = tokenizer.encode_batch(&texts, true, threads).unwrap_err();
        assert!(matches!(error, TokenizerError::Encode { bytes: 30_000, .. }), "{error:?}");
    }
    assert!(tokenizer.encode_batch(&[], true, 3).unwrap().is_empty());
    assert_eq!(tokenizer.encode_batch(&["ab", "a"], true, 0).unwrap(), [vec![4_u32, 0, 1], vec![4, 0]]);
}

/// Replaces the `n`th value of the document, counted depth first.
fn replace(value: &mut Value, n: &mut usize, with: &Value) {
    if *n == 0 {
        *value = with.clone();
    }
    *n = n.wrapping_sub(1);
    match value {
        Value::Array(list) => list.iter_mut().for_each(|value| replace(value, n, with)),
        Value::Object(map) => map.values_mut().for_each(|value| replace(value, n, with)),
        _ => {}
    }
}

const STRINGS: [&str; 12] =
    ["", "a", "b", "ab", "Ġ", "<s>", "Sequence", "ByteLevel", "Metaspace", "Always", "Removed", "\\s"];

fn any_value() -> impl Strategy<Value = Value> {
    let replace = json!({ "type": "Replace", "pattern": { "String": "" }, "content": "ab" });
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..8_u32).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(&STRINGS[..]).prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([["a", "b"], "b a"])),
        Just(json!({ "type": "Prepend", "prepend": "ab" })),
        Just(json!({ "type": "Strip", "strip_left": true, "strip_right": true })),
        Just(replace),
    ]
}

proptest! {
    #[test]
    fn any_change_loads_soundly_or_is_refused(
        places in prop::collection::vec((0..90_usize, any_value()), 1..4),
        text in "[ab <s>é\\n]{0,12}",
    ) {
        let mut json = small();
        for (mut place, value) in places {
            replace(&mut json, &mut place, &value);
        }
        if let Ok(tokenizer) = Tokenizer::from_bytes("changed", json.to_string().as_bytes()) {
            let ids = 0..tokenizer.vocab_size() as u32;
            let ids: Vec<u32> = ids.filter(|id| tokenizer.token(*id).is_some()).collect();
            prop_assert!(tokenizer.decode(&ids, false).is_ok());
            match tokenizer.encode(&text, true) {
                Ok(ids) => prop_assert!(tokenizer.decode(&ids, true).is_ok(), "ids out of the vocabulary: {:?}", ids),
                // The only error that shows only during encoding: the unknown token is not in the model's own
                // vocabulary.
                Err(error) => prop_assert!(error.to_string().contains("Unk token"), "{} for {}", error, json),
            }
        }
    }

    #[test]
    fn any_bytes_are_refused_or_load(
        bytes in prop::collection::vec(any::<u8>(), 0..64),
        at in 0..2000_usize,
    ) {
        let mut whole = fixtures::json("llama.json").to_string().into_bytes();
        let at = at * whole.len() / 2000;
        let end = (at + bytes.len()).min(whole.len());
        whole.splice(at..end, bytes);
        let _ = Tokenizer::from_bytes("bytes", &whole);
    }
}
