//! WordPiece (BERT). A file marks the beginnings of words instead of their continuations.

use super::document::{Document, Ids, Written, template};
use super::entries::Entries;
use super::kind::Kind;
use super::{GgufVocabulary, added, wrong};
use crate::TokenizerError;
use serde_json::json;
use std::borrow::Cow;

/// The mark before the beginning of a word, which the converter puts there.
const MARK: &str = "▁";
/// The mark before the continuation of a word, which the converter removes.
const CONTINUED: &str = "##";

/// Restores the tokens as BERT's vocabulary has them.
pub(super) fn restore(entries: &mut Entries<'_>) {
    for (token, kind) in entries.tokens.iter_mut().zip(&entries.kinds) {
        let original = match token.strip_prefix(MARK) {
            _ if matches!(kind, Kind::Control | Kind::Unknown | Kind::Unused) => continue,
            Some("") => format!("{CONTINUED}{MARK}"),
            Some(beginning) => beginning.to_owned(),
            // Older converters leave names in brackets alone, such as `[unused1]`.
            None if token.len() > 2 && token.starts_with('[') && token.ends_with(']') => continue,
            None => format!("{CONTINUED}{token}"),
        };
        *token = Cow::Owned(original);
    }
}

pub(super) fn document<'t>(
    vocabulary: &GgufVocabulary,
    entries: &'t Entries<'_>,
) -> Result<Document<'t>, TokenizerError> {
    let names = entries.names()?;
    let named = |given: Option<u32>, name: &str| given.or_else(|| names.get(name).copied());
    let need = |key: &str, id: Option<u32>, name: &str| {
        id.ok_or_else(|| wrong(entries.place, key, format!("it is missing, and no token is `{name}`")))
    };
    let special = &vocabulary.special;
    let unk = named(entries.unk(vocabulary), "[UNK]");
    let unk = need("tokenizer.ggml.unknown_token_id", unk, "[UNK]")?;
    let cls = named(special.cls.or(special.bos), "[CLS]");
    let cls = need("tokenizer.ggml.cls_token_id", cls, "[CLS]")?;
    let sep = named(special.sep.or(special.eos), "[SEP]");
    let sep = need("tokenizer.ggml.seperator_token_id", sep, "[SEP]")?;
    let model = Written::WordPiece {
        unk_token: entries.text(unk),
        continuing_subword_prefix: CONTINUED,
        max_input_chars_per_word: 100,
        vocab: Ids(&entries.tokens),
    };
    let mut document = Document::new(model, added::added(vocabulary, entries));
    document.normalizer = json!({
        "type": "BertNormalizer",
        "clean_text": true,
        "handle_chinese_chars": true,
        "strip_accents": vocabulary.strip_accents,
        "lowercase": vocabulary.lowercase.unwrap_or(true),
    });
    document.pre_tokenizer = json!({ "type": "BertPreTokenizer" });
    let wanted = |wanted: Option<bool>, id: u32| Some(id).filter(|_| wanted != Some(false));
    let around = (wanted(vocabulary.add_bos, cls), wanted(vocabulary.add_eos, sep));
    document.post_processor = template(entries, around, Some((vec![sep], 1)));
    document.decoder = json!({ "type": "WordPiece", "prefix": CONTINUED, "cleanup": true });
    Ok(document)
}
