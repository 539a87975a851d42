//! `score`: requests and answers.

use serde::{Deserialize, Serialize};

use crate::finite::Finite;
use crate::input::{Items, LabelIds, TextOrIds, TextOrLabelIds};
use crate::took::Took;
use crate::usage::Usage;

/// How query and item become one token sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tokenization {
    /// The texts are concatenated, then tokenised as one string.
    Concat,
    /// Query and item are tokenised apart.
    Separate,
}

/// How a label of several tokens counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LongLabels {
    /// By the probability of all its tokens in turn.
    Sum,
    /// By their geometric mean.
    Mean,
}

/// Which end of an over-long prompt is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Truncate {
    /// Tokens at the beginning.
    Left,
    /// Tokens at the end.
    Right,
}

/// One score request, as a line of JSON Lines input. A key that is absent takes the command's flag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoreLine {
    /// What all items share.
    pub query: TextOrIds,
    /// One row of scores per item.
    pub items: Items,
    /// Labels as text, each exactly one token unless `long_labels` says more. They come before `label_token_ids` in the columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// Labels as token ids; a list of ids is a label of several tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_token_ids: Option<Vec<LabelIds>>,
    /// Labels of each item, one list per item, instead of labels for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_labels: Option<Vec<Vec<TextOrLabelIds>>>,
    /// How a label of several tokens counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_labels: Option<LongLabels>,
    /// Softmax over the labels only.
    #[serde(default, alias = "softmax", skip_serializing_if = "Option::is_none")]
    pub apply_softmax: Option<bool>,
    /// Put the item before the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_first: Option<bool>,
    /// How texts are joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenization: Option<Tokenization>,
    /// What to do with a prompt longer than the context; absent or `null` refuses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncate: Option<Truncate>,
    /// Report an item's error in its place instead of failing the whole request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_errors: Option<bool>,
    /// Evaluate the whole vocabulary even when the softmax is over labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_logprobs: Option<bool>,
    /// Return the token ids of every scored prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_token_ids: Option<bool>,
    /// With a model that fills masks: most ways in which masks cover the tokens of a label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mc_samples: Option<usize>,
    /// With a model that fills masks: of the draws among those ways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Only requests with the same salt share what the prefix cache keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_salt: Option<String>,
    /// Seconds that the request may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
}

/// Answer to a score request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scoring {
    /// Always `scoring`.
    pub object: String,
    /// The model's name.
    pub model: String,
    /// `scores[item][label]` in the order of the request; `null` for an item listed in `meta.item_errors`.
    pub scores: Vec<Option<Vec<Finite<f32>>>>,
    /// Token counts.
    pub usage: Usage,
    /// Everything else.
    pub meta: ScoreMeta,
}

/// What a score answer says besides the scores. Lists over items have one entry per item, `null` where it failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreMeta {
    /// The labels as token ids, in the order of the columns; empty where every item has its own.
    pub label_token_ids: Vec<LabelIds>,
    /// The labels of each item as token ids, where every item has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_label_token_ids: Option<Vec<Vec<LabelIds>>>,
    /// Log-probabilities of the labels over the vocabulary, or (softmax over labels without `full_logprobs`) the
    /// logarithm of the returned row.
    pub logprobs: Vec<Option<Vec<Finite<f32>>>>,
    /// Summed probability of the distinct labels per item; `null` where the normaliser was not computed.
    pub label_mass: Option<Vec<Option<Finite<f32>>>>,
    /// What it took.
    #[serde(flatten)]
    pub took: Took,
    /// Tokens of each prompt.
    pub prompt_tokens: Vec<Option<usize>>,
    /// Whether each prompt was cut to fit the context.
    pub truncated: Vec<Option<bool>>,
    /// Text only: whether concatenated and separate tokenisation differ at the boundary of query and item.
    pub boundary_mismatch: Vec<Option<bool>>,
    /// The items that failed (`item_errors`).
    pub item_errors: Vec<ItemFault>,
    /// The scored token ids, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<Option<Vec<u32>>>>,
    /// How labels were covered by masks, where the model fills those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monte_carlo: Option<MonteCarlo>,
}

/// How a model that fills masks was asked for its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonteCarlo {
    /// Most ways in which the tokens of a label were covered.
    pub samples: usize,
    /// Of the draws.
    pub seed: u64,
    /// Labels, distinct within their list, for which samples were drawn; the scores of the others are exact.
    pub sampled_labels: usize,
}

/// Why one item has no row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemFault {
    /// The item's index in the request, from 0.
    pub index: usize,
    /// The fact, with its numbers.
    pub message: String,
}

#[cfg(test)]
#[path = "score_tests.rs"]
mod tests;
