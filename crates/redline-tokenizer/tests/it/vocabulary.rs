//! Public vocabularies, which are lists of byte tokens, converted to `tokenizer.json`.

use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// The regex with which cl100k and Llama 3 split text.
pub(crate) const CL100K_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The regex with which o200k splits text.
pub(crate) const O200K_WORDS: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// A vocabulary of the crate `bpe-openai`.
pub(crate) struct Public {
    pub(crate) name: &'static str,
    words: &'static str,
    pub(crate) peer: fn() -> &'static bpe_openai::Tokenizer,
}

pub(crate) const PUBLIC: [Public; 2] = [
    Public { name: "cl100k", words: CL100K_WORDS, peer: bpe_openai::cl100k_base },
    Public { name: "o200k", words: O200K_WORDS, peer: bpe_openai::o200k_base },
];

impl Public {
    /// The vocabulary as a `tokenizer.json`, converted like that of Llama 3, followed by the `special` tokens.
    pub(crate) fn json(&self, special: &[&str]) -> Value {
        let bpe = &(self.peer)().bpe;
        let size = bpe.num_tokens() as u32;
        let tokens: Vec<String> = (0..size).map(|id| written(bpe.token_bytes(id))).collect();
        let merges = every_split(&tokens);
        let vocab: Map<String, Value> =
            tokens.into_iter().zip(0..size).map(|(token, id)| (token, id.into())).collect();
        let special = (size..).zip(special);
        let added: Vec<Value> =
            special.map(|(id, token)| json!({ "id": id, "content": token, "special": true })).collect();
        json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added.into_iter().map(flagged).collect::<Vec<_>>(),
            "normalizer": null,
            "pre_tokenizer": split_bytes(self.words),
            "post_processor": null,
            "decoder": bytes(false, true, true),
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
                "vocab": vocab, "merges": merges,
            },
        })
    }
}

/// An added token; missing flags have the values of a special token.
pub(crate) fn flagged(mut token: Value) -> Value {
    for flag in ["special", "normalized", "single_word", "lstrip", "rstrip"] {
        let flags = token.as_object_mut().expect("an added token is an object");
        flags.entry(flag).or_insert(Value::Bool(false));
    }
    token
}

/// A `ByteLevel`, as pre-tokeniser, post-processor or decoder.
pub(crate) fn bytes(add_prefix_space: bool, trim_offsets: bool, use_regex: bool) -> Value {
    json!({ "type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": trim_offsets,
        "use_regex": use_regex })
}

/// The pre-tokeniser of a byte-level vocabulary with its own pattern.
pub(crate) fn split_bytes(words: &str) -> Value {
    let pattern = json!({ "Regex": words });
    let split = json!({ "type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false });
    json!({ "type": "Sequence", "pretokenizers": [split, bytes(false, true, false)] })
}

/// Bytes as written in byte-level vocabularies: one visible character per byte.
fn written(bytes: &[u8]) -> String {
    let character = |byte: &u8| match u32::from(*byte) {
        n @ (33..=126 | 161..=172 | 174..=255) => n,
        n @ 0..=32 => 256 + n,
        n @ 127..=160 => 256 + 33 + n - 127,
        n => 256 + 67 + n - 173,
    };
    bytes.iter().filter_map(|byte| char::from_u32(character(byte))).collect()
}

/// The merges of a vocabulary without merges: for each token in id order, every way to make it of two tokens, in the
/// order of their ids.
pub(crate) fn every_split(tokens: &[String]) -> Vec<[String; 2]> {
    let ids: HashMap<&str, usize> = tokens.iter().map(String::as_str).zip(0..).collect();
    let mut merges = Vec::new();
    for token in tokens {
        let mut splits: Vec<_> = token
            .char_indices()
            .skip(1)
            .map(|(at, _)| token.split_at(at))
            .filter_map(|(left, right)| Some((*ids.get(left)?, *ids.get(right)?)))
            .collect();
        splits.sort_unstable();
        merges.extend(splits.into_iter().map(|(left, right)| [tokens[left].clone(), tokens[right].clone()]));
    }
    merges
}
