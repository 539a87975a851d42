//! Model directories: which files are read, and how they combine.

use crate::fixtures;
use redline_tokenizer::{AddedToken, ByteLevelOptions, Split, Tokenizer, TokenizerError};
use std::fs;
use tempfile::TempDir;

/// A directory with the two files of the `gpt2` fixture and these additional files.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let dir = TempDir::new().unwrap();
    for name in ["vocab.json", "merges.txt"] {
        fs::copy(fixtures::path("gpt2").join(name), dir.path().join(name)).unwrap();
    }
    for (name, content) in files {
        fs::write(dir.path().join(name), content).unwrap();
    }
    dir
}

fn load(files: &[(&str, &str)]) -> Tokenizer {
    Tokenizer::from_dir(directory(files).path()).unwrap()
}

#[test]
fn tokenizer_json_comes_first() {
    let dir = directory(&[]);
    assert_eq!(Tokenizer::from_dir(dir.path()).unwrap().vocab_size(), 701);
    fs::copy(fixtures::path("llama.json"), dir.path().join("tokenizer.json")).unwrap();
    assert_eq!(Tokenizer::from_dir(dir.path()).unwrap().token(1).unwrap(), "<s>");
}

#[test]
fn without_configuration_it_is_gpt2() {
    let tokenizer = load(&[]);
    assert!(!tokenizer.adds_bos());
    assert_eq!(tokenizer.encode("<|endoftext|>", false).unwrap(), [700]);
    assert_eq!(tokenizer.decode(&[700], true).unwrap(), "");
    // GPT-2 keeps digits together where Qwen2 does not.
    let qwen = load(&[("config.json", r#"{"model_type":"qwen2"}"#)]);
    assert_ne!(tokenizer.encode("100", false).unwrap(), qwen.encode("100", false).unwrap());
    assert_eq!(qwen.encode("100", false).unwrap().len(), 3);
}

#[test]
fn bos_and_eos_by_configuration() {
    let config =
        r#"{"add_bos_token":true,"add_eos_token":true,"bos_token":{"content":"<s>"},"eos_token":"!"}"#;
    let tokenizer = load(&[("tokenizer_config.json", config)]);
    let bos = tokenizer.id("<s>").unwrap();
    assert_eq!(bos, 701, "the next free id");
    assert_eq!(tokenizer.prefix_ids(), [bos]);
    assert_eq!(tokenizer.suffix_ids(), [tokenizer.id("!").unwrap()]);
    // Explicitly absent: nothing is added.
    let none = load(&[("tokenizer_config.json", r#"{"add_bos_token":true,"bos_token":null}"#)]);
    assert!(!none.adds_bos());
    // Not mentioned: GPT-2's default.
    let own = load(&[("tokenizer_config.json", r#"{"add_bos_token":true}"#)]);
    assert_eq!(own.prefix_ids(), [700]);
}

#[test]
fn a_prefix_space_by_configuration() {
    let plain = load(&[]).encode(" the", false).unwrap();
    let spaced = load(&[("tokenizer_config.json", r#"{"add_prefix_space":true}"#)]);
    assert_eq!(spaced.encode("the", false).unwrap(), plain);
}

#[test]
fn options_given_by_hand() {
    let [vocab, merges] =
        ["vocab.json", "merges.txt"].map(|name| fs::read(fixtures::path("gpt2").join(name)).unwrap());
    let options = ByteLevelOptions {
        split: Split::Qwen2,
        added: vec![AddedToken::special("<x>"), AddedToken::special("<bos>").with_id(701)],
        prefix: vec!["<bos>".to_owned()],
        ..ByteLevelOptions::default()
    };
    let tokenizer = Tokenizer::from_vocab_and_merges("made by hand", &vocab, &merges, &options).unwrap();
    assert_eq!(tokenizer.prefix_ids(), [701]);
    assert_eq!(tokenizer.encode("<x>", true).unwrap(), [701, 702]);
    let nothing = ByteLevelOptions { suffix: vec!["<eos>".to_owned()], ..ByteLevelOptions::default() };
    let error = Tokenizer::from_vocab_and_merges("made by hand", &vocab, &merges, &nothing).unwrap_err();
    assert!(matches!(error, TokenizerError::MissingToken { ref token, .. } if token == "<eos>"), "{error:?}");
}

/// The error message of a directory that cannot be loaded.
fn refused(dir: &TempDir) -> String {
    let error = Tokenizer::from_dir(dir.path()).unwrap_err();
    let message = error.to_string();
    assert!(message.contains(&format!("in `{}", dir.path().display())), "no place: {message}");
    message
}

#[test]
fn nothing_there() {
    let dir = TempDir::new().unwrap();
    let error = Tokenizer::from_dir(dir.path()).unwrap_err();
    assert!(error.hint().is_some());
    assert!(refused(&dir).starts_with("no tokenizer: neither `tokenizer.json` nor `vocab.json`"));
    fs::write(dir.path().join("vocab.json"), "{}").unwrap();
    assert!(refused(&dir).contains("(only `vocab.json` is there)"));
    let error = Tokenizer::from_file(&dir.path().join("absent.json")).unwrap_err();
    assert!(matches!(error, TokenizerError::Read { .. }), "{error:?}");
}

#[test]
fn broken_files_are_named() {
    for (name, content, message) in [
        ("vocab.json", "[1]", "expected a vocabulary"),
        ("vocab.json", "{\"a\":", "not valid JSON"),
        ("vocab.json", "{\"a\":\"b\"}", "invalid type: string \"b\", expected u32"),
        ("vocab.json", "{\"a\":-1}", "expected u32"),
        ("merges.txt", "#version: 0.2\na b\nab\n", "merge 3 has 1 part(s), but a merge joins 2: `ab`"),
        ("merges.txt", "a b c\n", "merge 1 has 3 part(s)"),
        ("tokenizer_config.json", "{\"add_bos_token\":\"yes\"}", "`add_bos_token` is not true or false"),
        ("tokenizer_config.json", "{\"bos_token\":7}", "`bos_token` is not a token"),
        ("tokenizer_config.json", "{\"bos_token\":{\"x\":1}}", "`bos_token` is not a token: missing field"),
        ("tokenizer_config.json", "{\"added_tokens_decoder\":{\"x\":\"y\"}}", "not keyed by ids"),
        ("tokenizer_config.json", "{\"added_tokens_decoder\":[]}", "not an object"),
        ("tokenizer_config.json", "{\"tokenizer_class\":\"T5Tokenizer\"}", "tokenizer class `T5Tokenizer`"),
        ("tokenizer_config.json", "[]", "expected a map"),
        ("special_tokens_map.json", "{\"additional_special_tokens\":\"x\"}", "not a list of tokens"),
        ("added_tokens.json", "{\"<x>\":\"y\"}", "the id of `<x>` is not a number"),
    ] {
        let message_of = refused(&directory(&[(name, content)]));
        assert!(message_of.contains(message), "{name} {content}: {message_of}");
        let named = if name == "special_tokens_map.json" { "tokenizer_config.json" } else { name };
        assert!(message_of.contains(named), "{name} {content}: {message_of}");
    }
    let dir = directory(&[("merges.txt", "t h\n")]);
    fs::write(dir.path().join("merges.txt"), [b'a', 0xff]).unwrap();
    assert!(refused(&dir).contains("not valid UTF-8: the byte at offset 1"));
}

#[test]
fn files_that_contradict_each_other() {
    let dir = directory(&[("merges.txt", "t h\nth nowhere\n")]);
    assert!(refused(&dir).contains("merge 2 needs the token `nowhere`"));
    let dir = directory(&[("added_tokens.json", "{\"<x>\":900}")]);
    assert!(refused(&dir).contains("added token `<x>` states id 900, but encoding would give it 701"));
    let dir = directory(&[("added_tokens.json", "{\"<x>\":5}")]);
    assert!(refused(&dir).contains("states id 5"));
}
