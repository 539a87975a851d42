//! Unusual combinations of settings, and positions that are not safe ends of a cached prefix.

use crate::fixtures::{library, load};
use crate::forms::{self, named};
use crate::vocabulary::bytes;
use redline_tokenizer::{Beginning, Encoder, Encoding, PrefixCacheOptions, Tokenizer};
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

/// A beginning belongs to the texts that begin with it. A text that is shorter is encoded as a whole.
#[test]
fn a_text_shorter_than_a_beginning_is_encoded_without_it() {
    let tokenizer = load(&form("gpt2"));
    let beginning = tokenizer.begin("the river runs along the old road to the sea").unwrap();
    assert_ne!(beginning, Beginning::default());
    for text in ["", "the", "the river"] {
        let expected = tokenizer.encode(text, true).unwrap();
        assert_eq!(tokenizer.encode_after(&beginning, text, true).unwrap(), expected, "{text:?}");
    }
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

/// The normalised text has no spaces. The native encoder writes marks as spaces, so it must not find such a token.
#[test]
fn a_token_with_a_space_is_not_one_with_a_mark() {
    for name in ["llama2", "gemma", "mistral first split false"] {
        let mut value = with_tokens(bare(name), &[" zq", "a zq", "zq "]);
        value["model"]["ignore_merges"] = true.into();
        check(&value, &["zq", " zq", "a zq", "zq zq", "zq "]);
    }
}

#[test]
fn a_split_that_removes_what_is_no_word_keeps_every_word() {
    for name in ["llama3", "qwen2", "o200k", "tekken"] {
        let mut value = form(name);
        let split = &mut value["pre_tokenizer"]["pretokenizers"][0];
        (split["behavior"], split["invert"]) = ("Removed".into(), true.into());
        assert_eq!(load(&value).encoder(), Encoder::Native, "{name}");
        check(&value, &["The river's 12345 boats,\n\n  they're  GOING // ", " ", ""]);
    }
}

#[test]
fn tokens_of_one_normal_form_are_refused() {
    let mut value = form("qwen2");
    let next = load(&value).vocab_size();
    for (id, content) in (next..).zip(["z\u{e9}", "ze\u{301}"]) {
        value["added_tokens"].as_array_mut().unwrap().push(json!({ "id": id, "content": content,
            "special": false, "normalized": true, "single_word": false, "lstrip": false, "rstrip": false }));
    }
    let error = Tokenizer::from_bytes("fixture", value.to_string().as_bytes()).unwrap_err();
    assert!(error.to_string().contains("have the same normal form"), "{error}");
}

/// `BertProcessing` adds ids as `RobertaProcessing` does, but trims no offsets; two that trim do so one after the other.
#[test]
fn each_processor_trims_offsets_by_its_own_rule() {
    let texts = ["the river runs", " the  river ", "\n the\n"];
    let mut value = form("gpt2");
    let bos = json!([value["added_tokens"][0]["content"], value["added_tokens"][0]["id"]]);
    value["post_processor"] = json!({ "type": "BertProcessing", "sep": bos, "cls": bos });
    check(&value, &texts);
    for (first, then) in [(true, true), (true, false), (false, true)] {
        let processors = [bytes(false, first, true), bytes(true, then, true)];
        value["post_processor"] = json!({ "type": "Sequence", "processors": processors });
        check(&value, &texts);
    }
    let twice = [bytes(false, true, true), bytes(false, true, true)];
    value["post_processor"] = json!({ "type": "Sequence", "processors": twice });
    check(&value, &texts);
}

/// Two texts with the ids around them and their types, as the library has them.
#[test]
fn two_texts_are_put_together_as_the_post_processor_says() {
    let mut value = form("gpt2");
    let [name, id] =
        [&value["added_tokens"][0]["content"], &value["added_tokens"][0]["id"]].map(Clone::clone);
    let special = |kind: usize| json!({ "SpecialToken": { "id": name, "type_id": kind } });
    let text = |which: &str, kind: usize| json!({ "Sequence": { "id": which, "type_id": kind } });
    let template = |pair: Vec<Value>| {
        let tokens = json!({ name.as_str().unwrap(): { "id": name, "ids": [id], "tokens": [name] } });
        json!({ "type": "TemplateProcessing", "single": [text("A", 0)], "pair": pair, "special_tokens": tokens })
    };
    let bos = json!([name, id]);
    let roberta = json!({ "type": "RobertaProcessing", "sep": bos, "cls": bos, "trim_offsets": false,
        "add_prefix_space": false });
    let known = [
        Value::Null,
        json!({ "type": "BertProcessing", "sep": bos, "cls": bos }),
        roberta,
        template(vec![special(0), text("A", 0), special(0), text("B", 1), special(1)]),
        template(vec![text("A", 0), special(0), special(1), text("B", 1)]),
        template(vec![special(0), text("A", 0), special(0), special(0), text("B", 0), special(0)]),
    ];
    for processor in known {
        value["post_processor"] = processor;
        let (ours, theirs) = (load(&value), library(&value));
        let pair = ours.pair().unwrap_or_else(|| panic!("{}", value["post_processor"]));
        let [first, second] = ["who runs", "the river"].map(|text| ours.encode(text, false).unwrap());
        let expected = theirs.encode(("who runs", "the river"), true).unwrap();
        let ids = [&pair.before[..], &first, &pair.between, &second, &pair.after].concat();
        assert_eq!(ids, expected.get_ids(), "{}", value["post_processor"]);
        let start = pair.before.len() + first.len() + pair.first_of_between;
        let types = (0..ids.len()).map(|at| u32::from(pair.has_types && at >= start)).collect::<Vec<_>>();
        assert_eq!(types, expected.get_type_ids(), "{}", value["post_processor"]);
    }
    // Forms that two types cannot describe are none: the tokenizer is for single texts.
    for pair in [
        vec![text("B", 0), text("A", 1)],
        vec![text("A", 1), text("B", 1)],
        vec![text("A", 0), text("B", 2)],
        vec![text("A", 0)],
        vec![text("A", 0), text("B", 1), text("B", 1)],
    ] {
        value["post_processor"] = template(pair);
        assert_eq!(load(&value).pair(), None);
    }
}

/// Each part that is named as supported loads, and has the effect that it has in the reference.
#[test]
fn every_supported_normaliser_and_pre_tokeniser_works() {
    let texts = ["", "  Hello, W\u{f6}rld 123 times ", "cafe\u{301} \u{fb01}ne\u{3000}- it's so\n"];
    let replace = json!({ "type": "Replace", "pattern": { "Regex": "[0-9]" }, "content": "n" });
    for normalizer in [
        json!({ "type": "NFC" }),
        json!({ "type": "NFD" }),
        json!({ "type": "NFKC" }),
        json!({ "type": "NFKD" }),
        json!({ "type": "Lowercase" }),
        json!({ "type": "Prepend", "prepend": "x" }),
        json!({ "type": "Strip", "strip_left": true, "strip_right": true }),
        json!({ "type": "Sequence", "normalizers": [replace, { "type": "Lowercase" }] }),
    ] {
        let mut value = bare("llama2");
        value["normalizer"] = normalizer;
        check(&value, &texts);
    }
    let split =
        json!({ "type": "Split", "pattern": { "String": "l" }, "behavior": "Isolated", "invert": false });
    for pre_tokenizer in [
        bytes(true, true, true),
        json!({ "type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": true }),
        json!({ "type": "Digits", "individual_digits": true }),
        json!({ "type": "Punctuation", "behavior": "Isolated" }),
        json!({ "type": "Whitespace" }),
        json!({ "type": "WhitespaceSplit" }),
        json!({ "type": "Sequence", "pretokenizers": [split, { "type": "Digits", "individual_digits": false }] }),
    ] {
        let mut value = bare("llama2");
        (value["normalizer"], value["pre_tokenizer"]) = (Value::Null, pre_tokenizer);
        check(&value, &texts);
    }
}

#[test]
fn the_library_as_encoder_finds_added_tokens_and_trims_offsets_as_the_reference() {
    for name in [
        "gpt2 with a space before with added tokens of every kind",
        "llama2 with added tokens of every kind",
        "qwen2 with added tokens of every kind",
        "gpt2, bytes, trim true, space true",
        "qwen2, Roberta, trim true, space false",
    ] {
        let form = named(name);
        let json = form.json.to_string();
        let ours = Tokenizer::from_bytes_with(name, json.as_bytes(), Encoder::Library).unwrap();
        let texts = form.added.iter().flat_map(|token| [format!("a  {token}  b"), format!("x{token}s the")]);
        for text in texts {
            let expected = form.library.encode(text.as_str(), true).unwrap();
            let Encoding { ids, offsets } = ours.encode_with_offsets(&text, true).unwrap();
            assert_eq!(ids, expected.get_ids(), "{name}: {text:?}");
            let places: Vec<_> = expected.get_offsets().iter().map(|(start, end)| *start..*end).collect();
            assert_eq!(offsets, places, "{name}: {text:?}");
        }
    }
}

#[test]
fn of_a_merge_written_twice_the_last_counts() {
    let once = with_merge(with_merge(bare("gpt2"), "q", "z"), "z", "x");
    let twice = with_merge(once.clone(), "q", "z");
    for (value, parts) in [(once, ["qz", "x"]), (twice, ["q", "zx"])] {
        check(&value, &["qzx", "a qzx"]);
        let ours = load(&value);
        assert_eq!(ours.encode("qzx", false).unwrap(), parts.map(|part| ours.id(part).unwrap()));
    }
}

/// It is longer than the words that are cached.
#[test]
fn the_longest_token_is_found_as_a_whole_word() {
    let longest = "zq".repeat(40);
    let shorter = "zq".repeat(30);
    let value = with_tokens(bare("llama3"), &[&longest, &shorter]);
    let ours = load(&value);
    assert_eq!((ours.encoder(), &value["model"]["ignore_merges"]), (Encoder::Native, &json!(true)));
    for word in [&longest, &shorter] {
        assert_eq!(ours.encode(word, false).unwrap(), [ours.id(word).unwrap()]);
        check(&value, &[word.as_str(), &format!("{word}z {word}"), &word[1..]]);
    }
}

#[test]
fn zeros_at_the_end_of_a_word_belong_to_it() {
    for name in ["gpt2", "qwen2", "o200k"] {
        let value = bare(name);
        let texts = ["!", "!\0", "!\0\0", "!", "\0", "\0\0", "a!\0 b!\0\0 c!"];
        check(&value, &texts);
        assert_eq!(load(&value).encode("!\0\0\0", false).unwrap().len(), 4, "{name}");
    }
}

/// A part that does not begin a word, or that ends it, is another token than the same text elsewhere.
#[test]
fn parts_of_words_may_have_tokens_of_their_own() {
    let vocab = json!({ "<unk>": 0, "a": 1, "b": 2, "##a": 3, "##b": 4, "a</w>": 5, "b</w>": 6, "##a</w>": 7,
        "##b</w>": 8, "ab": 9, "ab</w>": 10, "aba</w>": 11 });
    let value = json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": { "type": "WhitespaceSplit" },
        "post_processor": null,
        "decoder": null,
        "model": {
            "type": "BPE", "unk_token": "<unk>", "continuing_subword_prefix": "##", "end_of_word_suffix": "</w>",
            "vocab": vocab, "merges": [["a", "##b"], ["a", "##b</w>"], ["ab", "##a</w>"]],
        },
    });
    check(&value, &["ab aba a abab b", "bab", "abc", ""]);
    let ours = load(&value);
    assert_eq!(ours.encode("a ab aba", false).unwrap(), [5, 10, 11]);
}

#[test]
fn a_reason_shows_no_more_than_the_beginning_of_a_long_setting() {
    let mut value = bare("gpt2");
    value["pre_tokenizer"] = json!({ "type": "Split", "pattern": { "String": "é".repeat(200) },
        "behavior": "Isolated", "invert": false });
    let ours = load(&value);
    let shown: String = value["pre_tokenizer"].to_string().chars().take(160).collect();
    assert_eq!(ours.fallback().unwrap(), format!("its pre_tokenizer is not covered: {shown}..."));
}

#[test]
fn the_reason_names_what_of_a_model_is_not_covered() {
    let reason = |value: &Value| load(value).fallback().map(str::to_owned);
    let without = |name: &str, part: char| {
        let mut value = bare(name);
        value["model"]["merges"].as_array_mut().unwrap().retain(|merge| !merge.to_string().contains(part));
        value["model"]["vocab"].as_object_mut().unwrap().retain(|token, _| !token.contains(part));
        value
    };
    let mut value = bare("gpt2");
    value["model"]["continuing_subword_prefix"] = json!("");
    value["model"]["end_of_word_suffix"] = json!("");
    assert_eq!(reason(&value), None, "GPT-2 states both as empty");
    value["model"]["end_of_word_suffix"] = json!("</w>");
    assert_eq!(reason(&value).unwrap(), "its `end_of_word_suffix` \"</w>\" is not covered");
    assert_eq!(reason(&without("gpt2", 'Ċ')).unwrap(), "byte 0x0a has no token, which is not covered");
    assert_eq!(reason(&without("gemma", '▁')).unwrap(), "`▁` is no token, which is not covered");
    let mut value = bare("gemma");
    value["model"]["vocab"].as_object_mut().unwrap().remove("<0x0A>").unwrap();
    assert_eq!(reason(&value).unwrap(), "`<0x0A>` is no token, which is not covered");
}
