//! `/tokenize` and `/detokenize`, as vLLM has them.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::json::cases::aliased;
use crate::json::shape;

/// Asks for the tokens of a text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = request_cases)]
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
#[derive(Clone, Debug, Serialize, JsonSchema)]
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

/// What clients need to know of the tokenizer, as vLLM and lm-evaluation-harness have it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TokenizerInfo {
    /// The token with which a text begins.
    pub bos_token: Option<String>,
    /// The token that ends a text.
    pub eos_token: Option<String>,
    /// The token with which texts are padded.
    pub pad_token: Option<String>,
    /// The token for what the vocabulary does not have.
    pub unk_token: Option<String>,
    /// Whether a text gets the token with which it begins.
    pub add_bos_token: bool,
    /// The source of the chat template.
    pub chat_template: Option<String>,
    /// The highest id + 1.
    pub vocab_size: usize,
    /// Longest sequence of the model in tokens.
    pub model_max_length: usize,
}

/// Asks for the text of tokens.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetokenizeBody {
    /// The model's name.
    pub model: Option<String>,
    /// The ids.
    #[schemars(with = "Vec<shape::Token>")]
    pub tokens: Vec<i64>,
}

/// The text of tokens.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DetokenizeAnswer {
    /// The text, with special tokens.
    pub prompt: String,
}

fn request_cases(schema: &mut Schema) {
    aliased(schema, &["prompt", "content", "text"]);
}
