//! `score`: requests and answers.

use std::collections::BTreeMap;

use redline_settings::{LongLabels, Tokenization, Truncate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::adapter::AdapterNames;
use crate::chat::{JsonText, chat_keys};
use crate::cost::CostMeta;
use crate::finite::Finite;
use crate::id::RequestId;
use crate::input::{Items, LabelIds, TextOrIds, TextOrLabelIds};
use crate::named;
use crate::receipt::{ReceiptChoice, ReceiptDocument};
use crate::schema::SchemaVersion;
use crate::usage::Usage;

/// One score request, as a line of JSON Lines input. An absent key takes the value of the command's flag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoreLine {
    /// Passed through to the answer.
    #[serde(default, skip_serializing)]
    pub id: RequestId,
    /// The text that all items share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<TextOrIds>,
    /// The items; each gets one row of scores.
    pub items: Items,
    /// Labels as text, each exactly one token unless `long_labels` is set. They precede `label_token_ids` in the columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// Labels as token ids; a list of ids is a label of several tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_token_ids: Option<Vec<LabelIds>>,
    /// Labels per item, one list for each, instead of common labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_labels: Option<Vec<Vec<TextOrLabelIds>>>,
    /// How the score of a label of several tokens is computed.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "named::optional")]
    pub long_labels: Option<LongLabels>,
    /// Apply the softmax over the labels only.
    #[serde(default, alias = "softmax", skip_serializing_if = "Option::is_none")]
    pub apply_softmax: Option<bool>,
    /// Put the item before the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_first: Option<bool>,
    /// How query and item become tokens.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "named::optional")]
    pub tokenization: Option<Tokenization>,
    /// Which end of a prompt longer than the context is dropped. If absent or `null`, such a prompt is an error.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "named::optional")]
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
    /// With a model that fills masks: maximum number of ways to mask the tokens of a label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mc_samples: Option<usize>,
    /// With a model that fills masks: seed for drawing among those ways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Only requests with the same salt share entries of the prefix cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_salt: Option<String>,
    /// The adapters of the request: a name, or a list of names and of objects with `name` and `scale`; `base` for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterNames>,
    /// Time limit of the request in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// Ask for a receipt: `true`, or an object with the `layers` to have digests of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ReceiptChoice>,
    /// A conversation, instead of a query: objects with `role` and `content`, which the model's chat template formats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<JsonText>>,
    /// JSON schemas of the functions that the model may call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<JsonText>>,
    /// Documents that the model may use, objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<Vec<JsonText>>,
    /// Further variables of the chat template by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template_kwargs: Option<BTreeMap<String, JsonText>>,
    /// The date that the chat template may print, such as `2026-07-26`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// End the formatted conversation where the assistant's answer begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_generation_prompt: Option<bool>,
    /// End the formatted conversation with the content of its final message, so that the model continues it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continue_final_message: Option<bool>,
}

chat_keys!(ScoreLine);

/// Answer to a score request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scoring {
    /// Always `scoring`.
    pub object: String,
    /// The version of this form.
    pub schema: SchemaVersion,
    /// The model's name.
    pub model: String,
    /// `scores[item][label]` in the order of the request; `null` for an item listed in `meta.item_errors`.
    pub scores: Vec<Option<Vec<Finite<f32>>>>,
    /// Token counts.
    pub usage: Usage,
    /// Further details.
    pub meta: ScoreMeta,
    /// The receipt, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

/// Details of a score answer. Lists over items have one entry per item, `null` for items that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreMeta {
    /// The token ids of the labels, in column order; empty if every item has its own labels.
    pub label_token_ids: Vec<LabelIds>,
    /// The token ids of each item's labels, if every item has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_label_token_ids: Option<Vec<Vec<LabelIds>>>,
    /// Log-probabilities of the labels over the vocabulary. With a softmax over labels and without `full_logprobs`,
    /// the logarithms of the returned row.
    pub logprobs: Vec<Option<Vec<Finite<f32>>>>,
    /// Summed probability of the distinct labels per item; `null` if the normaliser was not computed.
    pub label_mass: Option<Vec<Option<Finite<f32>>>>,
    /// The cost of the request.
    #[serde(flatten)]
    pub cost: CostMeta,
    /// Number of tokens of each prompt.
    pub prompt_tokens: Vec<Option<usize>>,
    /// Whether each prompt was cut to fit the context.
    pub truncated: Vec<Option<bool>>,
    /// Text only: whether concatenated and separate tokenisation differ at the boundary between query and item.
    pub boundary_mismatch: Vec<Option<bool>>,
    /// Errors of the items that failed.
    pub item_errors: Vec<ItemFault>,
    /// The scored token ids, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<Option<Vec<u32>>>>,
    /// Sampling of masks for the labels, if the model fills masks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monte_carlo: Option<MonteCarlo>,
}

/// How labels were scored with a model that fills masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonteCarlo {
    /// Maximum number of ways to mask the tokens of a label.
    pub samples: usize,
    /// Seed of the draws.
    pub seed: u64,
    /// Number of distinct labels, per list, for which samples were drawn; the scores of the others are exact.
    pub sampled_labels: usize,
}

/// The error of one item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ItemFault {
    /// The item's index in the request, from 0.
    pub index: usize,
    /// The error message, with numbers.
    pub message: String,
}

#[cfg(test)]
#[path = "score_tests.rs"]
mod tests;
