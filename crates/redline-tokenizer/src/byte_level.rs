//! Byte-level BPE from `vocab.json` and `merges.txt`, which do not specify how text is split before the merges.

use crate::native::QWEN2;
use crate::tokenizer::Parts;
use crate::{
    AddedToken, Encoder, Tokenizer, TokenizerError, affix::Affixes, decoder::Decoder, json, model::BpeModel,
    model::Model,
};
use serde_json::{Value, json};

/// The settings that `vocab.json` and `merges.txt` do not contain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ByteLevelOptions {
    /// The rule that splits text into words.
    pub split: Split,
    /// Whether to put a space before a text that does not begin with one.
    pub add_prefix_space: bool,
    /// Special and other added tokens. A token without an id takes the vocabulary's id, or the next free one.
    pub added: Vec<AddedToken>,
    /// Tokens put before every text encoded with `special = true` (BOS).
    pub prefix: Vec<String>,
    /// Tokens put after every such text (EOS).
    pub suffix: Vec<String>,
}

/// The rule that splits text into words before the merges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Split {
    /// GPT-2: runs of letters, of digits, or of other characters, each with the preceding space.
    #[default]
    Gpt2,
    /// Qwen2 and Dream: normalise to NFC first; single digits; separate line ends.
    Qwen2,
}

impl Split {
    fn normalizer(self) -> Value {
        match self {
            Self::Gpt2 => Value::Null,
            Self::Qwen2 => json!({ "type": "NFC" }),
        }
    }

    fn pre_tokenizer(self, add_prefix_space: bool) -> Value {
        let bytes = |use_regex: bool| {
            json!({
                "type": "ByteLevel",
                "add_prefix_space": add_prefix_space,
                "trim_offsets": true,
                "use_regex": use_regex,
            })
        };
        match self {
            Self::Gpt2 => bytes(true),
            Self::Qwen2 => {
                let pattern = json!({ "Regex": QWEN2 });
                let words =
                    json!({ "type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false });
                json!({ "type": "Sequence", "pretokenizers": [words, bytes(false)] })
            }
        }
    }
}

impl Tokenizer {
    /// Parses the bytes of a `vocab.json` and a `merges.txt`, the older form of byte-level BPE. `options` holds the
    /// settings that the two files do not contain, `origin` names their directory in messages.
    pub fn from_vocab_and_merges(
        origin: &str,
        vocab: &[u8],
        merges: &[u8],
        options: &ByteLevelOptions,
    ) -> Result<Self, TokenizerError> {
        let vocab = json::vocab(&format!("{origin}/vocab.json"), vocab)?;
        let merges = json::merges(&format!("{origin}/merges.txt"), merges)?;
        build(origin, vocab, merges, options, Encoder::default())
    }
}

/// Builds the tokenizer from the contents of the two files.
pub(crate) fn build(
    place: &str,
    vocab: Vec<(String, u32)>,
    merges: Vec<(String, String)>,
    options: &ByteLevelOptions,
    encoder: Encoder,
) -> Result<Tokenizer, TokenizerError> {
    let mut added = options.added.clone();
    // Ids are assigned in this order, so tokens with a given id come first.
    added.sort_by_key(|token| token.id.unwrap_or(u32::MAX));
    let mut tokenizer = Tokenizer::build(Parts {
        place,
        encoder,
        model: Model::Bpe(BpeModel { vocab, merges, ..BpeModel::default() }),
        added,
        normalizer: options.split.normalizer(),
        pre_tokenizer: options.split.pre_tokenizer(options.add_prefix_space),
        affixes: Affixes::default(),
        decoder: Decoder::byte_level(),
    })?;
    let ids = |user: &str, tokens: &[String]| -> Result<Vec<u32>, TokenizerError> {
        let missing = |token: &String| {
            let (place, user, token) = (place.to_owned(), user.to_owned(), token.clone());
            TokenizerError::MissingToken { place, user, token }
        };
        tokens.iter().map(|token| tokenizer.id(token).ok_or_else(|| missing(token))).collect()
    };
    let affixes = Affixes {
        prefix: ids("the beginning of a text", &options.prefix)?,
        suffix: ids("the end of a text", &options.suffix)?,
        trims: Vec::new(),
        pair: None,
    };
    tokenizer.affixes = affixes;
    Ok(tokenizer)
}
