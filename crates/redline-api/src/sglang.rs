//! `/v1/score`, as SGLang has it.

use redline_engine::{EngineError, Label, Prompt, ScoreOutcome, ScoreRequest};
use redline_settings::{LongLabels, Tokenization, Truncate};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cost::{self, Usage};
use crate::error::ApiError;
use crate::head::AnswerHead;
use crate::json::cases::{case, cases, given, only_true};
use crate::json::fields::{count, refused, salt, timeout};
use crate::json::finite::Finite;
use crate::json::input::{Items, LabelIds, TextOrIds};
use crate::json::limits::{MAX_ITEMS, MAX_LABELS};
use crate::json::named;
use crate::json::parts::with_parts;
use crate::json::shape::{self, text, text_or_list_of};
use crate::jsonl::score::{ItemFault, finite, item_faults, per_item};
use crate::options::RequestOptions;
use crate::receipt;
use crate::receipt::document::ReceiptDocument;

/// Asks for the probability of each label after query and item.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = request_cases)]
#[serde(deny_unknown_fields, remote = "ScoreBody")]
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
    /// Adapters, time limit, receipt.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub options: RequestOptions,
}

with_parts! {
    ScoreBody { options: RequestOptions }
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

/// The form of the answer, and of the request that errors name the fields of.
#[derive(Clone, Copy, Debug)]
pub struct ScoreForm {
    logprobs: bool,
    /// The field with the labels.
    labels: &'static str,
}

impl ScoreForm {
    /// Names the field with the labels in an error of the engine about them.
    pub fn named(self, error: EngineError) -> EngineError {
        match error {
            EngineError::Request { fact, hint, field: Some("labels") } => {
                EngineError::Request { fact, hint, field: Some(self.labels) }
            }
            other => other,
        }
    }
}

/// Builds the engine's request.
pub fn request(body: ScoreBody) -> Result<(ScoreRequest, ScoreForm), ApiError> {
    let items = body.items.0;
    count("items", items.len(), 0..=MAX_ITEMS)?;
    let is_text = |prompt: &TextOrIds| matches!(prompt, TextOrIds::Text(_));
    if let Some(at) = items.iter().position(|item| is_text(item) != is_text(&body.query)) {
        let param = format!("items[{at}]");
        let fact = format!("`query` and `{param}` are not both texts or both token ids");
        return Err(refused(&param, fact, "give both in one form"));
    }
    let (param, labels) = match (body.label_token_ids, body.labels) {
        (Some(ids), None) => ("label_token_ids", ids.into_iter().map(|ids| Label::Ids(ids.0)).collect()),
        (None, Some(texts)) => ("labels", texts.into_iter().map(Label::Text).collect::<Vec<_>>()),
        (None, None) => {
            return Err(refused(
                "label_token_ids",
                "no labels are given",
                "give token ids, or texts as `labels`",
            ));
        }
        (Some(_), Some(_)) => {
            let fact = "both `label_token_ids` and `labels` are given";
            return Err(refused("labels", fact, "give one of them"));
        }
    };
    count(param, labels.len(), 1..=MAX_LABELS)?;
    let is_empty = |label: &Label| match label {
        Label::Text(text) => text.is_empty(),
        Label::Ids(ids) => ids.is_empty(),
    };
    if let Some(at) = labels.iter().position(is_empty) {
        let param = format!("{param}[{at}]");
        return Err(refused(&param, format!("`{param}` is empty"), "give at least one token"));
    }
    let query = body.query.into();
    let mut request = ScoreRequest::new(query, items.into_iter().map(Prompt::from).collect(), labels);
    request.softmax = body.apply_softmax.unwrap_or(false);
    request.item_first = body.item_first.unwrap_or(false);
    request.long_labels = body.long_labels.unwrap_or(request.long_labels);
    request.tokenization = body.tokenization.unwrap_or(request.tokenization);
    request.truncate = body.truncate;
    request.item_errors = body.item_errors.unwrap_or(false);
    request.cache_salt = salt(body.options.cache_salt)?;
    request.timeout_s = timeout(body.options.timeout_s)?;
    request.receipt = receipt::options(body.options.receipt);
    Ok((request, ScoreForm { logprobs: body.return_logprobs.unwrap_or(false), labels: param }))
}

/// Builds the answer.
pub fn answer(head: AnswerHead, form: ScoreForm, outcome: ScoreOutcome) -> ScoreAnswer {
    ScoreAnswer {
        id: head.id,
        object: "scoring",
        created: head.created,
        model: head.model,
        scores: per_item(&outcome, |item| finite(&item.scores)),
        logprobs: form.logprobs.then(|| per_item(&outcome, |item| finite(&item.logprobs))),
        item_errors: item_faults(&outcome),
        usage: cost::usage(outcome.cost.usage),
        receipt: receipt::attached(outcome.receipt),
    }
}
