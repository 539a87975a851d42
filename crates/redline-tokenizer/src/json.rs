//! Parses `tokenizer.json`, `vocab.json` and `merges.txt` into typed data in one pass.

use crate::model::{BpeModel, KINDS, Model, UnigramModel, WordPieceModel};
use crate::{AddedToken, TokenizerError};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;

/// A `tokenizer.json`. Small parts stay JSON and are parsed where they are used.
pub(crate) struct TokenizerJson {
    pub(crate) model: Model,
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
                Some(kind) if !KINDS.contains(&kind.as_str()) => unsupported_model(place, &kind),
                _ => json_error(place, &error),
            }
        })?;
        if let Some(version) = file.version.filter(|version| version != "1.0") {
            let (place, known) = (place.to_owned(), "`1.0`".to_owned());
            return Err(TokenizerError::Unsupported { place, part: "version", found: version, known });
        }
        Ok(Self {
            model: file.model.ok_or_else(|| missing(place, "model"))?.of_its_kind(place)?,
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

fn missing(place: &str, field: &str) -> TokenizerError {
    form(place, format!("`{field}` is missing"))
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
        known: format!("`{}`", KINDS.join("`, `")),
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
    model: Option<WrittenModel>,
}

#[derive(serde::Deserialize)]
struct WrittenModel {
    #[serde(rename = "type")]
    kind: Option<String>,
    dropout: Option<f64>,
    unk_token: Option<String>,
    unk_id: Option<usize>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    max_input_chars_per_word: Option<usize>,
    fuse_unk: Option<bool>,
    byte_fallback: Option<bool>,
    ignore_merges: Option<bool>,
    vocab: Option<AnyVocab>,
    merges: Option<Vec<Merge>>,
}

impl WrittenModel {
    /// The model, if its kind can be read and it has the fields of that kind.
    fn of_its_kind(self, place: &str) -> Result<Model, TokenizerError> {
        match self.kind.as_deref() {
            None | Some("BPE") => self.bpe(place).map(Model::Bpe),
            Some("WordPiece") => self.word_piece(place).map(Model::WordPiece),
            Some("Unigram") => self.unigram(place).map(Model::Unigram),
            Some(kind) => Err(unsupported_model(place, kind)),
        }
    }

    fn bpe(self, place: &str) -> Result<BpeModel, TokenizerError> {
        if let Some(dropout) = self.dropout.filter(|dropout| *dropout != 0.0) {
            let reason =
                format!("`model.dropout` is {dropout}: the same text would give other ids each time");
            return Err(form(place, reason));
        }
        Ok(BpeModel {
            vocab: AnyVocab::ids(self.vocab, place)?,
            merges: pairs(place, self.merges.ok_or_else(|| missing(place, "model.merges"))?)?,
            unk_token: self.unk_token,
            continuing_subword_prefix: self.continuing_subword_prefix,
            end_of_word_suffix: self.end_of_word_suffix,
            fuse_unk: self.fuse_unk.unwrap_or(false),
            byte_fallback: self.byte_fallback.unwrap_or(false),
            ignore_merges: self.ignore_merges.unwrap_or(false),
        })
    }

    /// The fields that may be left out have the values of the `tokenizers` crate.
    fn word_piece(self, place: &str) -> Result<WordPieceModel, TokenizerError> {
        Ok(WordPieceModel {
            vocab: AnyVocab::ids(self.vocab, place)?,
            unk_token: self.unk_token.unwrap_or_else(|| "[UNK]".to_owned()),
            continuing_subword_prefix: self.continuing_subword_prefix.unwrap_or_else(|| "##".to_owned()),
            max_input_chars_per_word: self.max_input_chars_per_word.unwrap_or(100),
        })
    }

    fn unigram(self, place: &str) -> Result<UnigramModel, TokenizerError> {
        let vocab = match self.vocab {
            Some(AnyVocab::Scores(vocab)) => vocab,
            Some(AnyVocab::Ids(_)) => {
                return Err(form(
                    place,
                    "`model.vocab` is an object instead of a list of tokens with scores",
                ));
            }
            None => return Err(missing(place, "model.vocab")),
        };
        let reason = "`model.unk_id` is missing: a text with an unknown character would have no ids";
        let unk_id = self.unk_id.ok_or_else(|| form(place, reason))?;
        Ok(UnigramModel { vocab, unk_id, byte_fallback: self.byte_fallback.unwrap_or(false) })
    }
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

/// A vocabulary of any kind of model: an object of tokens to ids, or a list of tokens with scores.
enum AnyVocab {
    Ids(Vec<(String, u32)>),
    Scores(Vec<(String, f64)>),
}

impl AnyVocab {
    /// The tokens with their ids.
    fn ids(vocab: Option<Self>, place: &str) -> Result<Vec<(String, u32)>, TokenizerError> {
        match vocab {
            Some(Self::Ids(vocab)) => Ok(vocab),
            Some(Self::Scores(_)) => {
                Err(form(place, "`model.vocab` is a list instead of an object of tokens to ids"))
            }
            None => Err(missing(place, "model.vocab")),
        }
    }
}

impl<'de> Deserialize<'de> for AnyVocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = AnyVocab;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a vocabulary: an object of tokens to ids, or a list of tokens with scores")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AnyVocab, A::Error> {
                let Vocab(entries) = Vocab::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(AnyVocab::Ids(entries))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<AnyVocab, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = seq.next_element()? {
                    entries.push(entry);
                }
                Ok(AnyVocab::Scores(entries))
            }
        }
        deserializer.deserialize_any(Either)
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
