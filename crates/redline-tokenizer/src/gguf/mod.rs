//! Tokenizers from the metadata of a GGUF file: the metadata becomes the `tokenizer.json` that says the same.
//!
//! Facts about the keys, the defaults and the names of pre-tokenizers are those of llama.cpp (`llama-vocab.cpp`) and of its
//! converters. Ids are those of the tokenizer from which the file was made, where the metadata suffice for that.

mod added;
mod bpe;
mod document;
mod ends;
mod entries;
mod kind;
mod merges;
mod pre;
mod unigram;
mod word_piece;

use crate::gap::GapTokens;
use crate::{ChatTemplate, Encoder, Tokenizer, TokenizerError, chat};
use entries::Entries;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// The tokenizer part of a GGUF file's metadata, as plain data. Each field names its key; absent keys are `None` or empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GgufVocabulary {
    /// `tokenizer.ggml.model`: `gpt2` (byte-level BPE), `gemma4`, `llama` (SentencePiece BPE), `bert` (WordPiece) or `t5`
    /// (Unigram).
    pub model: String,
    /// `tokenizer.ggml.pre`: the name of the rule that splits text into words, for byte-level BPE.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`: the tokens by id.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.scores`: one per token.
    pub scores: Option<Vec<f32>>,
    /// `tokenizer.ggml.token_type`: one per token; 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub types: Option<Vec<i32>>,
    /// `tokenizer.ggml.merges`: two tokens with a space between them, the best merge first.
    pub merges: Option<Vec<String>>,
    /// The ids of tokens with a purpose.
    pub special: GgufSpecialIds,
    /// `tokenizer.ggml.add_bos_token`
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`
    pub add_eos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`: whether a space is put before a text (SentencePiece).
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.ggml.remove_extra_whitespaces`: whether spaces at the ends and repeated spaces are removed (Unigram).
    pub remove_extra_whitespaces: Option<bool>,
    /// `tokenizer.ggml.normalizer.lowercase` (WordPiece; the default is true)
    pub lowercase: Option<bool>,
    /// `tokenizer.ggml.normalizer.strip_accents` (WordPiece; the default is that of `lowercase`)
    pub strip_accents: Option<bool>,
    /// `tokenizer.ggml.precompiled_charsmap`: the compiled character map of SentencePiece (Unigram).
    pub precompiled_charsmap: Vec<u8>,
    /// `tokenizer.chat_template` under the name `default`, and every `tokenizer.chat_template.NAME`.
    pub chat_templates: BTreeMap<String, String>,
    /// `general.name`, by which some models are known whose special tokens take whitespace.
    pub name: Option<String>,
    /// `general.architecture`, for the same purpose.
    pub architecture: Option<String>,
}

/// Ids of tokens with a purpose; the key of each is `tokenizer.ggml.NAME_token_id`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GgufSpecialIds {
    /// `bos`: the beginning of a text
    pub bos: Option<u32>,
    /// `eos`: the end of a text
    pub eos: Option<u32>,
    /// `eot`: the end of a turn
    pub eot: Option<u32>,
    /// `eom`: the end of a message
    pub eom: Option<u32>,
    /// `unknown`
    pub unk: Option<u32>,
    /// `seperator` (spelled so)
    pub sep: Option<u32>,
    /// `padding`
    pub pad: Option<u32>,
    /// `cls`
    pub cls: Option<u32>,
    /// `mask`
    pub mask: Option<u32>,
    /// `fim_pre`: before the text before a gap
    pub fim_pre: Option<u32>,
    /// `fim_suf`: before the text after a gap
    pub fim_suf: Option<u32>,
    /// `fim_mid`: before the text of a gap
    pub fim_mid: Option<u32>,
    /// `fim_pad`: padding of a text with a gap
    pub fim_pad: Option<u32>,
    /// `fim_rep`: the name of a repository
    pub fim_rep: Option<u32>,
    /// `fim_sep`: the end of a file
    pub fim_sep: Option<u32>,
}

impl GgufSpecialIds {
    /// The tokens around the parts of a text with a gap, if all that are needed are named.
    fn gap(&self) -> Option<GapTokens> {
        let ends = [self.fim_pad, self.fim_rep, self.fim_sep].into_iter().flatten().collect();
        Some(GapTokens {
            prefix: self.fim_pre?,
            suffix: self.fim_suf?,
            middle: Some(self.fim_mid?),
            repository: self.fim_rep,
            file: self.fim_sep,
            ends,
        })
    }

    /// The ids with their keys.
    fn all(&self) -> [(&'static str, Option<u32>); 15] {
        [
            ("tokenizer.ggml.bos_token_id", self.bos),
            ("tokenizer.ggml.eos_token_id", self.eos),
            ("tokenizer.ggml.eot_token_id", self.eot),
            ("tokenizer.ggml.eom_token_id", self.eom),
            ("tokenizer.ggml.unknown_token_id", self.unk),
            ("tokenizer.ggml.seperator_token_id", self.sep),
            ("tokenizer.ggml.padding_token_id", self.pad),
            ("tokenizer.ggml.cls_token_id", self.cls),
            ("tokenizer.ggml.mask_token_id", self.mask),
            ("tokenizer.ggml.fim_pre_token_id", self.fim_pre),
            ("tokenizer.ggml.fim_suf_token_id", self.fim_suf),
            ("tokenizer.ggml.fim_mid_token_id", self.fim_mid),
            ("tokenizer.ggml.fim_pad_token_id", self.fim_pad),
            ("tokenizer.ggml.fim_rep_token_id", self.fim_rep),
            ("tokenizer.ggml.fim_sep_token_id", self.fim_sep),
        ]
    }
}

/// The names of `tokenizer.ggml.model` that can be read.
const MODELS: [&str; 5] = ["gpt2", "gemma4", "llama", "bert", "t5"];

impl GgufVocabulary {
    /// The tokenizer. `place` names the file in messages.
    ///
    /// # Errors
    /// Names the key that is missing, damaged or not supported.
    pub fn tokenizer(&self, place: &str) -> Result<Tokenizer, TokenizerError> {
        self.tokenizer_with(place, Encoder::default())
    }

    /// Like [`tokenizer`](Self::tokenizer), with a chosen encoder.
    pub fn tokenizer_with(&self, place: &str, encoder: Encoder) -> Result<Tokenizer, TokenizerError> {
        let mut tokenizer = Tokenizer::from_bytes_with(place, &self.tokenizer_json(place)?, encoder)?;
        tokenizer.gap = self.special.gap();
        Ok(tokenizer)
    }

    /// The `tokenizer.json` that says the same as the metadata.
    pub fn tokenizer_json(&self, place: &str) -> Result<Vec<u8>, TokenizerError> {
        let mut entries = Entries::new(place, self)?;
        match self.model.as_str() {
            "gpt2" | "gemma4" => bpe::with_merges(self, &entries)?.to_json(place),
            "llama" => bpe::with_scores(self, &entries)?.to_json(place),
            "bert" => {
                word_piece::restore(&mut entries);
                word_piece::document(self, &entries)?.to_json(place)
            }
            _ => unigram::document(self, &entries)?.to_json(place),
        }
    }

    /// The ids after which generation ends, ascending: those of EOS, of the end of a turn and of a message, and those of
    /// tokens known by their name (`<|im_end|>`, `<end_of_turn>`, ...).
    pub fn end_ids(&self, place: &str) -> Result<Vec<u32>, TokenizerError> {
        Ok(Entries::new(place, self)?.ends)
    }

    /// The chat template, if there is one.
    pub fn chat_template(&self, place: &str) -> Result<Option<ChatTemplate>, TokenizerError> {
        let key = |name: &str| match name {
            "default" => "tokenizer.chat_template".to_owned(),
            name => format!("tokenizer.chat_template.{name}"),
        };
        let known = self.chat_templates.iter().filter(|(name, _)| chat::NAMES.contains(&name.as_str()));
        let sources: BTreeMap<_, _> = known
            .map(|(name, source)| (name.clone(), (format!("{place}: {}", key(name)), source.clone())))
            .collect();
        if sources.is_empty() {
            return Ok(None);
        }
        if !sources.contains_key("default") {
            return Err(wrong(
                place,
                "tokenizer.chat_template",
                "it is missing, but there are templates with names",
            ));
        }
        ChatTemplate::of_several(sources, self.named_tokens(place)?).map(Some)
    }

    /// Reads a chat template from a file of its own, with the special tokens of this vocabulary.
    pub fn chat_template_in(&self, file: &Path, place: &str) -> Result<ChatTemplate, TokenizerError> {
        ChatTemplate::from_file_with(file, self.named_tokens(place)?)
    }

    /// The `tokenizer_config.json` that says what a `tokenizer.json` does not: special tokens by name, and the chat templates.
    pub fn tokenizer_config_json(&self, place: &str) -> Result<Vec<u8>, TokenizerError> {
        let mut config: Map<String, Value> =
            self.named_tokens(place)?.into_iter().map(|(name, token)| (name, token.into())).collect();
        let only = self.chat_templates.get("default").filter(|_| self.chat_templates.len() == 1);
        if let Some(template) = only {
            config.insert("chat_template".to_owned(), template.as_str().into());
        } else if !self.chat_templates.is_empty() {
            let named = self.chat_templates.iter();
            let named = named.map(|(name, template)| json!({ "name": name, "template": template }));
            config.insert("chat_template".to_owned(), named.collect());
        }
        Ok(format!("{:#}\n", Value::Object(config)).into_bytes())
    }

    /// The special tokens that templates may name, by their names in `tokenizer_config.json`.
    fn named_tokens(&self, place: &str) -> Result<BTreeMap<String, String>, TokenizerError> {
        let entries = Entries::new(place, self)?;
        let special = &self.special;
        let named = [
            ("bos_token", entries.bos(self)),
            ("eos_token", entries.eos(self)),
            ("unk_token", special.unk),
            ("sep_token", special.sep),
            ("pad_token", special.pad),
            ("cls_token", special.cls),
            ("mask_token", special.mask),
        ];
        let text = |id: u32| entries.tokens.get(id as usize).map(ToString::to_string);
        Ok(named.into_iter().filter_map(|(name, id)| Some((name.to_owned(), text(id?)?))).collect())
    }

    /// What a user should know about a file that says too little, if it does.
    pub fn warning(&self) -> Option<&'static str> {
        let assumed = self.model == "gpt2" && self.pre.as_deref().is_none_or(|pre| pre == "default");
        assumed.then_some(
            "the file does not name the rule that splits text into words (`tokenizer.ggml.pre`), so the ids of a text \
             may differ from those that the model was trained with",
        )
    }

    /// Refuses models that cannot be read.
    fn check_model(&self, place: &str) -> Result<(), TokenizerError> {
        if MODELS.contains(&self.model.as_str()) {
            return Ok(());
        }
        Err(TokenizerError::Unsupported {
            place: place.to_owned(),
            part: "tokenizer.ggml.model",
            found: self.model.clone(),
            known: format!("`{}`", MODELS.join("`, `")),
        })
    }
}

/// The error of a key, with what is wrong with its value.
fn wrong(place: &str, key: &str, reason: impl Into<String>) -> TokenizerError {
    TokenizerError::Metadata { place: place.to_owned(), key: key.to_owned(), reason: reason.into() }
}
