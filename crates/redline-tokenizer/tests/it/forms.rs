//! Small tokenizers in the form of each family, loaded by this crate and by the reference library.

use crate::dice::Dice;
use crate::fixtures;
use crate::vocabulary::{CL100K_WORDS, O200K_WORDS, bytes, every_split, flagged, split_bytes};
use redline_tokenizer::Tokenizer;
use serde_json::{Value, json};
use std::sync::LazyLock;

const QWEN2_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// o200k without contractions, with single digits.
const TEKKEN_WORDS: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|",
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// The same tokenizer in both implementations.
pub(crate) struct Form {
    pub(crate) name: String,
    pub(crate) json: Value,
    pub(crate) ours: Tokenizer,
    pub(crate) library: tokenizers::Tokenizer,
    /// The written forms of its added tokens.
    pub(crate) added: Vec<String>,
}

impl Form {
    pub(crate) fn new(name: impl Into<String>, json: Value) -> Self {
        let contents = json["added_tokens"].as_array().into_iter().flatten();
        let added = contents.filter_map(|token| token["content"].as_str().map(str::to_owned)).collect();
        let (ours, library) = (fixtures::load(&json), fixtures::library(&json));
        Self { name: name.into(), json, ours, library, added }
    }
}

/// The families with a byte-level vocabulary.
pub(crate) static BYTE_LEVEL: LazyLock<Vec<Form>> = LazyLock::new(|| {
    let mut forms = vec![
        Form::new("gpt2", gpt2()),
        Form::new("gpt2 with a space before", gpt2_prefixed()),
        Form::new("llama3", llama3()),
        Form::new("llama3 converted", converted(llama3())),
        Form::new("llama3 with unreachable tokens", unreachable(llama3())),
        Form::new("qwen2", qwen2()),
        Form::new("o200k", o200k()),
        Form::new("tekken", tekken()),
        Form::new("gpt2 converted", converted(gpt2())),
        Form::new(
            "gpt2 with merges in any order",
            with_merges(gpt2(), |merges| Dice::new(7).shuffle(merges)),
        ),
        Form::new("o200k with merges backwards", with_merges(o200k(), |merges| merges.reverse())),
    ];
    if let Ok(demo) = std::fs::read(crate::repository::root().join("models/demo/tokenizer.json")) {
        forms.push(Form::new("the demo model", serde_json::from_slice(&demo).unwrap()));
    }
    forms
});

/// The families with a character vocabulary and byte fallback.
pub(crate) static SENTENCEPIECE: LazyLock<Vec<Form>> = LazyLock::new(|| {
    let mut forms = vec![
        Form::new("llama2", llama2()),
        Form::new("llama2 with tokens over two words", over_words(llama2())),
        Form::new(
            "llama2 with merges in any order",
            with_merges(llama2(), |merges| Dice::new(3).shuffle(merges)),
        ),
        Form::new("gemma", gemma()),
    ];
    for scheme in ["first", "always", "never"] {
        for split in [false, true] {
            forms.push(Form::new(format!("mistral {scheme} split {split}"), mistral(scheme, split)));
        }
    }
    forms
});

/// The same with characters that have no token at all.
pub(crate) static UNKNOWN: LazyLock<Vec<Form>> = LazyLock::new(|| {
    let mut forms = Vec::new();
    for (name, value) in [("llama2", llama2()), ("mistral", mistral("first", true)), ("gemma", gemma())] {
        for fuse in [false, true] {
            let mut value = value.clone();
            value["model"]["fuse_unk"] = fuse.into();
            value["model"]["byte_fallback"] = false.into();
            forms.push(Form::new(format!("{name} without bytes, fuse {fuse}"), value));
        }
    }
    let mut gaps = llama2();
    let vocab = gaps["model"]["vocab"].as_object_mut().unwrap();
    for (i, byte) in ["<0xE2>", "<0x0A>", "<0xF0>", "<0x80>"].into_iter().enumerate() {
        let id = vocab.remove(byte).unwrap();
        vocab.insert(format!("nothing {i}"), id);
    }
    forms.push(Form::new("llama2 with some bytes", gaps));
    forms
});

/// Forms with added tokens of every kind.
pub(crate) static ADDED: LazyLock<Vec<Form>> = LazyLock::new(|| {
    let bases = [
        ("gpt2", gpt2()),
        ("gpt2 with a space before", gpt2_prefixed()),
        ("llama3", llama3()),
        ("qwen2", qwen2()),
        ("llama2", llama2()),
        ("mistral first", mistral("first", false)),
        ("mistral always", mistral("always", true)),
        ("gemma", gemma()),
    ];
    let sets = [
        ("as written", as_written()),
        ("normalised", normalized()),
        ("of every kind", [as_written(), normalized()].concat()),
    ];
    let mut forms = Vec::new();
    for (name, base) in &bases {
        for (kind, tokens) in &sets {
            let mut value = base.clone();
            add(&mut value, tokens);
            forms.push(Form::new(format!("{name} with added tokens {kind}"), value));
        }
    }
    forms
});

/// Forms with each post-processor.
pub(crate) static POST_PROCESSED: LazyLock<Vec<Form>> = LazyLock::new(|| {
    let mut forms = Vec::new();
    for (name, base) in [
        ("gpt2", gpt2()),
        ("gpt2 with a space before", gpt2_prefixed()),
        ("qwen2", qwen2()),
        ("llama2", llama2()),
    ] {
        let bos = base["added_tokens"][0].clone();
        for (trim, space) in [(false, false), (false, true), (true, false), (true, true)] {
            let plain = bytes(space, trim, true);
            let roberta = json!({ "type": "RobertaProcessing", "sep": [bos["content"], bos["id"]],
                "cls": [bos["content"], bos["id"]], "trim_offsets": trim, "add_prefix_space": space });
            let sequence = json!({ "type": "Sequence", "processors": [plain, template(&bos)] });
            for (kind, processor) in [("bytes", plain), ("Roberta", roberta), ("sequence", sequence)] {
                let mut value = base.clone();
                value["post_processor"] = processor;
                forms.push(Form::new(format!("{name}, {kind}, trim {trim}, space {space}"), value));
            }
        }
    }
    forms
});

/// Every form of a family.
pub(crate) fn families() -> impl Iterator<Item = &'static Form> {
    BYTE_LEVEL.iter().chain(SENTENCEPIECE.iter()).chain(ADDED.iter()).chain(POST_PROCESSED.iter())
}

/// The form of this name.
pub(crate) fn named(name: &str) -> &'static Form {
    families().find(|form| form.name == name).unwrap_or_else(|| panic!("no form is called {name:?}"))
}

fn gpt2() -> Value {
    let mut value = fixtures::json("words.json");
    add(&mut value, &[special("<|endoftext|>")]);
    value["pre_tokenizer"] = bytes(false, true, true);
    value["post_processor"] = bytes(true, false, true);
    value
}

fn gpt2_prefixed() -> Value {
    let mut value = gpt2();
    value["pre_tokenizer"] = bytes(true, true, true);
    value["post_processor"] = bytes(true, true, true);
    value
}

fn llama3() -> Value {
    let mut value = fixtures::json("words.json");
    let tokens =
        ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"];
    add(&mut value, &tokens.map(special));
    value["pre_tokenizer"] = split_bytes(CL100K_WORDS);
    let processors = [bytes(true, false, true), template(&value["added_tokens"][0])];
    value["post_processor"] = json!({ "type": "Sequence", "processors": processors });
    value["model"]["ignore_merges"] = true.into();
    value
}

fn qwen2() -> Value {
    let mut value = fixtures::json("words.json");
    add(&mut value, &["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(special));
    value["normalizer"] = json!({ "type": "NFC" });
    value["pre_tokenizer"] = split_bytes(QWEN2_WORDS);
    value["post_processor"] = bytes(false, false, false);
    value
}

fn o200k() -> Value {
    let mut value = fixtures::json("words.json");
    add(&mut value, &["<|startoftext|>", "<|endoftext|>", "<|message|>"].map(special));
    value["pre_tokenizer"] = split_bytes(O200K_WORDS);
    value
}

fn tekken() -> Value {
    let mut value = fixtures::json("words.json");
    add(&mut value, &["<s>", "</s>", "[INST]", "[/INST]"].map(special));
    value["pre_tokenizer"] = split_bytes(TEKKEN_WORDS);
    value["post_processor"] = template(&value["added_tokens"][0]);
    value["model"]["ignore_merges"] = true.into();
    value
}

/// The character vocabulary, with BOS before every text.
fn pieces() -> Value {
    let mut value = fixtures::json("pieces.json");
    value["post_processor"] = template(&value["added_tokens"][1]);
    value["decoder"] = fixtures::json("llama.json")["decoder"].clone();
    value["normalizer"] = Value::Null;
    value["pre_tokenizer"] = Value::Null;
    value
}

fn llama2() -> Value {
    let mut value = pieces();
    let prepend = json!({ "type": "Prepend", "prepend": "▁" });
    value["normalizer"] = json!({ "type": "Sequence", "normalizers": [prepend, spaces()] });
    value
}

fn mistral(scheme: &str, split: bool) -> Value {
    let mut value = pieces();
    value["pre_tokenizer"] =
        json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split });
    value
}

fn gemma() -> Value {
    let mut value = pieces();
    add(&mut value, &["<start_of_turn>", "<end_of_turn>"].map(special));
    value["normalizer"] = spaces();
    // No space is added before a text, so none is removed.
    value["decoder"]["decoders"].as_array_mut().unwrap().pop();
    value["pre_tokenizer"] = json!({ "type": "Split", "pattern": { "String": " " }, "behavior": "MergedWithPrevious",
        "invert": false });
    value
}

fn spaces() -> Value {
    json!({ "type": "Replace", "pattern": { "String": " " }, "content": "▁" })
}

/// A post-processor that puts a token before every text.
fn template(bos: &Value) -> Value {
    let (name, id) = (bos["content"].as_str().unwrap(), &bos["id"]);
    let token = json!({ "SpecialToken": { "id": name, "type_id": 0 } });
    let text = json!({ "Sequence": { "id": "A", "type_id": 0 } });
    json!({ "type": "TemplateProcessing", "single": [token, text], "pair": [token, text],
        "special_tokens": { name: { "id": name, "ids": [id], "tokens": [name] } } })
}

/// Adds tokens with the ids that the library assigns.
fn add(value: &mut Value, tokens: &[Value]) {
    let vocab = value["model"]["vocab"].as_object().unwrap().clone();
    let added = value["added_tokens"].as_array_mut().unwrap();
    for token in tokens {
        let beside =
            added.iter().filter(|token| !vocab.contains_key(token["content"].as_str().unwrap())).count();
        let mut token = flagged(token.clone());
        let id = vocab.get(token["content"].as_str().unwrap()).cloned();
        token["id"] = id.unwrap_or_else(|| (vocab.len() + beside).into());
        added.push(token);
    }
}

fn special(content: &str) -> Value {
    json!({ "content": content, "special": true })
}

/// Added tokens that are found in the text as written.
fn as_written() -> Vec<Value> {
    vec![
        special("<|end|>"),
        special("<|end|>s"),
        special("<|endless|>"),
        json!({ "content": "<mask>", "special": true, "lstrip": true }),
        json!({ "content": "<sep>", "special": true, "rstrip": true }),
        json!({ "content": "<both>", "lstrip": true, "rstrip": true }),
        json!({ "content": "<think>" }),
        json!({ "content": "the" }),
        json!({ "content": "line", "single_word": true }),
        json!({ "content": "Straße", "single_word": true, "rstrip": true }),
        json!({ "content": "▁a" }),
        json!({ "content": "    " }),
    ]
}

/// Added tokens that are found in the normalised text.
fn normalized() -> Vec<Value> {
    let mut tokens = vec![
        json!({ "content": "<|start|>", "special": true }),
        json!({ "content": "red line" }),
        json!({ "content": "red" }),
        json!({ "content": " spaced " }),
        json!({ "content": "cafe\u{301}" }),
        json!({ "content": "naïve", "single_word": true, "lstrip": true }),
        json!({ "content": "and" }),
        json!({ "content": "word", "single_word": true }),
        json!({ "content": "\n\n" }),
        json!({ "content": "   ", "rstrip": true }),
        json!({ "content": "Ġof" }),
        json!({ "content": "'s" }),
        json!({ "content": "\u{1112}\u{1161}\u{11ab}" }),
    ];
    for token in &mut tokens {
        token["normalized"] = true.into();
    }
    tokens
}

fn with_merges(mut value: Value, change: impl FnOnce(&mut Vec<Value>)) -> Value {
    change(value["model"]["merges"].as_array_mut().unwrap());
    value
}

/// Merges as produced by a conversion from a list of tokens: a part may have a higher rank than the result.
fn converted(mut value: Value) -> Value {
    let mut tokens: Vec<_> = value["model"]["vocab"].as_object().unwrap().iter().collect();
    tokens.sort_by_key(|(_, id)| id.as_u64());
    let mut tokens: Vec<String> = tokens.into_iter().map(|(token, _)| token.clone()).collect();
    // Ids in an order that merges do not have.
    let bytes = tokens.iter().take_while(|token| token.chars().count() == 1).count();
    Dice::new(11).shuffle(&mut tokens[bytes..]);
    value["model"]["merges"] = json!(every_split(&tokens));
    value["model"]["vocab"] =
        tokens.into_iter().zip(0_u32..).map(|(token, id)| (token, Value::from(id))).collect();
    value
}

/// Without every third merge, so that some tokens are found only as whole words.
fn unreachable(value: Value) -> Value {
    with_merges(value, |merges| {
        let mut i = 0;
        merges.retain(|_| {
            i += 1;
            i % 3 > 0
        });
    })
}

/// Tokens that begin in one word and end in the next.
fn over_words(mut value: Value) -> Value {
    for (left, right) in [("e", "▁"), ("e▁", "t"), (",", "▁and"), ("▁of", "▁the"), ("▁▁", "a")]
    {
        let vocab = value["model"]["vocab"].as_object_mut().unwrap();
        let id = vocab.len();
        vocab.insert(format!("{left}{right}"), id.into());
        let merges = value["model"]["merges"].as_array_mut().unwrap();
        // Some are inserted early, some late.
        let at = merges.len() / 2 * (id % 3);
        merges.insert(at.min(merges.len()), json!([left, right]));
    }
    value
}
