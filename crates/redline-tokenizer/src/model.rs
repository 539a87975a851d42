//! The BPE model as data, and the checks that all later code relies on.

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

/// A checked model: each token has one id, each id one token, and every merge joins two tokens to a token.
pub(crate) struct Checked<'a> {
    pub(crate) model: &'a BpeModel,
    /// Tokens by id.
    pub(crate) tokens: Vec<Option<&'a str>>,
    pub(crate) ids: HashMap<&'a str, u32>,
    /// Left part, right part and result of each merge, the best merge first.
    pub(crate) merges: Vec<[u32; 3]>,
}

impl BpeModel {
    /// Checks the model.
    pub(crate) fn check(&self, place: &str) -> Result<Checked<'_>, TokenizerError> {
        let size = match self.vocab.iter().max_by_key(|(_, id)| *id) {
            Some((token, id)) if *id > MAX_ID => {
                let (place, token) = (place.to_owned(), token.clone());
                return Err(TokenizerError::IdTooLarge { place, token, id: *id, limit: MAX_ID });
            }
            Some((_, id)) => *id as usize + 1,
            None => 0,
        };
        let mut tokens: Vec<Option<&str>> = vec![None; size];
        for (token, id) in &self.vocab {
            if let Some(first) = tokens[*id as usize].replace(token) {
                let (place, first, second) = (place.to_owned(), first.to_owned(), token.clone());
                return Err(TokenizerError::DuplicateId { place, id: *id, first, second });
            }
        }
        let mut ids = HashMap::with_capacity(self.vocab.len());
        for (token, id) in &self.vocab {
            if let Some(first) = ids.insert(token.as_str(), *id) {
                let (place, token) = (place.to_owned(), token.clone());
                return Err(TokenizerError::DuplicateToken { place, token, first, second: *id });
            }
        }
        let merges = self.joined(place, &ids)?;
        Ok(Checked { model: self, tokens, ids, merges })
    }

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
