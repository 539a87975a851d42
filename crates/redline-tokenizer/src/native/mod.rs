//! The native encoder: byte-level BPE (GPT-2, Llama 3, Qwen2, cl100k, o200k, Tekken) and SentencePiece-style BPE with byte
//! fallback (Llama 2, Mistral, Gemma), with the ids and offsets of the `tokenizers` crate.
//!
//! A text goes through it in one pass: added tokens are found and the stretches between them brought into normal form
//! ([`added`], [`normal`]), words are cut ([`scan`], [`spaces`]), and each word becomes ids ([`bpe`]): most words are a token
//! or were met before ([`words`]), the others go through the merges ([`merge`]).

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

pub(crate) use scan::QWEN2;
pub use stretch::Beginning;

use crate::{AddedToken, TokenizerError, backend::Source, encoding::Found};
use added::Finder;
use bpe::{Bpe, Scratch};
use form::Words;
use hashbrown::HashMap;
use normal::Normalizer;
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;
use stretch::{Begin, Ids, Offsets};

/// Text to ids, nothing put around them.
pub(crate) struct Native {
    /// Added tokens found in the text as written, and in its normal form.
    raw: Finder,
    normalizer: Normalizer,
    cooked: Finder,
    words: Words,
    bpe: Bpe,
    /// What encoding needs, from one call to the next, and the thread that had it last, in whose cache it may still lie; as
    /// many as there were calls at a time, within bounds.
    idle: Mutex<Vec<(ThreadId, Scratch)>>,
}

/// How much is kept from one call to the next: what a text of megabytes needed is given back.
const MOST_IDLE: usize = 64;
const MOST_IDLE_BYTES: usize = 4 << 20;

impl Native {
    /// An encoder of that form, or why it is not covered.
    pub(crate) fn new(source: Source<'_>) -> Result<Self, String> {
        let (normalizer, words) = form::read(source)?;
        // Of two entries with one id the last counts, as in the table of the `tokenizers` crate.
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
            raw: find(false)?,
            cooked: find(true)?,
            bpe: form::model(source.checked, words)?,
            normalizer,
            words,
            idle: Mutex::default(),
        })
    }

    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_from(text, 0, Vec::new())
    }

    /// The ids of a text of which the part before byte `from` has the given ids; `from` comes from a [`Beginning`].
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

    pub(crate) fn encode_with_offsets(&self, text: &str) -> Result<Found, TokenizerError> {
        check_length(text)?;
        let mut found = Found::default();
        self.with_scratch(|scratch| {
            self.walk(text, 0, scratch, &mut Offsets { native: self, found: &mut found });
        });
        Ok(found)
    }

    /// The ids of as much of the beginning of a text as stays the same whatever follows it.
    pub(crate) fn begin(&self, text: &str) -> Result<Beginning, TokenizerError> {
        check_length(text)?;
        // A continuation can change the normal form from the last character on that nothing before it combines with.
        let settled = match self.normalizer {
            Normalizer::Nfc => {
                text.char_indices().rev().find(|(_, c)| normal::begins_anew(*c)).map_or(0, |(at, _)| at)
            }
            Normalizer::None | Normalizer::Spaces { .. } => text.len(),
        };
        let limit =
            settled.saturating_sub(self.cooked.longest).min(text.len().saturating_sub(self.raw.longest));
        let limit = text.floor_char_boundary(limit);
        if !(self.raw.plain && self.cooked.plain) {
            return Ok(Beginning::default());
        }
        let mut begin = Begin::new(self, limit);
        self.with_scratch(|scratch| self.walk(text, 0, scratch, &mut begin));
        Ok(begin.finish())
    }

    /// The form in which an added token goes through the decoder: as the normaliser leaves it.
    pub(crate) fn decoded_form(&self, token: &AddedToken) -> Option<String> {
        token.normalized.then(|| self.normalizer.shown(&self.normalizer.whole(&token.content)).into_owned())
    }

    fn with_scratch<T>(&self, work: impl FnOnce(&mut Scratch) -> T) -> T {
        let thread = std::thread::current().id();
        let mut scratch = self.take_scratch(thread).unwrap_or_else(Scratch::new);
        let result = work(&mut scratch);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_IDLE && scratch.bytes() < MOST_IDLE_BYTES {
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

/// Places in a word are numbers of 32 bits.
fn check_length(text: &str) -> Result<(), TokenizerError> {
    let limit = u32::MAX as usize - 2;
    if text.len() <= limit {
        return Ok(());
    }
    let reason = format!("a text holds at most {limit} bytes");
    Err(TokenizerError::Encode { bytes: text.len(), reason })
}
