//! Parses the `decoder` of `tokenizer.json`, which defines how tokens become text. The module `text` executes it.

use crate::{TokenizerError, json::form};
use serde_json::Value;
use std::borrow::Cow;

/// How tokens are converted to text.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    pub(crate) each: Vec<Each>,
    pub(crate) join: Join,
    pub(crate) strip: Option<Strip>,
}

/// A conversion of each single token.
#[derive(Debug)]
pub(crate) enum Each {
    Replace {
        from: String,
        to: String,
    },
    Metaspace {
        mark: char,
        bare_first: bool,
    },
    Strip(Strip),
    /// A space before each token except the first and those with the prefix, which is removed.
    WordPiece {
        prefix: String,
        cleanup: bool,
    },
}

/// How tokens are joined.
#[derive(Debug, Default, PartialEq)]
pub(crate) enum Join {
    /// With a space between tokens: the behaviour without a decoder.
    #[default]
    Spaced,
    /// Directly one after the other.
    Text,
    /// Runs of `<0x00>` tokens are bytes; a run that is not valid UTF-8 becomes one U+FFFD per byte.
    Fallback,
    /// Every character stands for a byte (GPT-2); invalid UTF-8 becomes U+FFFD.
    ByteLevel,
}

/// Removes up to `start` leading and `stop` trailing `mark`s.
#[derive(Debug, Clone)]
pub(crate) struct Strip {
    pub(crate) mark: char,
    pub(crate) start: usize,
    pub(crate) stop: usize,
}

const KNOWN: &str = "`ByteLevel`, `WordPiece`, `Metaspace`, `Replace` of a string, `ByteFallback`, `Fuse`, `Strip`, and a \
                     `Sequence` of these in the order of a Llama tokenizer";

impl Decoder {
    /// Reads the `decoder` of a `tokenizer.json`.
    pub(crate) fn from_json(place: &str, value: &Value) -> Result<Self, TokenizerError> {
        // Any decoder, even an empty sequence, joins tokens without spaces. Only a missing decoder joins them with
        // spaces.
        let join = if value.is_null() { Join::Spaced } else { Join::Text };
        let mut decoder = Self { join, ..Self::default() };
        let mut fused = false;
        let mut stages = Vec::new();
        flatten(place, value, &mut stages)?;
        for stage in stages {
            let kind = stage["type"].as_str().unwrap_or("without a type");
            let joined = decoder.join != Join::Text;
            match kind {
                "Replace" | "Metaspace" | "Strip" | "WordPiece" if !joined && !fused => {
                    decoder.each.push(Each::from_json(place, kind, stage)?);
                }
                "ByteFallback" if !joined && !fused => decoder.join = Join::Fallback,
                "ByteLevel" if !joined && !fused => (decoder.join, fused) = (Join::ByteLevel, true),
                "Fuse" => fused = true,
                "Strip" if fused && decoder.strip.is_none() => {
                    decoder.strip = Some(Strip::from_json(place, stage)?);
                }
                _ => {
                    return Err(TokenizerError::Unsupported {
                        place: place.to_owned(),
                        part: "decoder",
                        found: kind.to_owned(),
                        known: KNOWN.to_owned(),
                    });
                }
            }
        }
        Ok(decoder)
    }

    /// The decoder of byte-level BPE.
    pub(crate) fn byte_level() -> Self {
        Self { join: Join::ByteLevel, ..Self::default() }
    }
}

impl Each {
    fn from_json(place: &str, kind: &str, stage: &Value) -> Result<Self, TokenizerError> {
        match kind {
            "Replace" => {
                let field = |value: &Value| value.as_str().map(str::to_owned);
                match (field(&stage["pattern"]["String"]), field(&stage["content"])) {
                    (Some(from), Some(to)) if !from.is_empty() => Ok(Self::Replace { from, to }),
                    _ => Err(form(
                        place,
                        "`decoder`: a `Replace` needs a string as `pattern.String` and `content`",
                    )),
                }
            }
            "Metaspace" => {
                let never = stage["prepend_scheme"] == "never" || stage["add_prefix_space"] == false;
                Ok(Self::Metaspace { mark: mark(place, stage, "replacement")?, bare_first: !never })
            }
            "WordPiece" => {
                let reason =
                    "`decoder`: a `WordPiece` needs a text as `prefix` and true or false as `cleanup`";
                match (stage["prefix"].as_str(), stage["cleanup"].as_bool()) {
                    (Some(prefix), Some(cleanup)) => {
                        Ok(Self::WordPiece { prefix: prefix.to_owned(), cleanup })
                    }
                    _ => Err(form(place, reason)),
                }
            }
            _ => Strip::from_json(place, stage).map(Self::Strip),
        }
    }

    pub(crate) fn apply<'a>(&self, piece: Cow<'a, str>, first: bool) -> Cow<'a, str> {
        match self {
            Self::Replace { from, to } if piece.contains(from) => piece.replace(from, to).into(),
            Self::Metaspace { mark, bare_first } if piece.contains(*mark) => {
                piece.replace(*mark, if first && *bare_first { "" } else { " " }).into()
            }
            Self::Strip(strip) => strip.apply(&piece).to_owned().into(),
            Self::WordPiece { prefix, cleanup } => {
                let piece = match piece.strip_prefix(prefix.as_str()) {
                    _ if first => piece.into_owned(),
                    Some(rest) => rest.to_owned(),
                    None => format!(" {piece}"),
                };
                if *cleanup { cleaned(piece) } else { piece }.into()
            }
            _ => piece,
        }
    }
}

/// Removes the spaces that WordPiece puts before punctuation and English contractions, in the order of the `tokenizers`
/// crate.
const CLEANUP: [(&str, &str); 11] = [
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
];

fn cleaned(piece: String) -> String {
    CLEANUP.iter().fold(
        piece,
        |piece, (from, to)| {
            if piece.contains(from) { piece.replace(from, to) } else { piece }
        },
    )
}

impl Strip {
    fn from_json(place: &str, stage: &Value) -> Result<Self, TokenizerError> {
        let count = |name: &str| {
            let count = stage[name].as_u64().and_then(|count| usize::try_from(count).ok());
            count.ok_or_else(|| form(place, format!("`decoder`: a `Strip` needs a number as `{name}`")))
        };
        Ok(Self { mark: mark(place, stage, "content")?, start: count("start")?, stop: count("stop")? })
    }

    fn apply<'a>(&self, mut piece: &'a str) -> &'a str {
        for _ in 0..self.start.min(piece.len()) {
            piece = piece.strip_prefix(self.mark).unwrap_or(piece);
        }
        for _ in 0..self.stop.min(piece.len()) {
            piece = piece.strip_suffix(self.mark).unwrap_or(piece);
        }
        piece
    }
}

/// The stages in order, including those inside a `Sequence`.
fn flatten<'a>(place: &str, value: &'a Value, stages: &mut Vec<&'a Value>) -> Result<(), TokenizerError> {
    match value {
        Value::Null => Ok(()),
        _ if value["type"] == "Sequence" => {
            let list = value["decoders"].as_array();
            let list = list.ok_or_else(|| form(place, "`decoder.decoders` is not a list"))?;
            list.iter().try_for_each(|value| flatten(place, value, stages))
        }
        _ => {
            stages.push(value);
            Ok(())
        }
    }
}

fn mark(place: &str, stage: &Value, name: &str) -> Result<char, TokenizerError> {
    let mut chars = stage[name].as_str().unwrap_or("").chars();
    match (chars.next(), chars.next()) {
        (Some(mark), None) => Ok(mark),
        _ => Err(form(place, format!("`decoder`: `{name}` is not one character"))),
    }
}
