//! The tokens of a model as the bytes that they stand for.

use llguidance::toktrie::{TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::error::GrammarError;

/// Longest token that may be written, in bytes; the library refuses longer ones.
const MAX_TOKEN: usize = 1024;

/// What each token of a model adds to a text.
pub trait Words: Send + Sync {
    /// Number of ids: the width of the logits.
    fn count(&self) -> usize;

    /// The bytes of a token; none if it is never written.
    fn bytes(&self, id: u32) -> Vec<u8>;

    /// The name of a token that marks a place in a text, such as `<|im_end|>`: texts never contain it.
    fn marker(&self, id: u32) -> Option<String>;

    /// The tokens that end a text.
    fn ends(&self) -> Vec<u32>;

    /// Called at the start of the thread that compiles grammars, so that it can give way to other threads.
    fn compiling(&self) {}
}

/// The tokens in the form of the library.
pub(crate) struct Vocabulary(TokTrie);

impl Vocabulary {
    pub(crate) fn new(words: &dyn Words) -> Result<Self, GrammarError> {
        let count = words.count();
        let word = |id: u32| {
            let bytes = match words.marker(id) {
                Some(name) => [&[TokTrie::SPECIAL_TOKEN_MARKER], name.as_bytes()].concat(),
                None => words.bytes(id),
            };
            if bytes.len() > MAX_TOKEN { Vec::new() } else { bytes }
        };
        let all: Vec<Vec<u8>> = (0..count as u32).map(word).collect();
        let ends: Vec<u32> = words.ends().into_iter().filter(|id| (*id as usize) < count).collect();
        let Some(&first) = ends.first() else {
            let fact = "the model has no token that ends a text, and answers to grammars end with one";
            return Err(GrammarError::new(fact, "name one as `eos_token_id` in `generation_config.json`"));
        };
        let trie = TokTrie::from(&TokRxInfo::new(count as u32, first), &all);
        Ok(Self(trie.with_eos_tokens(&ends)))
    }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, text: &[u8]) -> Vec<TokenId> {
        self.0.greedy_tokenize(text)
    }

    /// The model chooses how bytes become tokens, also where the bytes are forced.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}
