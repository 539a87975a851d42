//! The tokenizer: one vocabulary, text to ids and back.

use crate::{
    AddedToken, Beginning, Encoder, Encoding, PrefixCacheCounters, PrefixCacheOptions, TokenizerError, added,
    affix::{Affixes, PairAffixes},
    backend::Backend,
    batch,
    decoder::Decoder,
    file::read_at_most,
    gap,
    gap::GapTokens,
    json,
    json::TokenizerJson,
    model::Model,
    prefix_cache::PrefixCache,
    source::Source,
    text::Text,
};
use hashbrown::{DefaultHashBuilder, HashSet, HashTable};
use serde_json::Value;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::Arc;

/// Converts text to token ids and back, for one vocabulary. Can be shared between threads in an `Arc`.
pub struct Tokenizer {
    backend: Backend,
    /// Tokens by id; `None` for unused ids.
    tokens: Vec<Option<Token>>,
    /// Ids by the written token.
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
    pub(crate) affixes: Affixes,
    pub(crate) decoder: Decoder,
    prefix_cache: Option<PrefixCache>,
    /// The tokens around a gap, if the file names them.
    pub(crate) gap: Option<GapTokens>,
}

/// One entry of the vocabulary.
pub(crate) struct Token {
    written: Box<str>,
    /// The form that the decoder receives, if it differs.
    decoded: Option<Box<str>>,
    pub(crate) special: bool,
    /// Whether it was added to the model's vocabulary.
    added: bool,
}

/// The parsed parts of a tokenizer, not yet checked against each other.
pub(crate) struct Parts<'a> {
    pub(crate) place: &'a str,
    pub(crate) encoder: Encoder,
    pub(crate) model: Model,
    pub(crate) added: Vec<AddedToken>,
    pub(crate) normalizer: Value,
    pub(crate) pre_tokenizer: Value,
    pub(crate) affixes: Affixes,
    pub(crate) decoder: Decoder,
}

impl Tokenizer {
    /// Loads a `tokenizer.json`.
    pub fn from_file(path: &Path) -> Result<Self, TokenizerError> {
        Self::from_file_with(path, Encoder::default())
    }

    /// Like [`from_file`](Self::from_file), with a chosen encoder.
    pub fn from_file_with(path: &Path, encoder: Encoder) -> Result<Self, TokenizerError> {
        let bytes = read_at_most(path)?;
        Self::from_bytes_with(&path.display().to_string(), &bytes, encoder)
    }

    /// Parses the bytes of a `tokenizer.json`; `origin` names them in messages.
    pub fn from_bytes(origin: &str, json: &[u8]) -> Result<Self, TokenizerError> {
        Self::from_bytes_with(origin, json, Encoder::default())
    }

    /// Like [`from_bytes`](Self::from_bytes), with a chosen encoder. [`Encoder::Library`] is the reference for the
    /// native encoder.
    pub fn from_bytes_with(origin: &str, json: &[u8], encoder: Encoder) -> Result<Self, TokenizerError> {
        let file = TokenizerJson::parse(origin, json)?;
        Self::build(Parts {
            place: origin,
            encoder,
            affixes: Affixes::from_json(origin, &file.post_processor)?,
            decoder: Decoder::from_json(origin, &file.decoder)?,
            model: file.model,
            added: file.added,
            normalizer: file.normalizer,
            pre_tokenizer: file.pre_tokenizer,
        })
    }

    /// Encodes a text. With `special`, adds [`prefix_ids`](Self::prefix_ids) and [`suffix_ids`](Self::suffix_ids)
    /// around it. Special tokens written in the text become their ids either way.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, TokenizerError> {
        let ids = match self.prefix_cache.as_ref().and_then(|cache| Some((cache, cache.key(text)?))) {
            None => self.backend.encode(text)?,
            Some((cache, key)) => self.encode_cached(cache, key, text)?,
        };
        Ok(self.surrounded(ids, special))
    }

    /// The ids that all texts beginning with `text` have in common, because they do not depend on what follows.
    pub fn begin(&self, text: &str) -> Result<Beginning, TokenizerError> {
        self.backend.begin(text)
    }

    /// Encodes a text like [`encode`](Self::encode), reusing the ids of `beginning`. The text must begin with the one
    /// that this tokenizer made `beginning` from; otherwise the ids are wrong.
    pub fn encode_after(
        &self,
        beginning: &Beginning,
        text: &str,
        special: bool,
    ) -> Result<Vec<u32>, TokenizerError> {
        Ok(self.surrounded(self.backend.encode_after(beginning, text)?, special))
    }

    /// Adds a cache of text prefixes. Ids stay the same, but texts that begin like an earlier one are encoded faster.
    #[must_use]
    pub fn with_prefix_cache(self, options: PrefixCacheOptions) -> Self {
        Self { prefix_cache: Some(PrefixCache::new(options)), ..self }
    }

    /// The counters of the prefix cache, if there is one.
    pub fn prefix_cache(&self) -> Option<PrefixCacheCounters> {
        self.prefix_cache.as_ref().map(PrefixCache::counters)
    }

    fn encode_cached(&self, cache: &PrefixCache, key: &str, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let beginning = match cache.get(key) {
            Some(beginning) => beginning,
            None => {
                let beginning = Arc::new(self.backend.begin(key)?);
                if beginning.bytes > 0 {
                    cache.insert(key, Arc::clone(&beginning));
                }
                beginning
            }
        };
        self.backend.encode_after(&beginning, text)
    }

    fn surrounded(&self, ids: Vec<u32>, special: bool) -> Vec<u32> {
        if !special || (self.prefix_ids().is_empty() && self.suffix_ids().is_empty()) {
            return ids;
        }
        [self.prefix_ids(), &ids, self.suffix_ids()].concat()
    }

    /// Encodes several texts, in order, on up to `threads` threads including the calling one. The ids do not depend on
    /// the number of threads.
    pub fn encode_batch(
        &self,
        texts: &[&str],
        special: bool,
        threads: usize,
    ) -> Result<Vec<Vec<u32>>, TokenizerError> {
        batch::over_threads(texts, threads, |text| self.encode(text, special))
    }

    /// Like [`encode_batch`](Self::encode_batch), with the byte range of each id.
    pub fn encode_batch_with_offsets(
        &self,
        texts: &[&str],
        special: bool,
        threads: usize,
    ) -> Result<Vec<Encoding>, TokenizerError> {
        batch::over_threads(texts, threads, |text| self.encode_with_offsets(text, special))
    }

    /// Encodes a text like [`encode`](Self::encode), with the byte range of each id.
    pub fn encode_with_offsets(&self, text: &str, special: bool) -> Result<Encoding, TokenizerError> {
        let mut found = self.backend.encode_with_offsets(text)?;
        for &trim in &self.affixes.trims {
            found.trim(trim, |id| self.entry(id).ok().map(Token::decoded));
        }
        let mut encoding = found.encoding;
        if special {
            encoding.surround(self.prefix_ids(), self.suffix_ids());
        }
        Ok(encoding)
    }

    /// The encoder in use.
    pub fn encoder(&self) -> Encoder {
        match self.backend {
            Backend::Native(_) => Encoder::Native,
            Backend::Library { .. } => Encoder::Library,
        }
    }

    /// Why the library encodes instead of the native encoder, if the native one was requested.
    pub fn fallback(&self) -> Option<&str> {
        match &self.backend {
            Backend::Library { reason, .. } => reason.as_deref(),
            Backend::Native(_) => None,
        }
    }

    /// Decodes ids to text; invalid UTF-8 becomes U+FFFD. With `skip_special`, special tokens are omitted. An id
    /// without a token is an error.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TokenizerError> {
        let mut text = Text::default();
        let mut out = String::new();
        for &id in ids {
            let token = self.entry(id)?;
            if !(skip_special && token.special) {
                self.decoder.push(&mut text, token.decoded(), &mut out);
            }
        }
        self.decoder.finish(&mut text, &mut out);
        Ok(out)
    }

    /// The highest id + 1, including added tokens.
    pub fn vocab_size(&self) -> usize {
        self.tokens.len()
    }

    /// The token of an id as written in the vocabulary (`Ġthe`, `▁the`, `<0x0A>`).
    pub fn token(&self, id: u32) -> Option<String> {
        self.entry(id).ok().map(|token| token.written.to_string())
    }

    /// The id of a token as written in the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        let same = |id: &u32| self.entry(*id).is_ok_and(|entry| *entry.written == *token);
        self.ids.find(self.hasher.hash_one(token), same).copied()
    }

    /// The tokens around the parts of a text with a gap; `None` if the vocabulary has none. Where the metadata of a GGUF file names them,
    /// they are those.
    pub fn gap_tokens(&self) -> Option<GapTokens> {
        self.gap.clone().or_else(|| gap::find(|name| self.id(name)))
    }

    /// The text that this id adds in the middle of a text (so a leading space stays), including special tokens;
    /// incomplete characters become U+FFFD. For messages and log-probabilities.
    pub fn token_text(&self, id: u32) -> Result<String, TokenizerError> {
        let mut text = Text::middle();
        let mut out = String::new();
        self.decoder.push(&mut text, self.entry(id)?.decoded(), &mut out);
        self.decoder.finish(&mut text, &mut out);
        Ok(out)
    }

    /// The bytes that this id adds in the middle of a text. Unlike in [`Tokenizer::token_text`], incomplete characters keep their bytes.
    pub fn token_bytes(&self, id: u32) -> Result<Vec<u8>, TokenizerError> {
        self.entry(id).map(|token| self.decoder.bytes(token.decoded()))
    }

    /// Whether an id marks a place in a text rather than being a part of it: a special token, or one that was added and is written like
    /// `<tool_call>` or `[THINK]`.
    pub fn is_marker(&self, id: u32) -> bool {
        self.entry(id).is_ok_and(|token| {
            let written = token.written.as_bytes();
            let ends = (written.first(), written.last());
            let is_bracketed = matches!(ends, (Some(b'<'), Some(b'>')) | (Some(b'['), Some(b']')));
            token.special || (token.added && is_bracketed)
        })
    }

    /// Whether `encode(.., special = true)` puts ids before the text.
    pub fn adds_bos(&self) -> bool {
        !self.affixes.prefix.is_empty()
    }

    /// The ids that `encode(.., special = true)` puts before any text.
    pub fn prefix_ids(&self) -> &[u32] {
        &self.affixes.prefix
    }

    /// The ids that `encode(.., special = true)` puts after any text.
    pub fn suffix_ids(&self) -> &[u32] {
        &self.affixes.suffix
    }

    /// The ids to put around two texts that are encoded without special ids, if the tokenizer has a form for them.
    pub fn pair(&self) -> Option<&PairAffixes> {
        let is_known = |pair: &&PairAffixes| {
            [&pair.before, &pair.between, &pair.after].into_iter().flatten().all(|id| self.entry(*id).is_ok())
        };
        self.affixes.pair.as_ref().filter(is_known)
    }

    pub(crate) fn entry(&self, id: u32) -> Result<&Token, TokenizerError> {
        let size = self.tokens.len();
        self.tokens.get(id as usize).and_then(Option::as_ref).ok_or(TokenizerError::UnknownId { id, size })
    }

    /// Checks the parts against each other and puts them together.
    pub(crate) fn build(parts: Parts<'_>) -> Result<Self, TokenizerError> {
        let Parts { place, encoder, model, added, normalizer, pre_tokenizer, affixes, decoder } = parts;
        if let Some(token) = added.iter().find(|token| token.content.is_empty()) {
            return Err(json::form(place, format!("an added token has no text: {token:?}")));
        }
        let checked = model.check(place)?;
        let added = added::numbered(added, &checked);
        let source = Source {
            place,
            checked: &checked,
            added: &added,
            normalizer: &normalizer,
            pre_tokenizer: &pre_tokenizer,
        };
        let backend = Backend::new(encoder, source)?;
        let mut tokens: Vec<_> = checked.tokens.iter().map(|token| token.map(Token::plain)).collect();
        let special: HashSet<&str> = added
            .iter()
            .filter(|(token, _)| token.special)
            .map(|(token, _)| token.content.as_str())
            .collect();
        for (token, id) in &added {
            let decoded = backend.decoded_form(token, *id);
            place_added(place, token, *id, Token::added(token, decoded, &special), &mut tokens)?;
        }
        let hasher = DefaultHashBuilder::default();
        let ids = by_name(&tokens, &hasher);
        let unk_token = model.unk_token();
        let tokenizer =
            Self { backend, tokens, ids, hasher, affixes, decoder, prefix_cache: None, gap: None };
        tokenizer.check_names(place, unk_token)?;
        Ok(tokenizer)
    }

    /// Checks that the unknown token and the tokens of prefix and suffix exist.
    fn check_names(&self, place: &str, unk_token: Option<String>) -> Result<(), TokenizerError> {
        let missing = |user: &str, token| TokenizerError::MissingToken {
            place: place.into(),
            user: user.into(),
            token,
        };
        if let Some(token) = unk_token.filter(|token| self.id(token).is_none()) {
            return Err(missing("`model.unk_token`", token));
        }
        let around = self.affixes.prefix.iter().chain(&self.affixes.suffix);
        for id in around {
            self.entry(*id).map_err(|_| missing("`post_processor`", format!("id {id}")))?;
        }
        Ok(())
    }
}

/// Adds an added token to the table.
fn place_added(
    place: &str,
    token: &AddedToken,
    id: u32,
    entry: Token,
    tokens: &mut Vec<Option<Token>>,
) -> Result<(), TokenizerError> {
    let content = &token.content;
    if let Some(stated) = token.id.filter(|stated| *stated != id) {
        let (place, token) = (place.to_owned(), content.clone());
        return Err(TokenizerError::AddedId { place, token, stated, given: id });
    }
    let at = id as usize;
    if tokens.len() <= at {
        tokens.resize_with(at + 1, || None);
    }
    if let Some(first) = tokens[at].as_ref().filter(|first| *first.written != **content) {
        let (place, first) = (place.to_owned(), first.written.to_string());
        return Err(TokenizerError::DuplicateId { place, id, first, second: content.clone() });
    }
    tokens[at] = Some(entry);
    Ok(())
}

/// Maps written tokens to ids.
fn by_name(tokens: &[Option<Token>], hasher: &DefaultHashBuilder) -> HashTable<u32> {
    let name = |id: u32| tokens[id as usize].as_ref().map_or("", |token| &token.written);
    let mut ids = HashTable::with_capacity(tokens.len());
    for (id, token) in (0..).zip(tokens) {
        if let Some(token) = token {
            ids.insert_unique(hasher.hash_one(&*token.written), id, |&id| hasher.hash_one(name(id)));
        }
    }
    ids
}

impl Token {
    fn plain(written: &str) -> Self {
        Self { written: written.into(), decoded: None, special: false, added: false }
    }

    fn added(token: &AddedToken, decoded: Option<String>, special: &HashSet<&str>) -> Self {
        let content = token.content.as_str();
        let decoded = decoded.filter(|decoded| decoded != content);
        Self {
            special: special.contains(decoded.as_deref().unwrap_or(content)),
            decoded: decoded.map(String::into_boxed_str),
            written: content.into(),
            added: true,
        }
    }

    pub(crate) fn decoded(&self) -> &str {
        self.decoded.as_deref().unwrap_or(&self.written)
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size())
            .field("affixes", &self.affixes)
            .field("decoder", &self.decoder)
            .finish_non_exhaustive()
    }
}
