//! `/v1/score`, as SGLang has it.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cases::{case, cases, given, only_true};
use crate::limits::MAX_LABELS;
use crate::named;
use crate::shape::{self, text, text_or_list_of};
use crate::{
    AdapterNames, Finite, ItemFault, Items, LabelIds, LongLabels, ReceiptChoice, ReceiptDocument, TextOrIds,
    Tokenization, Truncate, Usage,
};

/// Asks for the probability of each label after query and item.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = request_cases)]
#[serde(deny_unknown_fields)]
pub struct ScoreBody {
    /// The model's name.
    pub model: Option<String>,
    /// What all items share.
    pub query: TextOrIds,
    /// One row of scores each.
    pub items: Items,
    /// The labels as token ids.
    #[schemars(length(min = 1, max = MAX_LABELS))]
    pub label_token_ids: Option<Vec<LabelIds>>,
    /// The labels as texts.
    #[schemars(with = "Option<Vec<shape::SomeText>>", length(min = 1, max = MAX_LABELS))]
    pub labels: Option<Vec<String>>,
    /// Whether the scores of an item sum to 1 over the labels; otherwise they are probabilities over the vocabulary.
    pub apply_softmax: Option<bool>,
    /// Whether the item stands before the query.
    pub item_first: Option<bool>,
    /// How labels of several tokens count.
    #[serde(default, with = "named::optional")]
    #[schemars(with = "Option<named::OneOf<LongLabels>>")]
    pub long_labels: Option<LongLabels>,
    /// How texts are joined.
    #[serde(default, with = "named::optional")]
    #[schemars(with = "Option<named::OneOf<Tokenization>>")]
    pub tokenization: Option<Tokenization>,
    /// Which end of a prompt is cut if it exceeds the context; `null`: an error.
    #[serde(default, with = "named::optional")]
    #[schemars(with = "Option<named::OneOf<Truncate>>")]
    pub truncate: Option<Truncate>,
    /// Whether an item that fails is reported beside the others instead of failing the request.
    pub item_errors: Option<bool>,
    /// Whether to return log-probabilities too.
    pub return_logprobs: Option<bool>,
    /// The adapters, applied one after the other.
    pub adapter: Option<AdapterNames>,
    /// Only requests with the same salt share cached prefixes.
    #[schemars(with = "Option<shape::Salt>")]
    pub cache_salt: Option<String>,
    /// Time limit in seconds.
    #[schemars(with = "Option<shape::Seconds>")]
    pub timeout_s: Option<f64>,
    /// Ask for a receipt: `true`, or an object with the `layers` to have digests of.
    pub receipt: Option<ReceiptChoice>,
}

/// Answer of `/v1/score`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ScoreAnswer {
    /// Identifies the answer.
    pub id: String,
    /// Always `scoring`.
    pub object: &'static str,
    /// When the request came, in seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// One score per label for each item; `null` for an item that failed.
    pub scores: Vec<Option<Vec<Finite<f32>>>>,
    /// Log-probabilities of the labels, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<Option<Vec<Finite<f32>>>>>,
    /// Items that failed, if they may.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub item_errors: Vec<ItemFault>,
    /// Token counts.
    pub usage: Usage,
    /// The receipt, on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptDocument>>,
}

/// Labels have one of two forms, and query and items are both texts or both token ids.
fn request_cases(schema: &mut Schema) {
    let (texts, ids) = ("labels", "label_token_ids");
    cases(schema, [case([(texts, given())], &[ids]), case([(ids, given())], &[texts])]);
    let list = |least: usize| json!({ "type": "array", "minItems": least });
    let lists = |least: usize| json!({ "type": "array", "items": list(least) });
    let none = json!({ "type": "array", "maxItems": 0 });
    cases(
        schema,
        [
            case([("query", text()), ("items", text_or_list_of(text()))], &[]),
            // Query and item have a token together, or the item may fail.
            case([("query", list(1)), ("items", lists(0))], &[]),
            case([("query", none), ("items", lists(1))], &[]),
            case([("query", list(0)), ("items", lists(0)), ("item_errors", only_true())], &[]),
        ],
    );
}
