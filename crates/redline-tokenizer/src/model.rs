//! The model as data, and the checks that all later code relies on.

use crate::TokenizerError;
use hashbrown::HashMap;

/// The highest supported id. Tables are indexed by id, so a single wild id must not cost gigabytes.
pub(crate) const MAX_ID: u32 = (1 << 24) - 1;

/// Vocabulary and merges of a BPE model, with the options of `tokenizer.json`.
#[derive(Debug, Default)]
pub(crate) struct BpeModel {
    pub(crate) vocab: Vec<(String, u32)>,
    pub(crate) merges: Vec<(String, String)>,
    pub(crate) unk_token: Option<String>,
    pub(crate) continuing_subword_prefix: Option<String>,
    pub(crate) end_of_word_suffix: Option<String>,
    pub(crate) fuse_unk: bool,
    pub(crate) byte_fallback: bool,
    pub(crate) ignore_merges: bool,
}

/// Vocabulary of a WordPiece model, with the options of `tokenizer.json`.
#[derive(Debug)]
pub(crate) struct WordPieceModel {
    pub(crate) vocab: Vec<(String, u32)>,
    pub(crate) unk_token: String,
    pub(crate) continuing_subword_prefix: String,
    pub(crate) max_input_chars_per_word: usize,
}

/// Tokens of a Unigram model with their log-probabilities; a token's id is its place.
#[derive(Debug)]
pub(crate) struct UnigramModel {
    pub(crate) vocab: Vec<(String, f64)>,
    pub(crate) unk_id: usize,
    pub(crate) byte_fallback: bool,
}

/// The model of a tokenizer, of one of the kinds that can be read.
#[derive(Debug)]
pub(crate) enum Model {
    Bpe(BpeModel),
    WordPiece(WordPieceModel),
    Unigram(UnigramModel),
}

/// The names of the kinds in `tokenizer.json`.
pub(crate) const KINDS: [&str; 3] = ["BPE", "WordPiece", "Unigram"];

/// A checked model: each token has one id, each id one token, and every merge joins two tokens to a token.
pub(crate) struct Checked<'a> {
    pub(crate) model: &'a Model,
    /// Tokens by id.
    pub(crate) tokens: Vec<Option<&'a str>>,
    pub(crate) ids: HashMap<&'a str, u32>,
    /// Left part, right part and result of each merge, the best merge first.
    pub(crate) merges: Vec<[u32; 3]>,
}

impl Model {
    /// The name of the kind in `tokenizer.json`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Bpe(_) => KINDS[0],
            Self::WordPiece(_) => KINDS[1],
            Self::Unigram(_) => KINDS[2],
        }
    }

    /// The name of the token for text that no other token covers.
    pub(crate) fn unk_token(&self) -> Option<String> {
        match self {
            Self::Bpe(model) => model.unk_token.clone(),
            Self::WordPiece(model) => Some(model.unk_token.clone()),
            Self::Unigram(_) => None,
        }
    }

    /// Checks the model.
    pub(crate) fn check(&self, place: &str) -> Result<Checked<'_>, TokenizerError> {
        match self {
            Self::Bpe(model) => {
                let (tokens, ids) = numbered(place, &model.vocab)?;
                let merges = model.joined(place, &ids)?;
                Ok(Checked { model: self, tokens, ids, merges })
            }
            Self::WordPiece(model) => {
                let (tokens, ids) = numbered(place, &model.vocab)?;
                Ok(Checked { model: self, tokens, ids, merges: Vec::new() })
            }
            Self::Unigram(model) => {
                let (tokens, ids) = entered(place, by_place(&model.vocab))?;
                if model.unk_id >= tokens.len() {
                    let (unk, len) = (model.unk_id, tokens.len());
                    let reason = format!("`model.unk_id` is {unk}, but the vocabulary has {len} tokens");
                    return Err(TokenizerError::Form { place: place.to_owned(), reason });
                }
                Ok(Checked { model: self, tokens, ids, merges: Vec::new() })
            }
        }
    }
}

type Tokens<'a> = (Vec<Option<&'a str>>, HashMap<&'a str, u32>);

fn by_place(vocab: &[(String, f64)]) -> impl ExactSizeIterator<Item = (&str, u32)> + Clone {
    vocab.iter().enumerate().map(|(id, (token, _))| (token.as_str(), id as u32))
}

fn numbered<'a>(place: &str, vocab: &'a [(String, u32)]) -> Result<Tokens<'a>, TokenizerError> {
    entered(place, vocab.iter().map(|(token, id)| (token.as_str(), *id)))
}

/// The tokens by id and the ids by token. Each token must have one id, and each id one token.
fn entered<'a>(
    place: &str,
    vocab: impl ExactSizeIterator<Item = (&'a str, u32)> + Clone,
) -> Result<Tokens<'a>, TokenizerError> {
    let size = match vocab.clone().max_by_key(|(_, id)| *id) {
        Some((token, id)) if id > MAX_ID => {
            let (place, token) = (place.to_owned(), token.to_owned());
            return Err(TokenizerError::IdTooLarge { place, token, id, limit: MAX_ID });
        }
        Some((_, id)) => id as usize + 1,
        None => 0,
    };
    let mut tokens: Vec<Option<&str>> = vec![None; size];
    for (token, id) in vocab.clone() {
        if let Some(first) = tokens[id as usize].replace(token) {
            let (place, first, second) = (place.to_owned(), first.to_owned(), token.to_owned());
            return Err(TokenizerError::DuplicateId { place, id, first, second });
        }
    }
    let mut ids = HashMap::with_capacity(vocab.len());
    for (token, id) in vocab {
        if let Some(first) = ids.insert(token, id) {
            let (place, token) = (place.to_owned(), token.to_owned());
            return Err(TokenizerError::DuplicateToken { place, token, first, second: id });
        }
    }
    Ok((tokens, ids))
}

impl BpeModel {
    /// The merges as ids. Both parts and the result must be tokens.
    fn joined(&self, place: &str, ids: &HashMap<&str, u32>) -> Result<Vec<[u32; 3]>, TokenizerError> {
        let prefix = self.continuing_subword_prefix.as_deref().unwrap_or("");
        let mut joined = String::new();
        let merges = self.merges.iter().enumerate().map(|(i, (a, b))| {
            let missing = |token: &str| {
                let (place, token) = (place.to_owned(), token.to_owned());
                TokenizerError::MergeToken { place, rank: i + 1, token }
            };
            let id = |token: &str| ids.get(token).copied().ok_or_else(|| missing(token));
            let (left, right) = (id(a)?, id(b)?);
            let tail = b.strip_prefix(prefix).ok_or_else(|| missing(&format!("{prefix}{b}")))?;
            joined.clear();
            joined.push_str(a);
            joined.push_str(tail);
            Ok([left, right, id(&joined)?])
        });
        merges.collect()
    }
}
