//! Parses `tokenizer.json`, `vocab.json` and `merges.txt` into typed data in one pass.

use crate::{AddedToken, TokenizerError, model::BpeModel};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;

/// A `tokenizer.json`. Small parts stay JSON and are parsed where they are used.
pub(crate) struct TokenizerJson {
    pub(crate) model: BpeModel,
    pub(crate) added: Vec<AddedToken>,
    pub(crate) normalizer: Value,
    pub(crate) pre_tokenizer: Value,
    pub(crate) post_processor: Value,
    pub(crate) decoder: Value,
}

impl TokenizerJson {
    /// Parses the bytes of a `tokenizer.json`.
    pub(crate) fn parse(place: &str, bytes: &[u8]) -> Result<Self, TokenizerError> {
        let text = json(place, bytes)?;
        let file: File = serde_json::from_str(text).map_err(|error| {
            // An unknown model may have a vocabulary of another form. Report the model type rather than the form.
            match serde_json::from_str::<Kind>(text).ok().and_then(|kind| kind.model.kind) {
                Some(kind) if kind != "BPE" => unsupported_model(place, &kind),
                _ => json_error(place, &error),
            }
        })?;
        let missing = |field| form(place, format!("`{field}` is missing"));
        if let Some(version) = file.version.filter(|version| version != "1.0") {
            let (place, known) = (place.to_owned(), "`1.0`".to_owned());
            return Err(TokenizerError::Unsupported { place, part: "version", found: version, known });
        }
        let model = file.model.ok_or_else(|| missing("model"))?;
        if let Some(kind) = model.kind.filter(|kind| kind != "BPE") {
            return Err(unsupported_model(place, &kind));
        }
        if let Some(dropout) = model.dropout.filter(|dropout| *dropout != 0.0) {
            let reason =
                format!("`model.dropout` is {dropout}: the same text would give other ids each time");
            return Err(form(place, reason));
        }
        Ok(Self {
            model: BpeModel {
                vocab: model.vocab.ok_or_else(|| missing("model.vocab"))?.0,
                merges: pairs(place, model.merges.ok_or_else(|| missing("model.merges"))?)?,
                unk_token: model.unk_token,
                continuing_subword_prefix: model.continuing_subword_prefix,
                end_of_word_suffix: model.end_of_word_suffix,
                fuse_unk: model.fuse_unk.unwrap_or(false),
                byte_fallback: model.byte_fallback.unwrap_or(false),
                ignore_merges: model.ignore_merges.unwrap_or(false),
            },
            added: file.added_tokens.unwrap_or_default(),
            normalizer: file.normalizer,
            pre_tokenizer: file.pre_tokenizer,
            post_processor: file.post_processor,
            decoder: file.decoder,
        })
    }
}

/// Parses a `vocab.json`: an object of tokens to ids.
pub(crate) fn vocab(place: &str, bytes: &[u8]) -> Result<Vec<(String, u32)>, TokenizerError> {
    let vocab: Vocab = parse(place, bytes)?;
    Ok(vocab.0)
}

/// Parses a `merges.txt`: a `#version` line, then two tokens per line, best merge first.
pub(crate) fn merges(place: &str, bytes: &[u8]) -> Result<Vec<(String, String)>, TokenizerError> {
    let text = utf8(place, bytes)?;
    let lines = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text).lines().enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with("#version"))
        .map(|(i, line)| pair(place, i + 1, line))
        .collect()
}

/// Parses any JSON file of the directory.
pub(crate) fn parse<T: for<'de> Deserialize<'de>>(place: &str, bytes: &[u8]) -> Result<T, TokenizerError> {
    serde_json::from_str(json(place, bytes)?).map_err(|error| json_error(place, &error))
}

pub(crate) fn form(place: &str, reason: impl Into<String>) -> TokenizerError {
    TokenizerError::Form { place: place.to_owned(), reason: reason.into() }
}

/// Some programs write it at the start of a file. JSON does not allow it.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The text of a JSON file.
fn json<'a>(place: &str, bytes: &'a [u8]) -> Result<&'a str, TokenizerError> {
    let text = utf8(place, bytes)?;
    if text.starts_with(BYTE_ORDER_MARK) {
        let reason = "it begins with a byte order mark (the bytes ef bb bf), which is not allowed".to_owned();
        return Err(TokenizerError::Json { place: place.to_owned(), reason });
    }
    Ok(text)
}

fn utf8<'a>(place: &str, bytes: &'a [u8]) -> Result<&'a str, TokenizerError> {
    std::str::from_utf8(bytes)
        .map_err(|error| TokenizerError::NotUtf8 { place: place.to_owned(), offset: error.valid_up_to() })
}

fn json_error(place: &str, error: &serde_json::Error) -> TokenizerError {
    let reason = error.to_string();
    if error.is_data() {
        form(place, reason)
    } else {
        TokenizerError::Json { place: place.to_owned(), reason }
    }
}

fn unsupported_model(place: &str, kind: &str) -> TokenizerError {
    TokenizerError::Unsupported {
        place: place.to_owned(),
        part: "model type",
        found: kind.to_owned(),
        known: "`BPE`".to_owned(),
    }
}

fn pair(place: &str, rank: usize, text: &str) -> Result<(String, String), TokenizerError> {
    let mut parts = text.split(' ');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(a), Some(b), None) => Ok((a.to_owned(), b.to_owned())),
        _ => Err(TokenizerError::MergeParts {
            place: place.to_owned(),
            rank,
            parts: text.split(' ').count(),
            text: text.to_owned(),
        }),
    }
}

fn pairs(place: &str, merges: Vec<Merge>) -> Result<Vec<(String, String)>, TokenizerError> {
    let lines = merges.into_iter().enumerate();
    lines
        .filter(|(_, merge)| !matches!(merge, Merge::Line(line) if line.starts_with("#version")))
        .map(|(i, merge)| match merge {
            Merge::Line(line) => pair(place, i + 1, &line),
            Merge::Parts(parts) => <[String; 2]>::try_from(parts).map(|[a, b]| (a, b)).map_err(|parts| {
                let (place, text) = (place.to_owned(), parts.join(" "));
                TokenizerError::MergeParts { place, rank: i + 1, parts: parts.len(), text }
            }),
        })
        .collect()
}

#[derive(serde::Deserialize)]
struct File {
    version: Option<String>,
    added_tokens: Option<Vec<AddedToken>>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    model: Option<Model>,
}

#[derive(serde::Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    dropout: Option<f64>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    fuse_unk: Option<bool>,
    byte_fallback: Option<bool>,
    ignore_merges: Option<bool>,
    vocab: Option<Vocab>,
    merges: Option<Vec<Merge>>,
}

/// The part of a `tokenizer.json` that contains the model's type.
#[derive(serde::Deserialize)]
struct Kind {
    model: KindOfModel,
}

#[derive(serde::Deserialize)]
struct KindOfModel {
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// Tokens and ids in file order. Duplicates are kept so that they can be reported.
struct Vocab(Vec<(String, u32)>);

impl<'de> Deserialize<'de> for Vocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Vocab;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a vocabulary: an object of tokens to ids")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocab, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Vocab(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// One merge: `"a b"` in older files, `["a", "b"]` in newer ones.
enum Merge {
    Line(String),
    Parts(Vec<String>),
}

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Merge;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a merge: two tokens, as a list or with a space between them")
            }
            fn visit_str<E: de::Error>(self, line: &str) -> Result<Merge, E> {
                Ok(Merge::Line(line.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Merge, A::Error> {
                let mut parts = Vec::with_capacity(2);
                while let Some(part) = seq.next_element()? {
                    parts.push(part);
                }
                Ok(Merge::Parts(parts))
            }
        }
        deserializer.deserialize_any(Either)
    }
}
