//! The only module that uses the `tokenizers` crate: it encodes forms that the native encoder does not cover, and is
//! the reference for measuring the native encoder.
//!
//! Its input has been checked. The library may still panic on unforeseen input, so calls are guarded and a panic
//! becomes an error.

use crate::{
    AddedToken, Encoding, TokenizerError, charsmap, encoding::EncodedText, encoding::Whitespace, json::form,
    model::BpeModel, model::Model, model::UnigramModel, model::WordPieceModel, source::Source,
};
use hashbrown::HashMap;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::{
    DecoderWrapper, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, TokenizerImpl,
};

const NORMALIZERS: [&str; 12] = [
    "Sequence",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Lowercase",
    "Prepend",
    "Replace",
    "Strip",
    "StripAccents",
    "BertNormalizer",
    "Precompiled",
];
const PRE_TOKENIZERS: [&str; 9] = [
    "Sequence",
    "ByteLevel",
    "Split",
    "Metaspace",
    "Digits",
    "Punctuation",
    "Whitespace",
    "WhitespaceSplit",
    "BertPreTokenizer",
];

type Inner =
    TokenizerImpl<ModelWrapper, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

/// Encodes text with the `tokenizers` crate.
pub(crate) struct Library(Inner);

/// The parts of a library tokenizer that are read from JSON.
pub(crate) struct LibraryParts {
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
}

impl Library {
    /// Parses normaliser and pre-tokeniser.
    pub(crate) fn parts(source: Source<'_>) -> Result<LibraryParts, TokenizerError> {
        let Source { place, normalizer, pre_tokenizer, .. } = source;
        Ok(LibraryParts {
            normalizer: component(place, "normalizer", "normalizers", &NORMALIZERS, normalizer)?,
            pre_tokenizer: component(
                place,
                "pre_tokenizer",
                "pretokenizers",
                &PRE_TOKENIZERS,
                pre_tokenizer,
            )?,
        })
    }

    /// Builds the encoder from a checked model.
    pub(crate) fn new(source: Source<'_>, parts: LibraryParts) -> Result<Self, TokenizerError> {
        guarded(|| {
            let mut library = Inner::new(model(source.checked.model)?);
            library.with_normalizer(parts.normalizer)?.with_pre_tokenizer(parts.pre_tokenizer);
            library.add_tokens(source.added.iter().map(|(token, _)| library_token(token)))?;
            refuse_one_form(source.added, |id| library.id_to_token(id))?;
            Ok(Self(library))
        })
        .map_err(|reason| form(source.place, reason))
    }

    /// The ids of a text, without ids around it.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        guarded(|| Ok(self.0.encode_fast(text, false)?.get_ids().to_vec()))
            .map_err(|reason| TokenizerError::Encode { bytes: text.len(), reason })
    }

    /// The ids and their byte offsets, with the whitespace of all tokens.
    pub(crate) fn encode_with_offsets(&self, text: &str) -> Result<EncodedText, TokenizerError> {
        let encoding = guarded(|| self.0.encode(text, false))
            .map_err(|reason| TokenizerError::Encode { bytes: text.len(), reason })?;
        let offsets = encoding.get_offsets().iter().map(|&(start, end)| start..end).collect();
        let added = encoding.get_tokens().iter().map(|token| Whitespace::of(token)).enumerate().collect();
        Ok(EncodedText { encoding: Encoding { ids: encoding.get_ids().to_vec(), offsets }, added })
    }

    /// The form of an added token that the decoder receives: as the normaliser leaves it.
    pub(crate) fn decoded_form(&self, id: u32) -> Option<String> {
        self.0.id_to_token(id)
    }
}

/// Refuses two added tokens that the normaliser makes the same: the library finds one of them, and another one in the next process.
fn refuse_one_form(
    added: &[(AddedToken, u32)],
    form: impl Fn(u32) -> Option<String>,
) -> Result<(), AnyError> {
    let mut forms: HashMap<String, &str> = HashMap::new();
    for (token, id) in added.iter().filter(|(token, _)| token.normalized) {
        let (content, form) = (token.content.as_str(), form(*id).unwrap_or_else(|| token.content.clone()));
        if let Some(other) = forms.insert(form, content).filter(|other| *other != content) {
            return Err(
                format!("the added tokens `{other}` and `{content}` have the same normal form").into()
            );
        }
    }
    Ok(())
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Calls the library; its error or panic is returned as text.
fn guarded<T>(call: impl FnOnce() -> Result<T, AnyError>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(text.unwrap_or("the tokenizers library failed").to_owned())
        }
    }
}

fn model(model: &Model) -> Result<ModelWrapper, AnyError> {
    Ok(match model {
        Model::Bpe(model) => ModelWrapper::BPE(bpe(model)?),
        Model::WordPiece(model) => ModelWrapper::WordPiece(word_piece(model)?),
        Model::Unigram(UnigramModel { vocab, unk_id, byte_fallback }) => {
            ModelWrapper::Unigram(Unigram::from(vocab.clone(), Some(*unk_id), *byte_fallback)?)
        }
    })
}

fn word_piece(model: &WordPieceModel) -> Result<WordPiece, AnyError> {
    let vocab: Vocab = model.vocab.iter().cloned().collect();
    WordPiece::builder()
        .vocab(vocab)
        .unk_token(model.unk_token.clone())
        .continuing_subword_prefix(model.continuing_subword_prefix.clone())
        .max_input_chars_per_word(model.max_input_chars_per_word)
        .build()
}

fn bpe(model: &BpeModel) -> Result<BPE, AnyError> {
    let vocab: Vocab = model.vocab.iter().cloned().collect();
    let mut builder = BPE::builder()
        .vocab_and_merges(vocab, model.merges.clone())
        .fuse_unk(model.fuse_unk)
        .byte_fallback(model.byte_fallback)
        .ignore_merges(model.ignore_merges);
    if let Some(token) = model.unk_token.clone() {
        builder = builder.unk_token(token);
    }
    if let Some(prefix) = model.continuing_subword_prefix.clone() {
        builder = builder.continuing_subword_prefix(prefix);
    }
    if let Some(suffix) = model.end_of_word_suffix.clone() {
        builder = builder.end_of_word_suffix(suffix);
    }
    builder.build()
}

fn library_token(token: &AddedToken) -> tokenizers::AddedToken {
    tokenizers::AddedToken::from(token.content.as_str(), token.special)
        .normalized(token.normalized)
        .single_word(token.single_word)
        .lstrip(token.lstrip)
        .rstrip(token.rstrip)
}

/// Parses a normaliser or pre-tokeniser. Each part must be one of the `known` kinds.
fn component<T: DeserializeOwned>(
    place: &str,
    part: &'static str,
    list: &str,
    known: &[&str],
    value: &Value,
) -> Result<Option<T>, TokenizerError> {
    if value.is_null() {
        return Ok(None);
    }
    check_kinds(place, part, list, known, value)?;
    guarded(|| Ok(T::deserialize(value)?))
        .map(Some)
        .map_err(|reason| form(place, format!("`{part}` cannot be read: {reason}")))
}

fn check_kinds(
    place: &str,
    part: &'static str,
    list: &str,
    known: &[&str],
    value: &Value,
) -> Result<(), TokenizerError> {
    let kind = value["type"].as_str().unwrap_or("without a type");
    if !known.contains(&kind) {
        let known = format!("`{}`", known.join("`, `"));
        return Err(TokenizerError::Unsupported {
            place: place.to_owned(),
            part,
            found: kind.to_owned(),
            known,
        });
    }
    let pattern = &value["pattern"];
    if kind == "Replace" && (pattern["String"] == "" || pattern["Regex"] == "") {
        // An empty pattern matches between all characters, and the library's offset bookkeeping fails on that.
        return Err(form(place, format!("`{part}`: a `Replace` has an empty pattern")));
    }
    if kind == "Precompiled" {
        let map = value["precompiled_charsmap"].as_str();
        let map = map.ok_or_else(|| form(place, format!("`{part}.precompiled_charsmap` is not a text")))?;
        charsmap::check_base64(map)
            .map_err(|reason| form(place, format!("`{part}.precompiled_charsmap`: {reason}")))?;
    }
    let parts = value[list].as_array();
    parts.into_iter().flatten().try_for_each(|value| check_kinds(place, part, list, known, value))
}
