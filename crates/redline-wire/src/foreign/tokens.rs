//! `/tokenize` and `/detokenize`, as vLLM has them.

use serde::{Deserialize, Serialize};

/// Asks for the tokens of a text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizeBody {
    /// The model's name.
    pub model: Option<String>,
    /// The text.
    #[serde(alias = "content", alias = "text")]
    pub prompt: String,
    /// Whether to add the tokens that the tokenizer puts around a text; default `true`.
    pub add_special_tokens: Option<bool>,
    /// Whether to return the tokens as written in the vocabulary.
    pub return_token_strs: Option<bool>,
}

/// The tokens of a text.
#[derive(Clone, Debug, Serialize)]
pub struct TokenizeAnswer {
    /// The ids.
    pub tokens: Vec<u32>,
    /// Their number.
    pub count: usize,
    /// Longest sequence of the model in tokens.
    pub max_model_len: usize,
    /// The tokens as written in the vocabulary, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_strs: Option<Vec<String>>,
}

/// Asks for the text of tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DetokenizeBody {
    /// The model's name.
    pub model: Option<String>,
    /// The ids.
    pub tokens: Vec<i64>,
}

/// The text of tokens.
#[derive(Clone, Debug, Serialize)]
pub struct DetokenizeAnswer {
    /// The text, with special tokens.
    pub prompt: String,
}
