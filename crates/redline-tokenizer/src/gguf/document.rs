//! A `tokenizer.json` to be written.

use super::entries::Entries;
use super::{GgufVocabulary, wrong};
use crate::TokenizerError;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The document, in the order in which the `tokenizers` crate writes it.
#[derive(serde::Serialize)]
pub(super) struct Document<'t> {
    pub(super) version: &'static str,
    pub(super) truncation: (),
    pub(super) padding: (),
    pub(super) added_tokens: Vec<Added<'t>>,
    pub(super) normalizer: Value,
    pub(super) pre_tokenizer: Value,
    pub(super) post_processor: Value,
    pub(super) decoder: Value,
    pub(super) model: Written<'t>,
}

/// An added token.
#[derive(serde::Serialize)]
pub(super) struct Added<'t> {
    pub(super) id: u32,
    pub(super) content: &'t str,
    pub(super) single_word: bool,
    pub(super) lstrip: bool,
    pub(super) rstrip: bool,
    pub(super) normalized: bool,
    pub(super) special: bool,
}

/// The model of a document.
#[derive(serde::Serialize)]
#[serde(tag = "type")]
pub(super) enum Written<'t> {
    #[serde(rename = "BPE")]
    Bpe {
        dropout: (),
        unk_token: Option<&'t str>,
        continuing_subword_prefix: (),
        end_of_word_suffix: (),
        fuse_unk: bool,
        byte_fallback: bool,
        ignore_merges: bool,
        vocab: Ids<'t>,
        merges: Vec<(&'t str, &'t str)>,
    },
    WordPiece {
        unk_token: &'t str,
        continuing_subword_prefix: &'static str,
        max_input_chars_per_word: usize,
        vocab: Ids<'t>,
    },
    Unigram {
        unk_id: u32,
        vocab: Vec<(&'t str, f64)>,
        byte_fallback: bool,
    },
}

/// Tokens with their places as ids.
pub(super) struct Ids<'t>(pub(super) &'t [Cow<'t, str>]);

impl Serialize for Ids<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (token, id) in self.0.iter().zip(0_u32..) {
            map.serialize_entry(&**token, &id)?;
        }
        map.end()
    }
}

impl<'t> Document<'t> {
    /// A document with this model that does nothing else.
    pub(super) fn new(model: Written<'t>, added_tokens: Vec<Added<'t>>) -> Self {
        Self {
            version: "1.0",
            truncation: (),
            padding: (),
            added_tokens,
            normalizer: Value::Null,
            pre_tokenizer: Value::Null,
            post_processor: Value::Null,
            decoder: Value::Null,
            model,
        }
    }

    /// The bytes of the file.
    pub(super) fn to_json(&self, place: &str) -> Result<Vec<u8>, TokenizerError> {
        serde_json::to_vec(self)
            .map_err(|error| TokenizerError::Json { place: place.to_owned(), reason: error.to_string() })
    }
}

/// A list of components as one component.
pub(super) fn sequence(list: &str, mut parts: Vec<Value>) -> Value {
    match parts.len() {
        0 => Value::Null,
        1 => parts.remove(0),
        _ => json!({ "type": "Sequence", list: parts }),
    }
}

/// Replaces one text by another one.
pub(super) fn replace(from: &str, to: &str) -> Value {
    json!({ "type": "Replace", "pattern": { "String": from }, "content": to })
}

/// The component that represents bytes by characters; with `words`, as a pre-tokenizer, it splits as GPT-2 does.
pub(super) fn byte_level(words: bool) -> Value {
    json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": words })
}

/// The post-processor that puts BOS and EOS around a text, each if it is wanted and exists.
pub(super) fn around(
    vocabulary: &GgufVocabulary,
    entries: &Entries<'_>,
    bos: bool,
    eos: bool,
) -> Result<Value, TokenizerError> {
    let bos = Some(entries.bos(vocabulary)).filter(|_| bos).flatten();
    let eos = Some(entries.eos(vocabulary)).filter(|_| eos).flatten();
    for (key, wanted, id) in [
        ("tokenizer.ggml.add_bos_token", vocabulary.add_bos, bos),
        ("tokenizer.ggml.add_eos_token", vocabulary.add_eos, eos),
    ] {
        if wanted == Some(true) && id.is_none() {
            return Err(wrong(entries.place, key, "it is true, but the file names no such token"));
        }
    }
    let between = match (vocabulary.architecture.as_deref(), bos, eos) {
        // RoBERTa and XLM-R
        (Some("bert"), Some(_), Some(eos)) => Some((vec![eos, vocabulary.special.sep.unwrap_or(eos)], 0)),
        (Some("modern-bert"), Some(_), Some(eos)) => Some((vec![eos], 0)),
        _ => None,
    };
    Ok(template(entries, (bos, eos), between))
}

/// The post-processor that puts ids before and after a text. Of two texts, it puts them around each, or around both with the ids
/// `between` them and this type of the second text.
pub(super) fn template(
    entries: &Entries<'_>,
    (before, after): (Option<u32>, Option<u32>),
    between: Option<(Vec<u32>, u32)>,
) -> Value {
    if before.or(after).is_none() {
        return Value::Null;
    }
    let special = |id: u32, kind: u32| json!({ "SpecialToken": { "id": entries.text(id), "type_id": kind } });
    let sequence = |name: &str, kind: u32| json!({ "Sequence": { "id": name, "type_id": kind } });
    let text = |name: &str, kind: u32| {
        let (before, after) = (before.map(|id| special(id, kind)), after.map(|id| special(id, kind)));
        before.into_iter().chain([sequence(name, kind)]).chain(after).collect::<Vec<_>>()
    };
    let pair = match &between {
        None => [text("A", 0), text("B", 1)].concat(),
        Some((between, kind)) => {
            let (start, end) = (before.map(|id| special(id, 0)), after.map(|id| special(id, *kind)));
            let between = between.iter().map(|id| special(*id, 0));
            let first = start.into_iter().chain([sequence("A", 0)]).chain(between);
            first.chain([sequence("B", *kind)]).chain(end).collect()
        }
    };
    let between = between.into_iter().flat_map(|(between, _)| between);
    let tokens = before.into_iter().chain(after).chain(between).map(|id| {
        let token = entries.text(id);
        (token.to_owned(), json!({ "id": token, "ids": [id], "tokens": [token] }))
    });
    json!({
        "type": "TemplateProcessing",
        "single": text("A", 0),
        "pair": pair,
        "special_tokens": tokens.collect::<Map<_, _>>(),
    })
}
