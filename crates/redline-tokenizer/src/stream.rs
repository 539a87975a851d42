//! Decoding ids that arrive one by one.

use std::ops::Deref;

use crate::{Tokenizer, TokenizerError, text::Text};

/// Decodes ids as they arrive. The concatenated results of all [`push`](Self::push)es and [`finish`](Self::finish)
/// equal `decode(ids, skip_special = true)` to the byte.
///
/// Bytes that may still become a character are held back, never replaced early. With the byte-fallback tokens of
/// SentencePiece (`<0xE4>`), a whole run of them is held back until a token of another kind ends it, because one bad
/// byte makes the whole run invalid. Each push takes time proportional to its token, independent of earlier tokens.
///
/// `T` is a reference to the tokenizer, or a shared owner of it.
#[derive(Clone)]
pub struct TextStream<T> {
    tokenizer: T,
    text: Text,
}

impl<T: Deref<Target = Tokenizer>> TextStream<T> {
    /// Creates a stream for the tokenizer's ids.
    pub fn new(tokenizer: T) -> Self {
        Self { tokenizer, text: Text::default() }
    }

    /// Takes the next id and returns the text that has become final, which may be empty or more than the id's own. An
    /// id without a token is an error and changes nothing.
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        let token = self.tokenizer.entry(id)?;
        let mut out = String::new();
        if !token.special {
            self.tokenizer.decoder.push(&mut self.text, token.decoded(), &mut out);
        }
        Ok(out)
    }

    /// Returns the text that was held back; incomplete bytes become U+FFFD. The next push begins a new text.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        self.tokenizer.decoder.finish(&mut self.text, &mut out);
        out
    }
}

impl Tokenizer {
    /// A decoder for ids that arrive one by one; omits special tokens.
    pub fn stream(&self) -> TextStream<&Self> {
        TextStream::new(self)
    }
}

impl<T> std::fmt::Debug for TextStream<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextStream").field("text", &self.text).finish_non_exhaustive()
    }
}
