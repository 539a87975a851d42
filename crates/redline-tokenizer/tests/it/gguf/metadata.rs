//! Metadata that is damaged, hostile or says something else than the defaults.

use super::small::{NAMES, Small};
use redline_tokenizer::{ChatMessage, Conversation, GapTokens, GgufVocabulary, TokenizerError};

fn vocabulary(name: &'static str) -> GgufVocabulary {
    Small::read(name).vocabulary()
}

/// The message of the error after a change.
fn fault(name: &'static str, change: impl FnOnce(&mut GgufVocabulary)) -> String {
    let mut vocabulary = vocabulary(name);
    change(&mut vocabulary);
    let error = vocabulary.tokenizer("model.gguf").unwrap_err();
    assert!(error.hint().is_some(), "{error}");
    let text = error.to_string();
    assert!(text.ends_with("in `model.gguf`"), "{text}");
    text
}

fn check(name: &'static str, change: impl FnOnce(&mut GgufVocabulary), parts: &[&str]) {
    let text = fault(name, change);
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

#[test]
fn gguf_models_that_cannot_be_read_are_named() {
    for model in ["rwkv", "plamo2", "none", "no_vocab", "whitespace", "hybriddna", "", "GPT2"] {
        let parts =
            ["tokenizer.ggml.model", &format!("`{model}`"), "`gpt2`, `gemma4`, `llama`, `bert`, `t5`"];
        check("llama", |vocabulary| vocabulary.model = model.to_owned(), &parts);
    }
    let parts = ["tokenizer.ggml.pre", "`my-own`", "`llama-bpe`"];
    check("qwen2", |vocabulary| vocabulary.pre = Some("my-own".to_owned()), &parts);
}

#[test]
fn gguf_lengths_and_numbers_are_checked() {
    let size = vocabulary("llama").tokens.len();
    check("llama", |v| v.tokens.clear(), &["tokenizer.ggml.tokens", "no tokens"]);
    let parts = ["tokenizer.ggml.scores", &format!("{} values for {size} tokens", size - 1)];
    check("llama", |v| v.scores.as_mut().unwrap().truncate(size - 1), &parts);
    let parts = ["tokenizer.ggml.token_type", &format!("{} values for {size} tokens", size + 1)];
    check("llama", |v| v.types.as_mut().unwrap().push(1), &parts);
    check(
        "llama",
        |v| v.scores.as_mut().unwrap()[7] = f32::NAN,
        &["tokenizer.ggml.scores", "token 7 is NaN"],
    );
    check("llama", |v| v.scores.as_mut().unwrap()[8] = f32::INFINITY, &["token 8 is inf"]);
    check(
        "llama",
        |v| v.types.as_mut().unwrap()[9] = 7,
        &["tokenizer.ggml.token_type", "token 9 has type 7"],
    );
    check("llama", |v| v.types.as_mut().unwrap()[9] = -1, &["token 9 has type -1"]);
    let parts = ["tokenizer.ggml.eos_token_id", &format!("it is {size}, but the file has {size} tokens")];
    check("llama", |v| v.special.eos = Some(size as u32), &parts);
    check("qwen2", |v| v.special.eot = Some(u32::MAX), &["tokenizer.ggml.eot_token_id", "4294967295"]);
    let parts = ["tokenizer.ggml.tokens", "`<s>` has two ids, 1 and 300"];
    check("llama", |v| v.tokens[300] = "<s>".to_owned(), &parts);
}

#[test]
fn gguf_parts_that_a_model_needs_are_named() {
    check("llama", |v| v.scores = None, &["tokenizer.ggml.scores", "missing"]);
    check("qwen2", |v| v.merges = None, &["tokenizer.ggml.merges", "missing"]);
    check("t5", |v| v.scores = None, &["tokenizer.ggml.scores", "missing"]);
    let without_unknown = |v: &mut GgufVocabulary| {
        v.special.unk = None;
        v.types.as_mut().unwrap()[2] = 3;
    };
    check("t5", without_unknown, &["tokenizer.ggml.unknown_token_id", "missing"]);
    let renamed = |v: &mut GgufVocabulary| {
        v.special.sep = None;
        v.tokens[3] = "[END]".to_owned();
    };
    check("bert", renamed, &["tokenizer.ggml.seperator_token_id", "`[SEP]`"]);
    let nameless = |v: &mut GgufVocabulary| {
        v.special.bos = None;
        v.add_bos = Some(true);
    };
    check("qwen2", nameless, &["tokenizer.ggml.add_bos_token", "no such token"]);
}

#[test]
fn gguf_merges_are_checked() {
    let merge = |text: &str| {
        let text = text.to_owned();
        move |v: &mut GgufVocabulary| v.merges.as_mut().unwrap()[4] = text
    };
    for text in ["", " ", "a", "a ", "  "] {
        check("qwen2", merge(text), &["tokenizer.ggml.merges", "merge 5", &format!("`{text}`")]);
    }
    check("qwen2", merge("a nothing"), &["merge 5", "`a nothing`", "token `nothing`"]);
    check("qwen2", merge("Q Z"), &["merge 5", "token `QZ`"]);
}

#[test]
fn gguf_charsmaps_are_checked() {
    let key = "tokenizer.ggml.precompiled_charsmap";
    check("t5", |v| v.precompiled_charsmap = vec![1], &[key, "1 bytes"]);
    check("t5", |v| v.precompiled_charsmap.truncate(50), &[key, "of 46"]);
    check("t5", |v| v.precompiled_charsmap.push(0xff), &[key, "UTF-8"]);
    // Every single damaged byte is either found or harmless.
    let good = vocabulary("t5");
    let ends: Vec<usize> = (0..good.precompiled_charsmap.len()).step_by(97).collect();
    for at in ends {
        let mut vocabulary = good.clone();
        vocabulary.precompiled_charsmap[at] ^= 0x55;
        if let Ok(tokenizer) = vocabulary.tokenizer("model.gguf") {
            tokenizer.encode("ﬁve Ａ ①\t\u{200b}\u{a0}é 😀 the end", true).unwrap();
        }
    }
}

#[test]
fn gguf_work_is_proportional_to_the_file() {
    // A token that could be split at a million places.
    let long = |v: &mut GgufVocabulary| v.tokens[300] = "a".repeat(1 << 20);
    check("llama", long, &["tokenizer.ggml.tokens", "token 300 has 1048576 bytes"]);
    // Runs of letters can be split almost everywhere: those of one letter have merges of 5 MB.
    let with_runs = |letters: std::ops::RangeInclusive<char>| {
        let mut vocabulary = vocabulary("llama");
        let runs = letters.flat_map(|letter| (6..=250).map(move |len| letter.to_string().repeat(len)));
        vocabulary.tokens.extend(runs);
        let size = vocabulary.tokens.len();
        vocabulary.scores.as_mut().unwrap().resize(size, -5.0);
        vocabulary.types.as_mut().unwrap().resize(size, 1);
        vocabulary
    };
    let tokenizer = with_runs('a'..='c').tokenizer("model.gguf").unwrap();
    let text = "a".repeat(250);
    assert_eq!(tokenizer.decode(&tokenizer.encode(&text, false).unwrap(), false).unwrap(), text);
    let error = with_runs('\u{4e00}'..='\u{4f00}').tokenizer("model.gguf").unwrap_err().to_string();
    assert!(error.contains("token") && error.contains("bytes"), "{error}");
    let error = with_runs('A'..='~').tokenizer("model.gguf").unwrap_err().to_string();
    assert!(error.contains("take more than 268435456 bytes"), "{error}");
}

#[test]
fn gguf_empty_tokens_and_fillers_are_not_found_in_texts() {
    let mut vocabulary = vocabulary("llama");
    let size = vocabulary.tokens.len();
    vocabulary.tokens[400] = String::new();
    let tokenizer = vocabulary.tokenizer("model.gguf").unwrap();
    // The filler at the end is not a token.
    assert_eq!(tokenizer.vocab_size(), size - 1);
    assert_eq!(tokenizer.token(400).unwrap(), "[EMPTY_400]");
    let filler = format!("[PAD{}]", size - 1);
    assert!(tokenizer.encode(&filler, false).unwrap().len() > 1);
}

#[test]
fn gguf_bos_and_eos_are_added_as_the_file_says() {
    let ids = |name: &'static str, add_bos: Option<bool>, add_eos: Option<bool>| {
        let vocabulary = GgufVocabulary { add_bos, add_eos, ..vocabulary(name) };
        let tokenizer = vocabulary.tokenizer(name).unwrap();
        [tokenizer.prefix_ids(), tokenizer.suffix_ids()].map(<[u32]>::len)
    };
    let defaults = NAMES.map(|name| ids(name, None, None));
    assert_eq!(defaults, [[1, 0], [0, 0], [0, 0], [0, 0], [1, 0], [1, 0], [1, 1], [0, 1]]);
    for name in ["llama-bpe", "qwen2", "llama", "gemma4", "bert"] {
        // Converters wrote that Gemma 4 needs no BOS, which it does.
        assert_eq!(ids(name, Some(false), Some(false)), [usize::from(name == "gemma4"), 0], "{name}");
        assert_eq!(ids(name, Some(true), Some(true)), [1, 1], "{name}");
    }
}

#[test]
fn gguf_types_may_be_absent() {
    let vocabulary = GgufVocabulary { types: None, ..vocabulary("llama") };
    let tokenizer = vocabulary.tokenizer("model.gguf").unwrap();
    assert_eq!(tokenizer.encode("a</s>", false).unwrap().last(), Some(&2));
    assert_eq!(tokenizer.decode(&[2], true).unwrap(), "");
}

#[test]
fn gguf_phi3_tokens_take_whitespace_on_their_right() {
    let name = Some("Phi-3 mini".to_owned());
    let vocabulary = GgufVocabulary { name, ..vocabulary("llama") };
    let tokenizer = vocabulary.tokenizer("model.gguf").unwrap();
    let strips = |token: &str| {
        let ids = |text: String| tokenizer.encode(&text, false).unwrap();
        ids(format!("{token}  a")) == ids(format!("{token}a"))
    };
    assert_eq!(["<start>", "</s>", "<s>"].map(strips), [true, true, false]);
}

#[test]
fn gguf_ends_are_known_by_id_and_by_name() {
    let ends = |name: &'static str, change: &dyn Fn(&mut GgufVocabulary)| -> Vec<String> {
        let mut vocabulary = vocabulary(name);
        change(&mut vocabulary);
        let ids = vocabulary.end_ids("model.gguf").unwrap();
        assert!(ids.is_sorted());
        ids.into_iter().map(|id| vocabulary.tokens[id as usize].clone()).collect()
    };
    assert_eq!(ends("llama", &|_| {}), ["</s>"]);
    assert_eq!(ends("qwen2", &|_| {}), ["<|im_end|>"]);
    assert_eq!(ends("qwen2", &|v| v.special.eos = v.special.bos), ["<|begin_of_text|>", "<|im_end|>"]);
    assert_eq!(ends("llama", &|v| v.special.eot = Some(300)).len(), 2);
    assert_eq!(ends("llama", &|v| v.tokens[301] = "<end_of_turn>".to_owned()), ["</s>", "<end_of_turn>"]);
    // Parts of an answer end with `<|end|>` where calls end with a token of their own.
    let harmony = |v: &mut GgufVocabulary| {
        for (id, token) in [(301, "<|end|>"), (302, "<|return|>"), (303, "<|call|>")] {
            v.tokens[id] = token.to_owned();
        }
    };
    assert_eq!(ends("llama", &harmony), ["</s>", "<|return|>", "<|call|>"]);
    assert_eq!(ends("llama", &|v| v.tokens[301] = "<|end|>".to_owned()), ["</s>", "<|end|>"]);
    // A normal token `</s>` is HTML.
    let html = |v: &mut GgufVocabulary| {
        v.special.eos = Some(1);
        v.types.as_mut().unwrap()[2] = 1;
    };
    assert_eq!(ends("llama", &html), ["<s>"]);
    // A token that ends a turn is special, whatever the file says.
    let mut vocabulary = vocabulary("llama");
    vocabulary.tokens[301] = "<end_of_turn>".to_owned();
    let tokenizer = vocabulary.tokenizer("model.gguf").unwrap();
    assert_eq!(tokenizer.encode("<end_of_turn>", false).unwrap(), [301]);
    assert_eq!(tokenizer.decode(&[301], true).unwrap(), "");
}

#[test]
fn gguf_keys_name_the_tokens_around_a_gap_before_the_vocabulary_does() {
    let mut vocabulary = vocabulary("llama");
    let gap = |of: &GgufVocabulary| of.tokenizer("model.gguf").unwrap().gap_tokens();
    assert_eq!(gap(&vocabulary), None);
    for (id, token) in [(301, "<fim_prefix>"), (302, "<fim_suffix>"), (303, "<fim_middle>")] {
        vocabulary.tokens[id] = token.to_owned();
    }
    let of = |gap: GapTokens| (gap.prefix, gap.suffix, gap.middle, gap.ends);
    assert_eq!(gap(&vocabulary).map(of), Some((301, 302, Some(303), vec![])));
    (vocabulary.special.fim_pre, vocabulary.special.fim_suf) = (Some(304), Some(305));
    assert_eq!(gap(&vocabulary).map(of), Some((301, 302, Some(303), vec![])), "one key is missing");
    (vocabulary.special.fim_mid, vocabulary.special.fim_pad) = (Some(306), Some(307));
    assert_eq!(gap(&vocabulary).map(of), Some((304, 305, Some(306), vec![307])));
}

#[test]
fn gguf_chat_templates() {
    let mut vocabulary = vocabulary("llama");
    assert!(vocabulary.chat_template("model.gguf").unwrap().is_none());
    let mut enter = |name: &str, text: &str| {
        vocabulary.chat_templates.insert(name.to_owned(), text.to_owned());
        vocabulary.chat_template("model.gguf")
    };
    let error = enter("tool_use", "tools").unwrap_err().to_string();
    assert!(error.contains("tokenizer.chat_template"), "{error}");
    enter("rag", "{% not read %}").unwrap_err();
    let template =
        enter("default", "{{ bos_token }}{{ messages[0]['content'] }}{{ eos_token }}").unwrap().unwrap();
    let messages = vec![ChatMessage::new("user", "hi")];
    let text = template.render(&Conversation { messages, ..Conversation::default() }).unwrap();
    assert_eq!(text, "<s>hi</s>");
    let error = enter("default", "{% broken").unwrap_err().to_string();
    assert!(error.contains("model.gguf: tokenizer.chat_template"), "{error}");
}

/// Every name of a rule gives a tokenizer whose texts come back.
#[test]
fn gguf_every_pre_tokenizer_splits() {
    let mut vocabulary = vocabulary("llama-bpe");
    vocabulary.pre = Some("unknown".to_owned());
    let Err(TokenizerError::Unsupported { known, .. }) = vocabulary.tokenizer("model.gguf") else { panic!() };
    let names: Vec<&str> =
        known.split('`').filter(|name| !name.trim_matches([',', ' ']).is_empty()).collect();
    assert!(names.len() > 80 && names.is_sorted(), "{names:?}");
    let text = "It's the weights' 1234567 tokens!  你好,世界 ١٢٣٤ naïve ЖУК's\r\n\r\n\tfn main() { }  \n 3 33 ½ かな 안녕 IMGIMGABZ";
    for name in names {
        vocabulary.pre = Some(name.to_owned());
        let tokenizer = vocabulary.tokenizer(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        if ["gemma4", "granite-embed-multi-311m", "sarvam-moe"].contains(&name) {
            continue;
        }
        let ids = tokenizer.encode(text, false).unwrap();
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text, "{name}");
    }
}

#[test]
fn gguf_files_without_a_rule_give_a_warning() {
    let mut vocabulary = vocabulary("llama-bpe");
    assert_eq!(vocabulary.warning(), None);
    vocabulary.pre = None;
    assert!(vocabulary.warning().unwrap().contains("tokenizer.ggml.pre"));
    vocabulary.tokenizer("model.gguf").unwrap();
}

/// The document is a `tokenizer.json` that the reference library reads as well, with the same ids.
#[test]
fn gguf_documents_are_read_by_the_reference_library() {
    for name in NAMES {
        let vocabulary = vocabulary(name);
        let library = tokenizers::Tokenizer::from_bytes(vocabulary.tokenizer_json(name).unwrap()).unwrap();
        let tokenizer = vocabulary.tokenizer(name).unwrap();
        for text in ["It's the engine's <start> weights. </s>ﬁ", "你好 [MASK] <|im_end|>\n\n 12", ""] {
            let expected = library.encode(text, true).unwrap();
            assert_eq!(tokenizer.encode(text, true).unwrap(), expected.get_ids(), "{name}: {text:?}");
            let ids = expected.get_ids();
            assert_eq!(tokenizer.decode(ids, false).unwrap(), library.decode(ids, false).unwrap(), "{name}");
        }
    }
}
