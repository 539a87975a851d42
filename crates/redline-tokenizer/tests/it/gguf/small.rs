//! Small vocabularies of every kind, made by `make.py`, with the ids and texts that the reference gives.

use crate::dice::Dice;
use redline_tokenizer::{Encoder, GgufSpecialIds, GgufVocabulary, Tokenizer};
use serde_json::Value;
use std::path::PathBuf;

pub(super) const NAMES: [&str; 8] =
    ["llama-bpe", "qwen2", "starcoder", "deepseek-coder", "llama", "gemma4", "bert", "t5"];

/// A file of `small/`.
pub(super) struct Small {
    pub(super) name: &'static str,
    json: Value,
}

type Encodings = Vec<(String, Vec<u32>, Vec<u32>)>;
type Decodings = Vec<(Vec<u32>, String, String)>;

impl Small {
    pub(super) fn read(name: &'static str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/gguf/small");
        let bytes = std::fs::read(path.join(format!("{name}.json"))).unwrap();
        Self { name, json: serde_json::from_slice(&bytes).unwrap() }
    }

    pub(super) fn vocabulary(&self) -> GgufVocabulary {
        let metadata = &self.json["metadata"];
        let list =
            |name: &str| metadata.get(name).map(|value| serde_json::from_value(value.clone()).unwrap());
        let flag = |name: &str| metadata[name].as_bool();
        let id = |name: &str| metadata["special"][name].as_u64().map(|id| id as u32);
        let text = |name: &str| metadata[name].as_str().map(str::to_owned);
        let numbers: Option<Vec<f64>> =
            metadata.get("scores").map(|value| serde_json::from_value(value.clone()).unwrap());
        let types: Option<Vec<i32>> =
            metadata.get("types").map(|value| serde_json::from_value(value.clone()).unwrap());
        GgufVocabulary {
            model: text("model").unwrap(),
            pre: text("pre"),
            tokens: list("tokens").unwrap(),
            scores: numbers.map(|scores| scores.into_iter().map(|score| score as f32).collect()),
            types,
            merges: list("merges"),
            special: GgufSpecialIds {
                bos: id("bos"),
                eos: id("eos"),
                unk: id("unk"),
                sep: id("sep"),
                pad: id("pad"),
                cls: id("cls"),
                mask: id("mask"),
                ..GgufSpecialIds::default()
            },
            add_space_prefix: flag("add_space_prefix"),
            remove_extra_whitespaces: flag("remove_extra_whitespaces"),
            precompiled_charsmap: charsmap(&metadata["charsmap"]),
            ..GgufVocabulary::default()
        }
    }

    fn tokenizer(&self) -> Tokenizer {
        self.vocabulary().tokenizer(self.name).unwrap()
    }

    fn encodings(&self) -> Encodings {
        serde_json::from_value(self.json["encode"].clone()).unwrap()
    }

    fn decodings(&self) -> Decodings {
        serde_json::from_value(self.json["decode"].clone()).unwrap()
    }
}

/// The bytes of a character map: the size of its trie, the units that are not 0, and its replacements.
fn charsmap(value: &Value) -> Vec<u8> {
    let Some(size) = value["size"].as_u64() else { return Vec::new() };
    let mut units = vec![0_u32; size as usize];
    let filled: Vec<(usize, u32)> = serde_json::from_value(value["units"].clone()).unwrap();
    for (at, unit) in filled {
        units[at] = unit;
    }
    let head = (4 * size as u32).to_le_bytes();
    let trie = units.into_iter().flat_map(u32::to_le_bytes);
    head.into_iter().chain(trie).chain(value["replacements"].as_str().unwrap().bytes()).collect()
}

/// A text of parts of the awkward texts, and of written tokens.
fn text(dice: &mut Dice, small: &Small, tokenizer: &Tokenizer) -> String {
    let texts = small.encodings();
    let mut text = String::new();
    for _ in 0..=dice.below(6) {
        if dice.below(4) == 0 {
            text.push_str(&tokenizer.token(dice.below(tokenizer.vocab_size()) as u32).unwrap_or_default());
        } else {
            let part = &texts[dice.below(texts.len())].0;
            let start = part.floor_char_boundary(dice.below(part.len() + 1));
            let end = part.floor_char_boundary(start + dice.below(24)).max(start);
            text.push_str(&part[start..end.min(part.len())]);
        }
    }
    text
}

#[test]
fn gguf_ids_and_texts_are_those_of_the_reference() {
    for name in NAMES {
        let small = Small::read(name);
        let library = small.vocabulary().tokenizer_with(name, Encoder::Library).unwrap();
        for tokenizer in [small.tokenizer(), library] {
            let (encodings, decodings) = (small.encodings(), small.decodings());
            assert!(encodings.len() > 50 && decodings.len() > 60);
            for (text, plain, special) in &encodings {
                assert_eq!(tokenizer.encode(text, false).unwrap(), *plain, "{name}: {text:?}");
                assert_eq!(
                    tokenizer.encode(text, true).unwrap(),
                    *special,
                    "{name}: {text:?} with special tokens"
                );
            }
            for (ids, all, skipped) in &decodings {
                assert_eq!(tokenizer.decode(ids, false).unwrap(), *all, "{name}: {ids:?}");
                assert_eq!(
                    tokenizer.decode(ids, true).unwrap(),
                    *skipped,
                    "{name}: {ids:?} without special tokens"
                );
            }
        }
    }
}

#[test]
fn gguf_streams_give_the_decoded_text() {
    for name in NAMES {
        let small = Small::read(name);
        let tokenizer = small.tokenizer();
        for (ids, _, skipped) in small.decodings() {
            let mut stream = tokenizer.stream();
            let mut text: String = ids.iter().map(|id| stream.push(*id).unwrap()).collect();
            text.push_str(&stream.finish());
            assert_eq!(text, skipped, "{name}: {ids:?}");
        }
    }
}

#[test]
fn gguf_ids_are_those_of_the_tokenizer_that_it_was_made_from() {
    let mut dice = Dice::new(21);
    for name in NAMES {
        let small = Small::read(name);
        let Some(document) = small.json.get("tokenizer") else { continue };
        let original =
            Tokenizer::from_bytes_with(name, document.to_string().as_bytes(), Encoder::Library).unwrap();
        let tokenizer = small.tokenizer();
        for _ in 0..400 {
            let text = text(&mut dice, &small, &original);
            let expected = original.encode_with_offsets(&text, false).unwrap();
            let found = tokenizer.encode_with_offsets(&text, false).unwrap();
            assert_eq!(found, expected, "{name}: {text:?}");
            assert_eq!(
                tokenizer.encode(&text, true).unwrap(),
                original.encode(&text, true).unwrap(),
                "{name}: {text:?}"
            );
            assert_eq!(
                tokenizer.decode(&expected.ids, false).unwrap(),
                original.decode(&expected.ids, false).unwrap(),
                "{name}: {text:?}"
            );
        }
    }
}

#[test]
fn gguf_texts_come_back() {
    let mut dice = Dice::new(22);
    for name in ["llama-bpe", "starcoder", "deepseek-coder", "gemma4"] {
        let small = Small::read(name);
        let tokenizer = small.tokenizer();
        for _ in 0..400 {
            // A mark and a written byte are read as what they stand for.
            let text = text(&mut dice, &small, &tokenizer).replace('▁', "_").replace("<0x", "<");
            let ids = tokenizer.encode(&text, false).unwrap();
            assert_eq!(tokenizer.decode(&ids, false).unwrap(), text, "{name}");
            let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.token_bytes(*id).unwrap()).collect();
            assert_eq!(String::from_utf8_lossy(&bytes), text, "{name}: bytes of the tokens");
        }
    }
}

/// Which encoder is used for each kind, so that a change of the native encoder's forms is noticed.
#[test]
fn gguf_common_kinds_are_native() {
    let native: Vec<_> =
        NAMES.into_iter().filter(|name| Small::read(name).tokenizer().encoder() == Encoder::Native).collect();
    assert_eq!(native, ["llama-bpe", "qwen2", "llama", "gemma4"]);
}

#[test]
fn word_pieces_have_spaces_before_words() {
    let tokenizer = Small::read("bert").tokenizer();
    let ids = tokenizer.encode("the engines, the river", false).unwrap();
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), "the engines, the river");
    let continued = tokenizer.id("##s").unwrap();
    assert_eq!(tokenizer.token_text(continued).unwrap(), "s");
    let the = tokenizer.id("the").unwrap();
    assert_eq!(tokenizer.token_bytes(the).unwrap(), b" the");
}

/// BERT and its kin were trained on pairs in one form, which no key of a file names.
#[test]
fn two_texts_are_put_together_as_encoders_were_trained() {
    let pair = |vocabulary: &GgufVocabulary| {
        let tokenizer = vocabulary.tokenizer("x.gguf").unwrap();
        let pair = tokenizer.pair().unwrap().clone();
        (pair.before, pair.between, pair.after, pair.has_types, pair.first_of_between)
    };
    let bert = Small::read("bert").vocabulary();
    assert_eq!(pair(&bert), (vec![2], vec![3], vec![3], true, 1));
    let (bos, eos) = (Some(0), Some(1));
    let mut unigram = Small::read("t5").vocabulary();
    unigram.architecture = Some("bert".to_owned());
    unigram.add_bos = Some(true);
    unigram.special = GgufSpecialIds { bos, eos, ..unigram.special };
    assert_eq!(pair(&unigram), (vec![0], vec![1, 1], vec![1], false, 2));
    let mut bytes = Small::read("qwen2").vocabulary();
    bytes.architecture = Some("modern-bert".to_owned());
    (bytes.add_bos, bytes.add_eos) = (Some(true), Some(true));
    bytes.special = GgufSpecialIds { bos, eos, ..bytes.special };
    assert_eq!(pair(&bytes), (vec![0], vec![1], vec![1], false, 1));
}
