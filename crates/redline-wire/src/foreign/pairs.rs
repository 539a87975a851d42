//! `/score`, as vLLM has it: the relevance of a text to another.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::cases::{case, cases, given};
use crate::limits::MAX_PAIRS;
use crate::shape;
use crate::{Finite, Strings, Usage};

/// Asks for the relevance of texts. Two lists are given under one of the pairs of names.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = request_cases)]
#[serde(deny_unknown_fields)]
pub struct PairsBody {
    /// The model's name.
    pub model: Option<String>,
    /// The queries, with `documents` or `items`.
    #[schemars(with = "Option<shape::Texts<1, MAX_PAIRS>>")]
    pub queries: Option<Strings>,
    /// The documents, with `queries`.
    #[schemars(with = "Option<shape::Texts<1, MAX_PAIRS>>")]
    pub documents: Option<Strings>,
    /// The documents, with `queries`.
    #[schemars(with = "Option<shape::Texts<1, MAX_PAIRS>>")]
    pub items: Option<Strings>,
    /// The queries, with `data_2`.
    #[schemars(with = "Option<shape::Texts<1, MAX_PAIRS>>")]
    pub data_1: Option<Strings>,
    /// The documents, with `data_1`.
    #[schemars(with = "Option<shape::Texts<1, MAX_PAIRS>>")]
    pub data_2: Option<Strings>,
    /// The queries, with `text_2`.
    #[schemars(with = "Option<shape::Texts<1, MAX_PAIRS>>")]
    pub text_1: Option<Strings>,
    /// The documents, with `text_1`.
    #[schemars(with = "Option<shape::Texts<1, MAX_PAIRS>>")]
    pub text_2: Option<Strings>,
    /// -1: documents that are too long are cut at their end. Nothing else is supported.
    #[schemars(range(min = -1, max = -1))]
    pub truncate_prompt_tokens: Option<i64>,
    /// `false`: scores are log-odds instead of probabilities.
    pub use_activation: Option<bool>,
    /// Only requests with the same salt share cached prefixes.
    #[schemars(with = "Option<shape::Salt>")]
    pub cache_salt: Option<String>,
    /// Time limit in seconds.
    #[schemars(with = "Option<shape::Seconds>")]
    pub timeout_s: Option<f64>,
}

/// Answer of `/score` in vLLM's form.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PairsAnswer {
    /// Identifies the answer.
    pub id: String,
    /// Always `list`.
    pub object: &'static str,
    /// When the request came, in seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// One entry per pair.
    pub data: Vec<PairScore>,
    /// Token counts.
    pub usage: Usage,
}

/// The score of a pair.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PairScore {
    /// The index of the pair.
    pub index: usize,
    /// Always `score`.
    pub object: &'static str,
    /// The relevance.
    pub score: Finite<f32>,
}

/// One of four pairs of lists.
fn request_cases(schema: &mut Schema) {
    let all = ["queries", "documents", "items", "data_1", "data_2", "text_1", "text_2"];
    let sides = [("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2")];
    let side = |(left, right)| {
        let absent: Vec<&str> = all.into_iter().filter(|name| *name != left && *name != right).collect();
        case([(left, given()), (right, given())], &absent)
    };
    cases(schema, sides.map(side));
}
