//! Unigram (T5, XLM-RoBERTa).

use super::document::{Document, Written, around, replace, sequence};
use super::entries::Entries;
use super::kind::Kind;
use super::{GgufVocabulary, added, wrong};
use crate::{TokenizerError, charsmap};
use serde_json::json;

/// The mark that represents a space.
const MARK: &str = "▁";

pub(super) fn document<'t>(
    vocabulary: &GgufVocabulary,
    entries: &'t Entries<'_>,
) -> Result<Document<'t>, TokenizerError> {
    let missing = |key: &str| wrong(entries.place, key, "it is missing, and the model needs it");
    let scores = vocabulary.scores.as_ref().ok_or_else(|| missing("tokenizer.ggml.scores"))?;
    let unk = entries.unk(vocabulary).ok_or_else(|| missing("tokenizer.ggml.unknown_token_id"))?;
    let model = Written::Unigram {
        unk_id: unk,
        vocab: entries
            .tokens
            .iter()
            .zip(scores)
            .map(|(token, score)| (&**token, f64::from(*score)))
            .collect(),
        byte_fallback: entries.kinds.contains(&Kind::Byte),
    };
    let lead = vocabulary.add_space_prefix.unwrap_or(true);
    let mut document = Document::new(model, added::added(vocabulary, entries));
    let mut normalizers = Vec::new();
    if !vocabulary.precompiled_charsmap.is_empty() {
        charsmap::check(&vocabulary.precompiled_charsmap)
            .map_err(|reason| wrong(entries.place, "tokenizer.ggml.precompiled_charsmap", reason))?;
        let map = charsmap::to_base64(&vocabulary.precompiled_charsmap);
        normalizers.push(json!({ "type": "Precompiled", "precompiled_charsmap": map }));
    }
    let scheme = if lead { "always" } else { "never" };
    if vocabulary.remove_extra_whitespaces.unwrap_or(false) {
        normalizers.push(json!({ "type": "Strip", "strip_left": true, "strip_right": true }));
        let spaces = json!({ "Regex": " {2,}" });
        normalizers.push(json!({ "type": "Replace", "pattern": spaces, "content": " " }));
        document.pre_tokenizer =
            json!({ "type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": true });
    } else {
        // A metaspace would not put a space before a text that begins with one.
        if lead {
            normalizers.push(json!({ "type": "Prepend", "prepend": MARK }));
        }
        normalizers.push(replace(" ", MARK));
    }
    document.normalizer = sequence("normalizers", normalizers);
    let (bos, eos) = (vocabulary.add_bos.unwrap_or(false), vocabulary.add_eos.unwrap_or(true));
    document.post_processor = around(vocabulary, entries, bos, eos)?;
    document.decoder = json!({ "type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme });
    if entries.kinds.contains(&Kind::Byte) {
        let mut decoders =
            vec![replace(MARK, " "), json!({ "type": "ByteFallback" }), json!({ "type": "Fuse" })];
        if lead {
            decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
        }
        document.decoder = sequence("decoders", decoders);
    }
    Ok(document)
}
