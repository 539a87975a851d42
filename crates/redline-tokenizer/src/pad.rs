//! Pads a vocabulary with unused tokens, for synthetic models of a real shape with a small tokenizer.

use crate::{Tokenizer, TokenizerError, json, model::MAX_ID};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// The name of the file in messages; the caller has only its bytes.
const PLACE: &str = "tokenizer.json";

/// Returns a `tokenizer.json` whose vocabulary has `size` entries. Every id below `size` without a token gets an
/// unused token, named `<|unused_0|>` and so on. Text is encoded as before.
///
/// The unused tokens are vocabulary entries that no merge produces, not added tokens. Added tokens would go into the
/// automaton that searches every text, and loading 124 000 of them takes several times as long.
pub fn padded(json: &[u8], size: usize) -> Result<Vec<u8>, TokenizerError> {
    let tokenizer = Tokenizer::from_bytes(PLACE, json)?;
    let has = tokenizer.vocab_size();
    if size < has {
        return Err(TokenizerError::CannotShrink { has, size });
    }
    if size > MAX_ID as usize + 1 {
        let id = u32::try_from(size - 1).unwrap_or(u32::MAX);
        let (place, token) = (PLACE.to_owned(), "<|unused|>".to_owned());
        return Err(TokenizerError::IdTooLarge { place, token, id, limit: MAX_ID });
    }
    let mut rest: Map<String, Value> = json::parse(PLACE, json)?;
    let Some(Value::Object(mut model)) = rest.remove("model") else {
        return Err(json::form(PLACE, "`model` is missing"));
    };
    model.remove("vocab");
    let file = File { rest, model: Model { rest: model, vocab: Vocab(filled(&tokenizer, size)) } };
    serde_json::to_vec(&file).map_err(|error| json::form(PLACE, error.to_string()))
}

/// The tokens by id, with missing ones filled in. Added tokens are included, so that they keep their ids.
fn filled(tokenizer: &Tokenizer, size: usize) -> Vec<String> {
    let tokens: Vec<_> = (0..size).map(|id| tokenizer.token(id as u32)).collect();
    let taken: HashSet<String> = tokens.iter().flatten().cloned().collect();
    let mut unused = (0..).map(|n: usize| format!("<|unused_{n}|>")).filter(|token| !taken.contains(token));
    tokens.into_iter().map(|token| token.or_else(|| unused.next()).unwrap_or_default()).collect()
}

#[derive(Serialize)]
struct File {
    #[serde(flatten)]
    rest: Map<String, Value>,
    model: Model,
}

#[derive(Serialize)]
struct Model {
    #[serde(flatten)]
    rest: Map<String, Value>,
    vocab: Vocab,
}

/// Tokens in the order of their ids.
struct Vocab(Vec<String>);

impl Serialize for Vocab {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().zip(0_u32..))
    }
}
