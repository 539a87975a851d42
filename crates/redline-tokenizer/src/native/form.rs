//! Determines whether the native encoder covers the form of a `tokenizer.json`.

use super::bpe::{Bpe, First, Vocabulary};
use super::normal::{MARK, Normalizer};
use super::scan::Rule;
use super::spaces::Cut;
use crate::model::{BpeModel, Checked};
use crate::source::Source;
use crate::text::byte_of;
use hashbrown::HashMap;
use serde_json::Value;

/// How a stretch of text is split into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    /// Byte-level: by the rule of a family. With `lead`, a space is put before a stretch that does not begin with
    /// one.
    Bytes { rule: Rule, lead: bool },
    /// SentencePiece style: cut at spaces. `lead` selects the stretches before which a space is put if they do not
    /// begin with one.
    Spaces { lead: Lead, cut: Cut },
}

/// The stretches of text that get a leading space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lead {
    Never,
    /// The stretch at the beginning of the text.
    First,
    Always,
}

/// Parses normaliser and pre-tokeniser, or returns why they are not covered.
pub(super) fn read(source: Source<'_>, model: &BpeModel) -> Result<(Normalizer, Words), String> {
    let normalizer = normalizer(source.normalizer)
        .ok_or_else(|| format!("its normalizer is not covered: {}", shown(source.normalizer)))?;
    let words = words(normalizer, source, model)
        .ok_or_else(|| format!("its pre_tokenizer is not covered: {}", shown(source.pre_tokenizer)))?;
    Ok((normalizer, words))
}

/// Shortens a JSON value for messages.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// The parts of a `Sequence`, or the component itself as the only part.
fn parts<'a>(value: &'a Value, list: &str) -> Vec<&'a Value> {
    match value["type"].as_str() {
        None => Vec::new(),
        Some("Sequence") => value[list].as_array().into_iter().flatten().collect(),
        Some(_) => vec![value],
    }
}

fn normalizer(value: &Value) -> Option<Normalizer> {
    let mark = MARK.encode_utf8(&mut [0; 4]).to_owned();
    let spaces = |part: &Value| {
        part["type"] == "Replace" && part["pattern"]["String"] == " " && part["content"] == *mark
    };
    match parts(value, "normalizers")[..] {
        [] => Some(Normalizer::None),
        [nfc] if nfc["type"] == "NFC" => Some(Normalizer::Nfc),
        [replace] if spaces(replace) => Some(Normalizer::Spaces { lead: false }),
        [prepend, replace]
            if prepend["type"] == "Prepend" && prepend["prepend"] == *mark && spaces(replace) =>
        {
            Some(Normalizer::Spaces { lead: true })
        }
        _ => None,
    }
}

fn words(normalizer: Normalizer, source: Source<'_>, model: &BpeModel) -> Option<Words> {
    let spaces = |lead, each| {
        let cut = match each {
            true => Cut::Each,
            // With `ignore_merges`, a stretch that is a token as a whole would have to become that token.
            false if !model.ignore_merges && splits_at_spaces(model) => Cut::Runs,
            false => Cut::Never,
        };
        Some(Words::Spaces { lead, cut })
    };
    let is_spaced = normalizer.marks();
    match parts(source.pre_tokenizer, "pretokenizers")[..] {
        [] if is_spaced => spaces(Lead::Never, false),
        // The normaliser leaves no spaces to split at.
        [split] if is_spaced && split["type"] == "Split" && split["pattern"]["String"] == " " => {
            if split["invert"] == false { spaces(Lead::Never, false) } else { None }
        }
        [metaspace] if normalizer == Normalizer::None && metaspace["type"] == "Metaspace" => {
            let is_mark = metaspace["replacement"].as_str() == Some(MARK.encode_utf8(&mut [0; 4]));
            let lead = match metaspace["prepend_scheme"].as_str() {
                None | Some("always") => Lead::Always,
                Some("first") => Lead::First,
                _ => Lead::Never,
            };
            if is_mark { spaces(lead, metaspace["split"] != false) } else { None }
        }
        [bytes] if !is_spaced && bytes["type"] == "ByteLevel" && bytes["use_regex"] != false => {
            Some(Words::Bytes { rule: Rule::Gpt2, lead: bytes["add_prefix_space"] == true })
        }
        [split, bytes] if !is_spaced && split["type"] == "Split" && bytes["type"] == "ByteLevel" => {
            let all = match split["behavior"].as_str() {
                Some("Isolated") => split["invert"] == false,
                // The unmatched text is removed, but the regex matches everything.
                Some("Removed") => split["invert"] == true,
                _ => false,
            };
            let plain = bytes["use_regex"] == false && bytes["add_prefix_space"] == false;
            let rule = split["pattern"]["Regex"].as_str().and_then(Rule::of_regex)?;
            if all && plain { Some(Words::Bytes { rule, lead: false }) } else { None }
        }
        _ => None,
    }
}

/// Whether no merge joins the end of a word to a space.
fn splits_at_spaces(model: &BpeModel) -> bool {
    model.merges.iter().all(|(left, right)| !right.starts_with(MARK) || left.ends_with(MARK))
}

/// Builds the model, or returns why it is not covered.
pub(super) fn model(checked: &Checked<'_>, model: &BpeModel, words: Words) -> Result<Bpe, String> {
    let BpeModel { continuing_subword_prefix, end_of_word_suffix, byte_fallback, ignore_merges, .. } = model;
    for (name, part) in
        [("continuing_subword_prefix", continuing_subword_prefix), ("end_of_word_suffix", end_of_word_suffix)]
    {
        if let Some(part) = part.as_ref().filter(|part| !part.is_empty()) {
            let part = shown(&Value::from(part.as_str()));
            return Err(format!("its `{name}` {part} is not covered"));
        }
    }
    if checked.ids.contains_key("") {
        return Err("a token without text is not covered".to_owned());
    }
    let (first, tokens) = match words {
        Words::Bytes { .. } => {
            (bytes(checked)?, checked.tokens.iter().map(|token| raw(token.as_deref()?)).collect())
        }
        Words::Spaces { .. } if !byte_fallback => {
            return Err("a SentencePiece-style vocabulary without byte fallback is not covered".to_owned());
        }
        Words::Spaces { .. } => {
            (characters(checked)?, checked.tokens.iter().map(|token| spaced(token.as_deref()?)).collect())
        }
    };
    let tokens: Vec<_> = tokens;
    Ok(Bpe::new(Vocabulary { tokens: &tokens, first, merges: &checked.merges, whole: *ignore_merges }))
}

/// The bytes of a byte-level token.
fn raw(token: &str) -> Option<Vec<u8>> {
    token.chars().map(byte_of).collect()
}

/// A SentencePiece-style token with marks replaced by spaces. `None` if it contains a space, because normalised text
/// has none.
fn spaced(token: &str) -> Option<Vec<u8>> {
    if token.contains(' ') { None } else { Some(token.replace(MARK, " ").into_bytes()) }
}

fn bytes(checked: &Checked<'_>) -> Result<First, String> {
    let mut ids = Box::new([u32::MAX; 256]);
    for (token, id) in &checked.ids {
        let mut chars = token.chars();
        if let (Some(c), None) = (chars.next(), chars.next())
            && let Some(byte) = byte_of(c)
        {
            ids[byte as usize] = *id;
        }
    }
    match ids.iter().position(|id| *id == u32::MAX) {
        Some(byte) => Err(format!("byte {byte:#04x} has no token, which is not covered")),
        None => Ok(First::Bytes(ids)),
    }
}

fn characters(checked: &Checked<'_>) -> Result<First, String> {
    let mut bytes = Box::new([u32::MAX; 256]);
    for (byte, id) in (0..=255_u8).zip(bytes.iter_mut()) {
        let token = format!("<{byte:#04X}>");
        *id = *checked
            .ids
            .get(token.as_str())
            .ok_or_else(|| format!("`{token}` is no token, which is not covered"))?;
    }
    if let Some([left, right, id]) =
        checked.merges.iter().find(|merge| merge.iter().any(|id| bytes.contains(id)))
    {
        return Err(format!("a merge with a byte token (ids {left} and {right} to {id}) is not covered"));
    }
    let (mut ascii, mut wide) = (Box::new([u32::MAX; 128]), HashMap::new());
    for (token, id) in &checked.ids {
        let mut chars = token.chars();
        let (Some(c), None) = (chars.next(), chars.next()) else { continue };
        let c = match c {
            ' ' => continue,
            MARK => ' ',
            c => c,
        };
        match ascii.get_mut(c as usize) {
            Some(place) => *place = *id,
            None => drop(wide.insert(c, *id)),
        }
    }
    if ascii[b' ' as usize] == u32::MAX {
        return Err(format!("`{MARK}` is no token, which is not covered"));
    }
    Ok(First::Characters { ascii, wide, bytes })
}
