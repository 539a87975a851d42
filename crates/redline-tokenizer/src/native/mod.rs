//! The native encoder: byte-level BPE (GPT-2, Llama 3, Qwen2, cl100k, o200k, Tekken) and SentencePiece-style BPE with byte
//! fallback (Llama 2, Mistral, Gemma), with the ids and offsets of the `tokenizers` crate.
//!
//! A text is encoded in one pass. Added tokens are found, and the stretches between them are normalised ([`added`],
//! [`normal`]). Stretches are cut into words ([`scan`], [`spaces`]), and each word is encoded ([`bpe`]): most words are a
//! token or are cached ([`words`]), the others go through the merges ([`merge`]).

mod added;
mod bpe;
mod classes;
mod form;
mod merge;
mod normal;
mod scan;
mod spaces;
mod stretch;
mod words;

pub(crate) use scan::{CL100K, O200K, QWEN2, TEKKEN};
pub use stretch::Beginning;

use crate::{AddedToken, TokenizerError, encoding::EncodedText, model::Model, source::Source};
use added::Finder;
use bpe::{Bpe, Scratch};
use form::Words;
use hashbrown::HashMap;
use normal::Normalizer;
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;
use stretch::{Begin, Ids, Offsets};

/// Encodes text without adding ids around it.
pub(crate) struct Native {
    /// Finds added tokens in the text as written.
    added_as_written: Finder,
    normalizer: Normalizer,
    /// Finds added tokens in the normalised text.
    added_normalized: Finder,
    words: Words,
    bpe: Bpe,
    /// Buffers kept between calls, with the thread that used each last, in whose cache they may still be. There are as many
    /// as there were concurrent calls, up to a limit.
    idle: Mutex<Vec<(ThreadId, Scratch)>>,
}

/// Limits of the kept buffers. Buffers grown by a text of megabytes are freed.
const MAX_IDLE: usize = 64;
const MAX_IDLE_BYTES: usize = 4 << 20;

impl Native {
    /// Creates an encoder for the form, or returns why it is not covered.
    pub(crate) fn new(source: Source<'_>) -> Result<Self, String> {
        let Model::Bpe(model) = source.checked.model else {
            return Err(format!("its model is not covered: {}", source.checked.model.kind()));
        };
        let (normalizer, words) = form::read(source, model)?;
        // If two entries have the same id, the last counts, as in the `tokenizers` crate.
        let last: HashMap<u32, &AddedToken> = source.added.iter().map(|(token, id)| (*id, token)).collect();
        let find = |normalized: bool| {
            let counts =
                |token: &AddedToken, id: &u32| last.get(id).is_some_and(|last| std::ptr::eq(*last, token));
            let tokens =
                source.added.iter().filter(|(token, id)| token.normalized == normalized && counts(token, id));
            let text = |token: &AddedToken| {
                if normalized { normalizer.whole(&token.content).into_owned() } else { token.content.clone() }
            };
            let tokens: Vec<_> = tokens.map(|(token, id)| (text(token), token, *id)).collect();
            Finder::new(&tokens, normalized && normalizer.marks())
        };
        Ok(Self {
            added_as_written: find(false)?,
            added_normalized: find(true)?,
            bpe: form::model(source.checked, model, words)?,
            normalizer,
            words,
            idle: Mutex::default(),
        })
    }

    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_from(text, 0, Vec::new())
    }

    /// The ids of a text whose first `from` bytes have the given ids; `from` comes from a [`Beginning`].
    pub(crate) fn encode_from(
        &self,
        text: &str,
        from: usize,
        mut ids: Vec<u32>,
    ) -> Result<Vec<u32>, TokenizerError> {
        check_length(text)?;
        if !text.is_char_boundary(from) {
            return self.encode_from(text, 0, Vec::new());
        }
        ids.reserve((text.len() - from) / 4 + 1);
        self.with_scratch(|scratch| self.walk(text, from, scratch, &mut Ids { native: self, ids: &mut ids }));
        Ok(ids)
    }

    pub(crate) fn encode_with_offsets(&self, text: &str) -> Result<EncodedText, TokenizerError> {
        check_length(text)?;
        let mut encoded = EncodedText::default();
        self.with_scratch(|scratch| {
            self.walk(text, 0, scratch, &mut Offsets { native: self, out: &mut encoded });
        });
        Ok(encoded)
    }

    /// The ids of the longest known prefix of a text that no continuation can change.
    pub(crate) fn begin(&self, text: &str) -> Result<Beginning, TokenizerError> {
        check_length(text)?;
        // A continuation can change the normal form only from the last character that does not combine with the one
        // before.
        let settled = match self.normalizer {
            Normalizer::Nfc => {
                text.char_indices().rev().find(|(_, c)| normal::begins_anew(*c)).map_or(0, |(at, _)| at)
            }
            Normalizer::None | Normalizer::Spaces { .. } => text.len(),
        };
        let limit = settled.saturating_sub(self.added_normalized.longest);
        let limit = limit.min(text.len().saturating_sub(self.added_as_written.longest));
        let limit = text.floor_char_boundary(limit);
        if !(self.added_as_written.plain && self.added_normalized.plain) {
            return Ok(Beginning::default());
        }
        let mut begin = Begin::new(self, limit);
        self.with_scratch(|scratch| self.walk(text, 0, scratch, &mut begin));
        Ok(begin.finish())
    }

    /// The form of an added token that the decoder receives: as the normaliser leaves it.
    pub(crate) fn decoded_form(&self, token: &AddedToken) -> Option<String> {
        token.normalized.then(|| self.normalizer.shown(&self.normalizer.whole(&token.content)).into_owned())
    }

    fn with_scratch<T>(&self, work: impl FnOnce(&mut Scratch) -> T) -> T {
        let thread = std::thread::current().id();
        let mut scratch = self.take_scratch(thread).unwrap_or_else(Scratch::new);
        let result = work(&mut scratch);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE && scratch.bytes() < MAX_IDLE_BYTES {
            idle.push((thread, scratch));
        }
        drop(idle);
        result
    }

    fn take_scratch(&self, thread: ThreadId) -> Option<Scratch> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let own = idle.iter().rposition(|(last, _)| *last == thread).unwrap_or(0);
        if idle.is_empty() { None } else { Some(idle.swap_remove(own).1) }
    }
}

/// Positions in a word are 32-bit numbers.
fn check_length(text: &str) -> Result<(), TokenizerError> {
    let limit = u32::MAX as usize - 2;
    if text.len() <= limit {
        return Ok(());
    }
    let reason = format!("a text holds at most {limit} bytes");
    Err(TokenizerError::Encode { bytes: text.len(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::BpeModel;
    use crate::text::byte_of;
    use serde_json::{Value, json};

    /// An encoder whose tokens are the single bytes. With `lead`, it puts a space before a text.
    fn native(lead: bool) -> Native {
        let characters = ('!'..='\u{143}').filter(|c| byte_of(*c).is_some()).map(String::from);
        let model = BpeModel { vocab: characters.zip(0..).collect(), ..BpeModel::default() };
        let model = Model::Bpe(model);
        let checked = model.check("test").unwrap();
        let pre_tokenizer = json!({ "type": "ByteLevel", "add_prefix_space": lead, "use_regex": true });
        let source = Source {
            place: "test",
            checked: &checked,
            added: &[],
            normalizer: &Value::Null,
            pre_tokenizer: &pre_tokenizer,
        };
        Native::new(source).unwrap()
    }

    fn kept(native: &Native) -> usize {
        native.idle.lock().unwrap().len()
    }

    #[test]
    fn buffers_grown_by_a_long_text_are_freed() {
        let native = native(false);
        native.encode("short").unwrap();
        assert_eq!(kept(&native), 1);
        // One word, of which every symbol takes four bytes.
        let long = "a".repeat(MAX_IDLE_BYTES / 4 + 1);
        assert_eq!(native.encode(&long).unwrap().len(), long.len());
        assert_eq!(kept(&native), 0);
        native.encode("short").unwrap();
        assert_eq!(kept(&native), 1);
    }

    #[test]
    fn every_buffer_that_grows_counts() {
        // One word: a symbol, and the places of its two neighbours, of four bytes each.
        let word = "a".repeat(MAX_IDLE_BYTES / 12 + 1);
        // Short words, copied with a space before them.
        let words = "aaa ".repeat(MAX_IDLE_BYTES / 4);
        for (text, lead) in [(word, false), (words, true)] {
            let native = native(lead);
            native.encode(&text).unwrap();
            assert_eq!(kept(&native), 0, "{} bytes", text.len());
        }
    }

    #[test]
    fn no_more_buffers_are_kept_than_the_limit() {
        fn at_once(native: &Native, calls: usize) {
            native.with_scratch(|_| {
                if calls > 1 {
                    at_once(native, calls - 1);
                }
            });
        }
        let native = native(false);
        at_once(&native, 3);
        assert_eq!(kept(&native), 3);
        at_once(&native, MAX_IDLE + 3);
        assert_eq!(kept(&native), MAX_IDLE);
    }
}
