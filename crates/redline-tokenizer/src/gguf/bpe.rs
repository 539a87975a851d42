//! BPE: byte-level, or SentencePiece style with byte fallback.

use super::document::{Document, Ids, Written, around, byte_level, replace, sequence};
use super::entries::Entries;
use super::kind::Kind;
use super::{GgufVocabulary, added, merges, pre, wrong};
use crate::TokenizerError;
use serde_json::{Value, json};

/// The mark that represents a space in SentencePiece vocabularies.
const MARK: &str = "▁";

const MERGES: &str = "tokenizer.ggml.merges";

/// A model with merges: byte-level, unless the rule says that it is in SentencePiece style.
pub(super) fn with_merges<'t>(
    vocabulary: &'t GgufVocabulary,
    entries: &'t Entries<'_>,
) -> Result<Document<'t>, TokenizerError> {
    let name = match vocabulary.model.as_str() {
        "gemma4" => "gemma4",
        _ => vocabulary.pre.as_deref().unwrap_or("default"),
    };
    let rule = pre::rule(entries.place, name)?;
    let merges = read(vocabulary, entries)?;
    let mut document = match rule.style {
        pre::Style::Bytes => {
            let model = model(entries, None, merges, rule.ignore_merges);
            let mut document = Document::new(model, added::added(vocabulary, entries));
            document.normalizer = if rule.nfc { json!({ "type": "NFC" }) } else { Value::Null };
            document.pre_tokenizer = rule.pre_tokenizer();
            document.decoder = byte_level(true);
            document
        }
        pre::Style::Marks => {
            let unk = entries.unk(vocabulary).map(|id| entries.text(id));
            let model = model(entries, unk, merges, rule.ignore_merges);
            marked(Document::new(model, added::added(vocabulary, entries)), false)
        }
    };
    // Converters wrote that Gemma 4 needs no BOS.
    let always = rule.style == pre::Style::Marks && rule.add_bos;
    let bos = always || vocabulary.add_bos.unwrap_or(rule.add_bos);
    document.post_processor = around(vocabulary, entries, bos, vocabulary.add_eos.unwrap_or(false))?;
    Ok(document)
}

/// A SentencePiece model, whose merges follow from its scores.
pub(super) fn with_scores<'t>(
    vocabulary: &'t GgufVocabulary,
    entries: &'t Entries<'_>,
) -> Result<Document<'t>, TokenizerError> {
    let missing = || wrong(entries.place, "tokenizer.ggml.scores", "it is missing, and the model needs it");
    let scores = vocabulary.scores.as_deref().ok_or_else(missing)?;
    let merges = merges::from_scores(entries, scores)?;
    let unk = entries.unk(vocabulary).map(|id| entries.text(id));
    let model = model(entries, unk, merges, false);
    let document = Document::new(model, added::added(vocabulary, entries));
    let mut document = marked(document, vocabulary.add_space_prefix.unwrap_or(true));
    let (bos, eos) = (vocabulary.add_bos.unwrap_or(true), vocabulary.add_eos.unwrap_or(false));
    document.post_processor = around(vocabulary, entries, bos, eos)?;
    Ok(document)
}

fn model<'t>(
    entries: &'t Entries<'_>,
    unk_token: Option<&'t str>,
    merges: Vec<(&'t str, &'t str)>,
    ignore_merges: bool,
) -> Written<'t> {
    Written::Bpe {
        dropout: (),
        unk_token,
        continuing_subword_prefix: (),
        end_of_word_suffix: (),
        fuse_unk: unk_token.is_some(),
        byte_fallback: entries.kinds.contains(&Kind::Byte),
        ignore_merges,
        vocab: Ids(&entries.tokens),
        merges,
    }
}

/// Adds what represents spaces by marks. With `lead`, a space is put before a text and before what follows an added token.
fn marked(mut document: Document<'_>, lead: bool) -> Document<'_> {
    let prepend = json!({ "type": "Prepend", "prepend": MARK });
    let spaces = replace(" ", MARK);
    document.normalizer = sequence("normalizers", if lead { vec![prepend, spaces] } else { vec![spaces] });
    let mut decoders = vec![replace(MARK, " "), json!({ "type": "ByteFallback" }), json!({ "type": "Fuse" })];
    if lead {
        decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    document.decoder = sequence("decoders", decoders);
    document
}

/// The merges as pairs of tokens.
fn read<'t>(
    vocabulary: &'t GgufVocabulary,
    entries: &Entries<'_>,
) -> Result<Vec<(&'t str, &'t str)>, TokenizerError> {
    let place = entries.place;
    let missing = || wrong(place, MERGES, "it is missing, and the model needs it");
    let merges = vocabulary.merges.as_deref().ok_or_else(missing)?;
    let names = entries.names()?;
    let mut joined = String::new();
    let pairs = merges.iter().enumerate().map(|(at, merge)| {
        let rank = at + 1;
        let pair = split(merge).ok_or_else(|| {
            wrong(
                place,
                MERGES,
                format!("merge {rank} is not two tokens with a space between them: `{merge}`"),
            )
        })?;
        joined.clear();
        joined.extend([pair.0, pair.1]);
        match [pair.0, pair.1, joined.as_str()].into_iter().find(|token| !names.contains_key(token)) {
            None => Ok(pair),
            Some(token) => {
                let reason =
                    format!("merge {rank} (`{merge}`) needs the token `{token}`, which is not there");
                Err(wrong(place, MERGES, reason))
            }
        }
    });
    pairs.collect()
}

/// The two tokens of a merge. The first one has at least one character, which may be a space.
fn split(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let at = first + merge.get(first..)?.find(' ')?;
    let (left, right) = (merge.get(..at)?, merge.get(at + 1..)?);
    if right.is_empty() { None } else { Some((left, right)) }
}
