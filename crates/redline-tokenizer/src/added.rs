//! Tokens added to the model's vocabulary: special tokens and others that are found before any merge.

use crate::model::Checked;
use hashbrown::HashMap;
use serde::Deserialize;

/// A token that is found in the text as a whole, before the model processes the remaining text.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Written")]
pub struct AddedToken {
    /// The text of the token.
    pub content: String,
    /// Its id. `None` takes the vocabulary's id of the same content, or the next free id.
    pub id: Option<u32>,
    /// Omitted by `decode(.., skip_special = true)`.
    pub special: bool,
    /// Found in the normalised text instead of the text as written.
    pub normalized: bool,
    /// Found only if no word character is adjacent.
    pub single_word: bool,
    /// Includes the whitespace on its left.
    pub lstrip: bool,
    /// Includes the whitespace on its right.
    pub rstrip: bool,
}

impl AddedToken {
    /// A special token that is found as written, in any surroundings.
    pub fn special(content: impl Into<String>) -> Self {
        Self {
            content: content.into(),
            id: None,
            special: true,
            normalized: false,
            single_word: false,
            lstrip: false,
            rstrip: false,
        }
    }

    /// The same token with a fixed id.
    pub fn with_id(self, id: u32) -> Self {
        Self { id: Some(id), ..self }
    }
}

/// The JSON form, in which `normalized` defaults to the opposite of `special`.
#[derive(Deserialize)]
struct Written {
    content: String,
    id: Option<u32>,
    #[serde(default)]
    special: bool,
    normalized: Option<bool>,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
}

impl From<Written> for AddedToken {
    fn from(written: Written) -> Self {
        let Written { content, id, special, normalized, single_word, lstrip, rstrip } = written;
        let normalized = normalized.unwrap_or(!special);
        Self { content, id, special, normalized, single_word, lstrip, rstrip }
    }
}

/// The ids of the added tokens, as the `tokenizers` crate assigns them: the vocabulary's id of the same content, or
/// else consecutive ids that start at the vocabulary's number of tokens.
pub(crate) fn numbered(added: Vec<AddedToken>, checked: &Checked<'_>) -> Vec<(AddedToken, u32)> {
    let mut next = checked.ids.len() as u32;
    let mut given: HashMap<String, u32> = HashMap::new();
    let number = |token: AddedToken| {
        let known = given.get(&token.content).or_else(|| checked.ids.get(token.content.as_str())).copied();
        let id = known.unwrap_or_else(|| {
            next += 1;
            next - 1
        });
        given.insert(token.content.clone(), id);
        (token, id)
    };
    added.into_iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_normalised_unless_it_is_special_or_says_so() {
        let normalized = |json: &str| serde_json::from_str::<AddedToken>(json).unwrap().normalized;
        assert!(normalized(r#"{"content": "a"}"#));
        assert!(normalized(r#"{"content": "a", "special": false}"#));
        assert!(!normalized(r#"{"content": "a", "special": true}"#));
        assert!(normalized(r#"{"content": "a", "special": true, "normalized": true}"#));
        assert!(!normalized(r#"{"content": "a", "normalized": false}"#));
    }
}
