//! What can go wrong, and what to do about it.

use std::path::PathBuf;

/// Why a tokenizer could not be loaded or used. `Display` gives the fact and the place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The directory holds no tokenizer that can be read.
    #[error(
        "no tokenizer: neither `tokenizer.json` nor `vocab.json` with `merges.txt`{}\n  in `{}`",
        found_only(found), dir.display()
    )]
    NotFound {
        /// The directory.
        dir: PathBuf,
        /// Those of the files looked for that are there.
        found: Vec<&'static str>,
    },
    /// A file could not be read.
    #[error("cannot read the file: {source}\n  in `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The bytes are not UTF-8.
    #[error("not valid UTF-8: the byte at offset {offset} belongs to no character\n  in `{place}`")]
    NotUtf8 {
        /// File, or the origin given by the caller.
        place: String,
        /// Bytes before the first bad one.
        offset: usize,
    },
    /// Not JSON at all.
    #[error("not valid JSON: {reason}\n  in `{place}`")]
    Json {
        /// File, or the origin given by the caller.
        place: String,
        /// What the parser said, with line and column.
        reason: String,
    },
    /// JSON of another form: a wrong type, a missing field.
    #[error("{reason}\n  in `{place}`")]
    Form {
        /// File, or the origin given by the caller.
        place: String,
        /// The field or value and what is wrong with it.
        reason: String,
    },
    /// Something a tokenizer may have but this crate does not read.
    #[error("{part} `{found}` is not one that can be read; these can: {known}\n  in `{place}`")]
    Unsupported {
        /// File, or the origin given by the caller.
        place: String,
        /// What it is: "model type", "decoder", ...
        part: &'static str,
        /// The name found.
        found: String,
        /// The names that can be read.
        known: String,
    },
    /// Two tokens share an id.
    #[error("id {id} belongs to two tokens, `{first}` and `{second}`\n  in `{place}`")]
    DuplicateId {
        /// File, or the origin given by the caller.
        place: String,
        /// The id.
        id: u32,
        /// One token.
        first: String,
        /// The other.
        second: String,
    },
    /// A token stands in the vocabulary twice.
    #[error("token `{token}` has two ids, {first} and {second}\n  in `{place}`")]
    DuplicateToken {
        /// File, or the origin given by the caller.
        place: String,
        /// The token.
        token: String,
        /// One id.
        first: u32,
        /// The other.
        second: u32,
    },
    /// An id beyond any vocabulary.
    #[error("token `{token}` has id {id}, but an id can be at most {limit}\n  in `{place}`")]
    IdTooLarge {
        /// File, or the origin given by the caller.
        place: String,
        /// The token.
        token: String,
        /// Its id.
        id: u32,
        /// The highest id accepted.
        limit: u32,
    },
    /// A merge that is not two parts.
    #[error("merge {rank} has {parts} part(s), but a merge joins 2: `{text}`\n  in `{place}`")]
    MergeParts {
        /// File, or the origin given by the caller.
        place: String,
        /// Which merge; in `merges.txt` the line; both from 1.
        rank: usize,
        /// How many parts it has.
        parts: usize,
        /// The merge as written.
        text: String,
    },
    /// A merge whose parts or product the vocabulary does not have.
    #[error("merge {rank} needs the token `{token}`, which the vocabulary does not have\n  in `{place}`")]
    MergeToken {
        /// File, or the origin given by the caller.
        place: String,
        /// Which merge, from 1, comments and empty lines not counted.
        rank: usize,
        /// The missing token.
        token: String,
    },
    /// A token is named that does not exist.
    #[error("{user} needs the token `{token}`, which the vocabulary does not have\n  in `{place}`")]
    MissingToken {
        /// File, or the origin given by the caller.
        place: String,
        /// Who names it.
        user: String,
        /// The token.
        token: String,
    },
    /// An added token states an id that encoding would not give.
    #[error("added token `{token}` states id {stated}, but encoding would give it {given}\n  in `{place}`")]
    AddedId {
        /// File, or the origin given by the caller.
        place: String,
        /// The token.
        token: String,
        /// The id in the file.
        stated: u32,
        /// The id it would have.
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
        /// What the encoder said.
        reason: String,
    },
    /// A vocabulary cannot be padded to fewer entries than it has.
    #[error("the vocabulary has {has} entries and cannot be padded to {size}")]
    CannotShrink {
        /// Entries there are.
        has: usize,
        /// Entries asked for.
        size: usize,
    },
}

impl TokenizerError {
    /// What the reader can do about it, where that is known.
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
            Self::Unsupported { .. } => "byte-level BPE and SentencePiece-style BPE tokenizers can be read",
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
            Self::CannotShrink { has, .. } => return Some(format!("ask for at least {has} entries")),
        };
        Some(hint.to_owned())
    }
}

fn found_only(found: &[&'static str]) -> String {
    if found.is_empty() { String::new() } else { format!(" (only `{}` is there)", found.join("`, `")) }
}
