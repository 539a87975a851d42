//! The tokens of a GGUF file, checked, with the kind of each.

use super::kind::Kind;
use super::{GgufVocabulary, ends, wrong};
use crate::TokenizerError;
use crate::model::MAX_ID;
use hashbrown::HashMap;
use std::borrow::Cow;

/// The tokens by id, without the fillers at the end.
pub(super) struct Entries<'a> {
    pub(super) place: &'a str,
    pub(super) tokens: Vec<Cow<'a, str>>,
    pub(super) kinds: Vec<Kind>,
    /// The ids after which generation ends, ascending.
    pub(super) ends: Vec<u32>,
}

const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const TYPES: &str = "tokenizer.ggml.token_type";

impl<'a> Entries<'a> {
    /// Checks everything that does not depend on the kind of model.
    pub(super) fn new(place: &'a str, vocabulary: &'a GgufVocabulary) -> Result<Self, TokenizerError> {
        vocabulary.check_model(place)?;
        check_lengths(place, vocabulary)?;
        for (key, id) in vocabulary.special.all() {
            if let Some(id) = id.filter(|id| *id as usize >= vocabulary.tokens.len()) {
                let size = vocabulary.tokens.len();
                return Err(wrong(place, key, format!("it is {id}, but the file has {size} tokens")));
            }
        }
        let mut kinds = kinds(place, vocabulary)?;
        let tokens = vocabulary.tokens.iter().zip(0..).map(|(token, id)| match token.as_str() {
            // A `tokenizer.json` would take it for a match at every place of a text.
            "" => Cow::Owned(format!("[EMPTY_{id}]")),
            token => Cow::Borrowed(token),
        });
        let mut tokens: Vec<_> = tokens.collect();
        let eos = default_eos(vocabulary, &kinds);
        let ends = ends::end_ids(vocabulary, eos, &kinds, &names(place, &tokens)?);
        for id in &ends {
            let kind = &mut kinds[*id as usize];
            // Some converters lose that this is a control token.
            if *kind == Kind::Normal {
                *kind = Kind::Control;
            }
        }
        let given: Vec<u32> = vocabulary.special.all().into_iter().filter_map(|(_, id)| id).collect();
        let fills = |(id, (token, kind)): &(usize, (&Cow<'_, str>, &Kind))| {
            **kind == Kind::Unused && is_filler(token) && !given.contains(&(*id as u32))
        };
        let fillers = tokens.iter().zip(&kinds).enumerate().rev().take_while(fills).count();
        tokens.truncate(tokens.len() - fillers);
        kinds.truncate(tokens.len());
        Ok(Self { place, tokens, kinds, ends })
    }

    /// The ids by token.
    pub(super) fn names(&self) -> Result<HashMap<&str, u32>, TokenizerError> {
        names(self.place, &self.tokens)
    }

    /// The id of BOS: the given one, or the model's default.
    pub(super) fn bos(&self, vocabulary: &GgufVocabulary) -> Option<u32> {
        let default = match vocabulary.model.as_str() {
            "gpt2" if !matches!(vocabulary.pre.as_deref(), Some("chatglm-bpe" | "glm4" | "glm5")) => Some(11),
            "llama" => Some(1),
            _ => None,
        };
        vocabulary.special.bos.or(default.filter(|id| is_control(&self.kinds, *id)))
    }

    /// The id of EOS: the given one, or the model's default.
    pub(super) fn eos(&self, vocabulary: &GgufVocabulary) -> Option<u32> {
        default_eos(vocabulary, &self.kinds)
    }

    /// The id of the unknown token: the given one, or the first of that kind.
    pub(super) fn unk(&self, vocabulary: &GgufVocabulary) -> Option<u32> {
        let first = || self.kinds.iter().position(|kind| *kind == Kind::Unknown).map(|id| id as u32);
        vocabulary.special.unk.or_else(first)
    }

    /// The text of a token.
    pub(super) fn text(&self, id: u32) -> &str {
        self.tokens.get(id as usize).map_or("", |token| token)
    }
}

fn default_eos(vocabulary: &GgufVocabulary, kinds: &[Kind]) -> Option<u32> {
    let default = match vocabulary.model.as_str() {
        "gpt2" => Some(11),
        "llama" => Some(2),
        "t5" => Some(1),
        _ => None,
    };
    vocabulary.special.eos.or(default.filter(|id| is_control(kinds, *id)))
}

fn is_control(kinds: &[Kind], id: u32) -> bool {
    kinds.get(id as usize) == Some(&Kind::Control)
}

fn check_lengths(place: &str, vocabulary: &GgufVocabulary) -> Result<(), TokenizerError> {
    let size = vocabulary.tokens.len();
    if size == 0 {
        return Err(wrong(place, TOKENS, "there are no tokens"));
    }
    if size > MAX_ID as usize + 1 {
        return Err(wrong(
            place,
            TOKENS,
            format!("there are {size} tokens, at most {} can be read", MAX_ID + 1),
        ));
    }
    let scores = vocabulary.scores.as_ref().map(Vec::len);
    let types = vocabulary.types.as_ref().map(Vec::len);
    for (key, len) in [(SCORES, scores), (TYPES, types)] {
        if let Some(len) = len.filter(|len| *len != size) {
            return Err(wrong(place, key, format!("there are {len} values for {size} tokens")));
        }
    }
    let scores = vocabulary.scores.iter().flatten().enumerate();
    match scores.into_iter().find(|(_, score)| !score.is_finite()) {
        Some((id, score)) => Err(wrong(place, SCORES, format!("the score of token {id} is {score}"))),
        None => Ok(()),
    }
}

/// The kinds by id. Without types, the tokens with a purpose are control tokens.
fn kinds(place: &str, vocabulary: &GgufVocabulary) -> Result<Vec<Kind>, TokenizerError> {
    let Some(types) = &vocabulary.types else {
        let mut kinds = vec![Kind::Normal; vocabulary.tokens.len()];
        for (key, id) in vocabulary.special.all() {
            if let Some(kind) = id.and_then(|id| kinds.get_mut(id as usize)) {
                *kind = if key.contains("unknown") { Kind::Unknown } else { Kind::Control };
            }
        }
        return Ok(kinds);
    };
    let kinds = types.iter().zip(&vocabulary.tokens).enumerate().map(|(id, (kind, token))| {
        Ok(match kind {
            2 | 4 if is_filler(token) => Kind::Unused,
            0 | 1 => Kind::Normal,
            2 => Kind::Unknown,
            3 => Kind::Control,
            4 => Kind::UserDefined,
            5 => Kind::Unused,
            6 => Kind::Byte,
            _ => {
                return Err(wrong(place, TYPES, format!("token {id} has type {kind}, types go from 0 to 6")));
            }
        })
    });
    kinds.collect()
}

/// Whether the token is one with which converters fill ids that have no token: `[PAD1234]`.
fn is_filler(token: &str) -> bool {
    let digits = token.strip_prefix("[PAD").and_then(|rest| rest.strip_suffix(']'));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()))
}

fn names<'t>(place: &str, tokens: &'t [Cow<'_, str>]) -> Result<HashMap<&'t str, u32>, TokenizerError> {
    let mut names = HashMap::with_capacity(tokens.len());
    for (token, id) in tokens.iter().zip(0_u32..) {
        if let Some(first) = names.insert(&**token, id) {
            return Err(wrong(place, TOKENS, format!("token `{token}` has two ids, {first} and {id}")));
        }
    }
    Ok(names)
}
