//! The BPE model as data, and the checks that let everything after it trust it.

use crate::TokenizerError;
use std::collections::HashMap;

/// The highest id accepted: tables are indexed by id, so a single wild id must not cost gigabytes.
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

impl BpeModel {
    /// The tokens by id, after checking that each token has one id and each id one token.
    pub(crate) fn by_id(&self, place: &str) -> Result<Vec<Option<&str>>, TokenizerError> {
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
        self.check_merges(place, &ids)?;
        Ok(tokens)
    }

    /// Both parts of every merge, and what they join to, are tokens.
    fn check_merges(&self, place: &str, ids: &HashMap<&str, u32>) -> Result<(), TokenizerError> {
        let prefix = self.continuing_subword_prefix.as_deref().unwrap_or("");
        let mut joined = String::new();
        for (i, (a, b)) in self.merges.iter().enumerate() {
            let missing = |token: &str| {
                let (place, token) = (place.to_owned(), token.to_owned());
                TokenizerError::MergeToken { place, rank: i + 1, token }
            };
            if let Some(part) = [a, b].into_iter().find(|part| !ids.contains_key(part.as_str())) {
                return Err(missing(part));
            }
            let tail = b.strip_prefix(prefix).ok_or_else(|| missing(&format!("{prefix}{b}")))?;
            joined.clear();
            joined.push_str(a);
            joined.push_str(tail);
            if !ids.contains_key(joined.as_str()) {
                return Err(missing(&joined));
            }
        }
        Ok(())
    }
}
