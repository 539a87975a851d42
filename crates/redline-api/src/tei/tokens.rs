//! `/tokenize` with `inputs`, and `/decode`, in the form of Text Embeddings Inference.

use redline_tokenizer::{Tokenizer, TokenizerError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::ApiError;
use crate::json::fields::{count, refused};
use crate::json::input::{Prompts, Strings, TextOrIds};
use crate::json::limits::MAX_TEXTS;
use crate::json::shape::{Texts, list_of, schemas, token, tokens};

/// Asks for the tokens of texts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TeiTokenizeBody {
    /// A text, or several.
    #[schemars(with = "Texts<1, MAX_TEXTS>")]
    pub inputs: Strings,
    /// Whether to add the tokens that the tokenizer puts around a text; default `true`.
    pub add_special_tokens: Option<bool>,
    /// The name of the task whose prompt is put before every text.
    pub prompt_name: Option<String>,
}

/// A token of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TeiTextToken {
    /// Its id.
    pub id: u32,
    /// Its text; that of a special token as the vocabulary writes it.
    pub text: String,
    /// Whether the tokenizer added it.
    pub special: bool,
    /// Where it begins in the text, in characters; `null` for a token that was added.
    pub start: Option<usize>,
    /// Where it ends.
    pub stop: Option<usize>,
}

/// Asks for the texts of tokens.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecodeBody {
    /// The ids of one text, or lists of those of several.
    #[schemars(with = "IdLists")]
    pub ids: Prompts,
    /// Whether special tokens are left out; default `true`.
    pub skip_special_tokens: Option<bool>,
}

/// Lists of token ids.
struct IdLists;

schemas! {
    IdLists: |_g| {
        let ids = json!({ "type": "array", "items": token() });
        json!({ "anyOf": [tokens(), list_of(ids, [1, MAX_TEXTS])] })
    };
}

/// The texts of a request, after the prompt of their task.
pub fn texts(body: TeiTokenizeBody, task: &str) -> Result<Vec<String>, ApiError> {
    count("inputs", body.inputs.0.len(), 1..=MAX_TEXTS)?;
    Ok(body
        .inputs
        .0
        .into_iter()
        .map(|text| if task.is_empty() { text } else { format!("{task}{text}") })
        .collect())
}

/// The tokens of a text.
pub fn tokens_of(
    tokenizer: &Tokenizer,
    text: &str,
    special: bool,
) -> Result<Vec<TeiTextToken>, TokenizerError> {
    let encoding = tokenizer.encode_with_offsets(text, special)?;
    let (before, after) =
        if special { (tokenizer.prefix_ids(), tokenizer.suffix_ids()) } else { (&[][..], &[][..]) };
    let own = before.len()..encoding.ids.len().saturating_sub(after.len());
    let mut counted = Counted { text, bytes: 0, characters: 0 };
    let token = |(at, (&id, place)): (usize, (&u32, &std::ops::Range<usize>))| {
        let special = !own.contains(&at);
        let characters = (!special).then(|| counted.of(place.start).zip(counted.of(place.end))).flatten();
        let written = || tokenizer.token(id).unwrap_or_default();
        let text =
            if special { written() } else { text.get(place.clone()).map_or_else(written, str::to_owned) };
        TeiTextToken {
            id,
            text,
            special,
            start: characters.map(|(start, _)| start),
            stop: characters.map(|(_, stop)| stop),
        }
    };
    Ok(encoding.ids.iter().zip(&encoding.offsets).enumerate().map(token).collect())
}

/// Counts the characters before a place of a text. Places come in ascending order, or nearly so.
struct Counted<'t> {
    text: &'t str,
    bytes: usize,
    characters: usize,
}

impl Counted<'_> {
    fn of(&mut self, place: usize) -> Option<usize> {
        if place < self.bytes {
            self.characters -= self.text.get(place..self.bytes)?.chars().count();
        } else {
            self.characters += self.text.get(self.bytes..place)?.chars().count();
        }
        self.bytes = place;
        Some(self.characters)
    }
}

/// The lists of ids of a request.
pub fn id_lists(body: DecodeBody) -> Result<Vec<Vec<i64>>, ApiError> {
    let lists = body.ids.0;
    count("ids", lists.len(), 1..=MAX_TEXTS)?;
    let ids = |of: TextOrIds| match of {
        TextOrIds::Ids(ids) => Ok(ids),
        TextOrIds::Text(_) => Err(refused("ids", "`ids` has a text", "give token ids, or lists of them")),
    };
    lists.into_iter().map(ids).collect()
}

/// The ids of a field, which the tokenizer knows.
pub fn known_ids(tokenizer: &Tokenizer, param: &str, ids: &[i64]) -> Result<Vec<u32>, ApiError> {
    let of = |(at, &id): (usize, &i64)| {
        let known = u32::try_from(id).ok().filter(|&id| tokenizer.token(id).is_some());
        known.ok_or_else(|| ApiError::Field {
            param: format!("{param}[{at}]"),
            fact: format!("{id} is no token; there are {}", tokenizer.vocab_size()),
            hint: None,
        })
    };
    ids.iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn tokens_have_their_places_in_characters() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo/tokenizer.json");
        let tokenizer = Tokenizer::from_file(&path).unwrap();
        let text = "In é😀 the beginning";
        let tokens = tokens_of(&tokenizer, text, true).unwrap();
        let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
        assert_eq!(ids, tokenizer.encode(text, true).unwrap());
        let characters: Vec<char> = text.chars().collect();
        let mut own = 0;
        for token in tokens.iter().filter(|token| !token.special) {
            let expect: String = characters[token.start.unwrap()..token.stop.unwrap()].iter().collect();
            assert_eq!(token.text, expect);
            own += 1;
        }
        assert!(own > 3 && tokens[0].special && tokens[0].text == "<|bos|>" && tokens[0].start.is_none());
        assert_eq!(tokens_of(&tokenizer, text, false).unwrap().len(), own);
    }

    #[test]
    fn ids_are_one_list_or_several() {
        let lists = |ids: &str| id_lists(serde_json::from_str(&format!(r#"{{"ids":{ids}}}"#)).unwrap());
        assert_eq!(lists("[1,2]").unwrap(), [vec![1, 2]]);
        assert_eq!(lists("[[1],[2,3]]").unwrap(), [vec![1], vec![2, 3]]);
        assert!(lists(r#""a""#).is_err() && lists("[]").is_err());
    }
}
