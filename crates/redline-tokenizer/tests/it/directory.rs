//! Model directories: which files are read, and how they combine.

use crate::fixtures;
use redline_tokenizer::{AddedToken, ByteLevelOptions, Encoder, Split, Tokenizer, TokenizerError};
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
    let qwen2 =
        load(&[("tokenizer_config.json", r#"{"tokenizer_class":"Qwen2Tokenizer","add_prefix_space":true}"#)]);
    assert_eq!(qwen2.encode("the", false).unwrap(), plain);
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
    let merges = TempDir::new().unwrap();
    fs::write(merges.path().join("merges.txt"), "").unwrap();
    assert!(refused(&merges).contains("(only `merges.txt` is there)"));
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

#[test]
fn a_chosen_encoder_is_used_for_every_kind_of_file() {
    let (two, one) = (directory(&[]), TempDir::new().unwrap());
    fs::copy(fixtures::path("llama.json"), one.path().join("tokenizer.json")).unwrap();
    let loaded = |encoder: Encoder| {
        [
            Tokenizer::from_dir_with(two.path(), encoder).unwrap(),
            Tokenizer::from_dir_with(one.path(), encoder).unwrap(),
            Tokenizer::from_file_with(&fixtures::path("byte_level.json"), encoder).unwrap(),
        ]
    };
    let text = "the river runs 1000 times, <s>it's said";
    for (native, library) in loaded(Encoder::Native).into_iter().zip(loaded(Encoder::Library)) {
        assert_eq!((native.encoder(), native.fallback()), (Encoder::Native, None));
        assert_eq!((library.encoder(), library.fallback()), (Encoder::Library, None), "nothing fell back");
        assert_eq!(native.encode(text, true).unwrap(), library.encode(text, true).unwrap());
    }
}

#[test]
fn the_class_or_else_the_model_tells_how_text_is_split() {
    let of = |files: &[(&str, &str)]| {
        let digits = load(files).encode("100", false).unwrap().len();
        if digits == 3 { Split::Qwen2 } else { Split::Gpt2 }
    };
    for (class, split) in [
        ("GPT2Tokenizer", Split::Gpt2),
        ("GPT2TokenizerFast", Split::Gpt2),
        ("CodeGenTokenizer", Split::Gpt2),
        ("CodeGenTokenizerFast", Split::Gpt2),
        ("Qwen2Tokenizer", Split::Qwen2),
        ("Qwen2TokenizerFast", Split::Qwen2),
        ("DreamTokenizer", Split::Qwen2),
    ] {
        let config = format!(r#"{{"tokenizer_class":"{class}"}}"#);
        let class_alone = ("tokenizer_config.json", config.as_str());
        assert_eq!(of(&[class_alone]), split, "{class}");
        let model = ("config.json", r#"{"model_type":"qwen2"}"#);
        assert_eq!(of(&[class_alone, model]), split, "{class} in a directory of Qwen2");
    }
    for (model, split) in
        [("qwen2", Split::Qwen2), ("qwen3", Split::Qwen2), ("Dream", Split::Qwen2), ("gpt2", Split::Gpt2)]
    {
        let config = format!(r#"{{"model_type":"{model}"}}"#);
        assert_eq!(of(&[("config.json", config.as_str())]), split, "{model}");
    }
}

#[test]
fn the_older_files_count_only_if_the_newer_one_lists_no_tokens() {
    let load = |config: &str| {
        load(&[
            ("added_tokens.json", r#"{"<x>":701}"#),
            ("special_tokens_map.json", r#"{"eos_token":"<x>"}"#),
            ("tokenizer_config.json", config),
        ])
    };
    assert_eq!(load("{}").id("<x>"), Some(701));
    assert_eq!(load(r#"{"added_tokens_decoder":{}}"#).id("<x>"), None);
    // Of the two files that name a token by role, the older one decides.
    let tokenizer = load(r#"{"add_eos_token":true,"eos_token":"!"}"#);
    assert_eq!(tokenizer.suffix_ids(), [701]);
}

#[test]
fn tokens_listed_by_the_model_are_special() {
    let config = r#"{"additional_special_tokens":["<x>"],
        "extra_special_tokens":{"image_token":"<image>","audio_token":{"content":"<audio>"}}}"#;
    let tokenizer = load(&[("tokenizer_config.json", config)]);
    for name in ["<x>", "<image>", "<audio>"] {
        let id = tokenizer.id(name).expect(name);
        assert_eq!(tokenizer.encode(name, false).unwrap(), [id]);
        assert_eq!(tokenizer.decode(&[id], true).unwrap(), "");
    }
    let listed = load(&[("tokenizer_config.json", r#"{"extra_special_tokens":["<y>"]}"#)]);
    assert_eq!(listed.id("<y>"), Some(701));
}

#[test]
fn bos_and_eos_have_the_defaults_of_their_class() {
    let load = |config: &str| load(&[("tokenizer_config.json", config)]);
    let gpt2 = load(r#"{"add_bos_token":true,"add_eos_token":true}"#);
    assert_eq!((gpt2.prefix_ids(), gpt2.suffix_ids()), (&[700][..], &[700][..]));
    let qwen2 = load(r#"{"tokenizer_class":"Qwen2Tokenizer","add_bos_token":true,"add_eos_token":true}"#);
    assert_eq!((qwen2.prefix_ids(), qwen2.suffix_ids()), (&[][..], &[700][..]));
    let none = load(r#"{"add_bos_token":null,"add_eos_token":true,"eos_token":null}"#);
    assert_eq!((none.prefix_ids(), none.suffix_ids()), (&[][..], &[][..]));
    // A token that is explicitly absent is not special either.
    assert_ne!(none.decode(&[700], true).unwrap(), "");
}

#[test]
fn a_vocabulary_without_the_default_token_does_not_get_it() {
    let dir = TempDir::new().unwrap();
    for name in ["vocab.json", "merges.txt"] {
        fs::copy(fixtures::path("dream").join(name), dir.path().join(name)).unwrap();
    }
    let tokenizer = Tokenizer::from_dir(dir.path()).unwrap();
    assert_eq!((tokenizer.vocab_size(), tokenizer.id("<|endoftext|>")), (700, None));
}

#[test]
fn a_file_that_cannot_be_read_is_not_a_missing_one() {
    let dir = directory(&[]);
    fs::create_dir(dir.path().join("tokenizer.json")).unwrap();
    let error = Tokenizer::from_dir(dir.path()).unwrap_err();
    assert!(
        matches!(&error, TokenizerError::Read { path, .. } if path.ends_with("tokenizer.json")),
        "{error:?}"
    );
}

#[test]
fn only_the_version_is_a_comment_in_a_list_of_merges() {
    let vocab = br###"{"#":0,"##":1}"###;
    for merges in ["#version: 0.2\n# #\n", "#version: 0.2\r\n# #\r\n", "# #", "\n#version: 0.2\n\n# #\n\n"] {
        let options = ByteLevelOptions::default();
        let tokenizer =
            Tokenizer::from_vocab_and_merges("made by hand", vocab, merges.as_bytes(), &options).unwrap();
        assert_eq!(tokenizer.encode("###", false).unwrap(), [1, 0], "{merges:?}");
    }
}

#[test]
fn a_missing_token_around_a_text_is_told_with_its_place() {
    let [vocab, merges] =
        ["vocab.json", "merges.txt"].map(|name| fs::read(fixtures::path("gpt2").join(name)).unwrap());
    let missing = || vec!["<x>".to_owned()];
    for (options, place) in [
        (ByteLevelOptions { prefix: missing(), ..ByteLevelOptions::default() }, "the beginning of a text"),
        (ByteLevelOptions { suffix: missing(), ..ByteLevelOptions::default() }, "the end of a text"),
    ] {
        let error = Tokenizer::from_vocab_and_merges("made by hand", &vocab, &merges, &options).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{place} needs the token `<x>`")), "{error}");
    }
}

#[test]
fn every_token_with_a_role_is_special() {
    let config =
        r#"{"unk_token":"<u>","sep_token":"<s>","pad_token":"<p>","cls_token":"<c>","mask_token":"<m>"}"#;
    let tokenizer = load(&[("tokenizer_config.json", config)]);
    for (id, token) in (701..).zip(["<u>", "<s>", "<p>", "<c>", "<m>"]) {
        assert_eq!(tokenizer.encode(token, false).unwrap(), [id], "{token}");
        assert_eq!(tokenizer.decode(&[id], true).unwrap(), "", "{token}");
    }
}

/// The role of a token changes nothing of how the list of added tokens describes it.
#[test]
fn a_token_with_a_role_keeps_its_flags() {
    let config = r#"{"mask_token":"<m>",
        "added_tokens_decoder":{"701":{"content":"<m>","special":true,"lstrip":true,"normalized":false}}}"#;
    let tokenizer = load(&[("tokenizer_config.json", config)]);
    let a = tokenizer.encode("a", false).unwrap();
    assert_eq!(tokenizer.encode("a   <m>", false).unwrap(), [&a[..], &[701]].concat());
}

/// A token of `added_tokens.json` is found in the normal form of a text, unless it has a role.
#[test]
fn added_tokens_without_a_role_are_plain() {
    let load = |special: &str| {
        load(&[
            ("tokenizer_config.json", r#"{"tokenizer_class":"Qwen2Tokenizer"}"#),
            ("added_tokens.json", "{\"<\u{e9}>\":701,\"<x>\":702}"),
            ("special_tokens_map.json", special),
        ])
    };
    let (composed, decomposed) = ("<\u{e9}>", "<e\u{301}>");
    let plain = load("{}");
    assert_eq!(plain.encode(composed, false).unwrap(), [701]);
    assert_eq!(plain.encode(decomposed, false).unwrap(), [701]);
    assert_eq!(plain.decode(&[702], true).unwrap(), "<x>");
    let special = load("{\"pad_token\":\"<\u{e9}>\",\"sep_token\":\"<x>\"}");
    assert_eq!(special.encode(composed, false).unwrap(), [701]);
    assert_ne!(special.encode(decomposed, false).unwrap(), [701], "special tokens are found as written");
    assert_eq!(special.decode(&[702], true).unwrap(), "");
}
