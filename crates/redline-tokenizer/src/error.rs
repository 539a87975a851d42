//! The error type, with hints.

use std::path::PathBuf;

/// Why a tokenizer could not be loaded or used. `Display` prints the fact and the place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The directory contains no readable tokenizer.
    #[error(
        "no tokenizer: neither `tokenizer.json` nor `vocab.json` with `merges.txt`{}\n  in `{}`",
        found_only(found), dir.display()
    )]
    NotFound {
        /// The directory.
        dir: PathBuf,
        /// The expected files that exist.
        found: Vec<&'static str>,
    },
    /// A file could not be read.
    #[error("cannot read the file: {source}\n  in `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The bytes are not valid UTF-8.
    #[error("not valid UTF-8: the byte at offset {offset} belongs to no character\n  in `{place}`")]
    NotUtf8 {
        /// File, or the origin given by the caller.
        place: String,
        /// Offset of the first bad byte.
        offset: usize,
    },
    /// Not JSON.
    #[error("not valid JSON: {reason}\n  in `{place}`")]
    Json {
        /// File, or the origin given by the caller.
        place: String,
        /// The parser's message, with line and column.
        reason: String,
    },
    /// JSON with a wrong type or a missing field.
    #[error("{reason}\n  in `{place}`")]
    Form {
        /// File, or the origin given by the caller.
        place: String,
        /// The field or value, and what is wrong with it.
        reason: String,
    },
    /// A tokenizer feature that this crate does not support.
    #[error("{part} `{found}` is not one that can be read; these can: {known}\n  in `{place}`")]
    Unsupported {
        /// File, or the origin given by the caller.
        place: String,
        /// The kind of feature: "model type", "decoder", ...
        part: &'static str,
        /// The name found.
        found: String,
        /// The supported names.
        known: String,
    },
    /// A key of a GGUF file's metadata that does not make sense.
    #[error("`{key}`: {reason}\n  in `{place}`")]
    Metadata {
        /// File, or the origin given by the caller.
        place: String,
        /// The key.
        key: String,
        /// What is wrong with its value.
        reason: String,
    },
    /// Two tokens share an id.
    #[error("id {id} belongs to two tokens, `{first}` and `{second}`\n  in `{place}`")]
    DuplicateId {
        /// File, or the origin given by the caller.
        place: String,
        /// The id.
        id: u32,
        /// The first token.
        first: String,
        /// The second token.
        second: String,
    },
    /// A token is in the vocabulary twice.
    #[error("token `{token}` has two ids, {first} and {second}\n  in `{place}`")]
    DuplicateToken {
        /// File, or the origin given by the caller.
        place: String,
        /// The token.
        token: String,
        /// The first id.
        first: u32,
        /// The second id.
        second: u32,
    },
    /// An id above the supported maximum.
    #[error("token `{token}` has id {id}, but an id can be at most {limit}\n  in `{place}`")]
    IdTooLarge {
        /// File, or the origin given by the caller.
        place: String,
        /// The token.
        token: String,
        /// Its id.
        id: u32,
        /// The highest supported id.
        limit: u32,
    },
    /// A merge without exactly two parts.
    #[error("merge {rank} has {parts} part(s), but a merge joins 2: `{text}`\n  in `{place}`")]
    MergeParts {
        /// File, or the origin given by the caller.
        place: String,
        /// The number of the merge, or of the line in `merges.txt`; both from 1.
        rank: usize,
        /// Number of parts.
        parts: usize,
        /// The merge as written.
        text: String,
    },
    /// The vocabulary lacks a part or the result of a merge.
    #[error("merge {rank} needs the token `{token}`, which the vocabulary does not have\n  in `{place}`")]
    MergeToken {
        /// File, or the origin given by the caller.
        place: String,
        /// The number of the merge, from 1; comments and empty lines are not counted.
        rank: usize,
        /// The missing token.
        token: String,
    },
    /// A setting names a token that does not exist.
    #[error("{user} needs the token `{token}`, which the vocabulary does not have\n  in `{place}`")]
    MissingToken {
        /// File, or the origin given by the caller.
        place: String,
        /// The setting that names it.
        user: String,
        /// The token.
        token: String,
    },
    /// An added token has another id in the file than encoding would assign.
    #[error("added token `{token}` states id {stated}, but encoding would give it {given}\n  in `{place}`")]
    AddedId {
        /// File, or the origin given by the caller.
        place: String,
        /// The token.
        token: String,
        /// The id in the file.
        stated: u32,
        /// The id that encoding would assign.
        given: u32,
    },
    /// An id without a token.
    #[error("token id {id} is not in the vocabulary (size {size})")]
    UnknownId {
        /// The id.
        id: u32,
        /// Highest id + 1.
        size: usize,
    },
    /// The text could not be encoded.
    #[error("a text of {bytes} bytes could not be encoded: {reason}")]
    Encode {
        /// Length of the text.
        bytes: usize,
        /// The encoder's message.
        reason: String,
    },
    /// A conversation that a chat template cannot be applied to.
    #[error("{reason}")]
    Conversation {
        /// The message or field, and what is wrong with it.
        reason: String,
        /// What the caller can do about it.
        hint: &'static str,
    },
    /// A vocabulary cannot be padded to fewer entries than it already has.
    #[error("the vocabulary has {has} entries and cannot be padded to {size}")]
    CannotShrink {
        /// Present number of entries.
        has: usize,
        /// Requested number of entries.
        size: usize,
    },
}

impl TokenizerError {
    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NotFound { .. } => {
                "a Hugging Face model directory has `tokenizer.json`; `AutoTokenizer.from_pretrained(..)` followed \
                 by `save_pretrained(DIR)` in Python writes it"
            }
            Self::Read { .. }
            | Self::Encode { .. }
            | Self::DuplicateId { .. }
            | Self::DuplicateToken { .. } => {
                return None;
            }
            Self::NotUtf8 { .. } | Self::Json { .. } => {
                "the file may be cut short or be a Git LFS pointer; download it again and compare its size"
            }
            Self::Form { .. } => "compare with the same file of the model this one comes from",
            Self::Unsupported { part: "tokenizer class", .. } => {
                "load it with `AutoTokenizer.from_pretrained(..)` in Python and `save_pretrained(DIR)`: that writes \
                 a `tokenizer.json`, which says everything itself"
            }
            Self::Unsupported { part: "tokenizer.ggml.model" | "tokenizer.ggml.pre", .. } => {
                "use the `tokenizer.json` of the model that this file was converted from"
            }
            Self::Unsupported { .. } => "BPE, WordPiece and Unigram tokenizers can be read",
            Self::Metadata { .. } => {
                "the file may be damaged or come from a program with a fault; convert the model again, or use the \
                 `tokenizer.json` of the model that it was converted from"
            }
            Self::IdTooLarge { .. } => "ids count from 0 without large gaps",
            Self::MergeParts { .. } => "each merge is two tokens with one space between them",
            Self::MergeToken { .. } | Self::MissingToken { .. } => {
                "vocabulary and merges may come from two different tokenizers"
            }
            Self::AddedId { given, .. } => {
                return Some(format!(
                    "added tokens outside the model's vocabulary are numbered in the order they \
                    stand, here from {given}; the missing ids before it need entries"
                ));
            }
            Self::UnknownId { size, .. } => {
                return Some(format!(
                    "ids go from 0 to {}; a model's output may be padded beyond its tokenizer",
                    size.saturating_sub(1)
                ));
            }
            Self::Conversation { hint, .. } => hint,
            Self::CannotShrink { has, .. } => return Some(format!("ask for at least {has} entries")),
        };
        Some(hint.to_owned())
    }
}

fn found_only(found: &[&'static str]) -> String {
    if found.is_empty() { String::new() } else { format!(" (only `{}` is there)", found.join("`, `")) }
}
