//! `score`: the probabilities of labels after each item.

use redline_engine::{ItemScore, Label, MaskSamples, Prompt, ScoreOutcome, ScoreRequest};
use redline_settings::{LongLabels, Tokenization, Truncate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::adapter::adapters;
use crate::chat::keys::ChatKeys;
use crate::cost::{self, CostMeta, Usage};
use crate::error::ApiError;
use crate::json::finite::Finite;
use crate::json::id::RequestId;
use crate::json::input::{Items, LabelIds, TextOrIds, TextOrLabelIds};
use crate::json::named;
use crate::json::parts::with_parts;
use crate::json::text::JsonText;
use crate::json::version::SchemaVersion;
use crate::model::LoadedModel;
use crate::options::RequestOptions;
use crate::receipt;
use crate::receipt::document::ReceiptDocument;
use crate::sampling::Seed;

/// One score request, as a line of JSON Lines input. An absent key takes the value of the command's flag.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "ScoreLine")]
pub struct ScoreLine {
    /// Passed through to the answer.
    #[serde(default)]
    pub id: RequestId,
    /// The text that all items share.
    pub query: Option<TextOrIds>,
    /// The items; each gets one row of scores.
    pub items: Items,
    /// Labels as text, each exactly one token unless `long_labels` is set. They precede `label_token_ids` in the columns.
    pub labels: Option<Vec<String>>,
    /// Labels as token ids; a list of ids is a label of several tokens.
    pub label_token_ids: Option<Vec<LabelIds>>,
    /// Labels per item, one list for each, instead of common labels.
    pub item_labels: Option<Vec<Vec<TextOrLabelIds>>>,
    /// How the score of a label of several tokens is computed.
    #[serde(default, with = "named::optional")]
    pub long_labels: Option<LongLabels>,
    /// Apply the softmax over the labels only.
    #[serde(alias = "softmax")]
    pub apply_softmax: Option<bool>,
    /// Put the item before the query.
    pub item_first: Option<bool>,
    /// How query and item become tokens.
    #[serde(default, with = "named::optional")]
    pub tokenization: Option<Tokenization>,
    /// Which end of a prompt longer than the context is dropped. If absent or `null`, such a prompt is an error.
    #[serde(default, with = "named::optional")]
    pub truncate: Option<Truncate>,
    /// Report an item's error in its place instead of failing the whole request.
    pub item_errors: Option<bool>,
    /// Evaluate the whole vocabulary even when the softmax is over labels.
    pub full_logprobs: Option<bool>,
    /// Return the token ids of every scored prompt.
    pub return_token_ids: Option<bool>,
    /// With a model that fills masks: maximum number of ways to mask the tokens of a label.
    pub mc_samples: Option<usize>,
    /// With a model that fills masks: seed for drawing among those ways.
    pub seed: Option<Seed>,
    /// A conversation, instead of a query: objects with `role` and `content`, which the model's chat template formats.
    pub messages: Option<Vec<JsonText>>,
    /// Adapters, time limit, receipt.
    #[serde(skip)]
    pub options: RequestOptions,
    /// What concerns the conversation, beside the messages.
    #[serde(skip)]
    pub chat: ChatKeys,
}

with_parts! {
    ScoreLine { options: RequestOptions, chat: ChatKeys }
}

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

/// Builds a request for the query of a line. Absent keys take their values from `defaults`, whose query, items, labels of items and salt
/// are not used.
pub fn request(line: ScoreLine, query: Prompt, defaults: &ScoreRequest) -> Result<ScoreRequest, ApiError> {
    let item_labels = line.item_labels.map(|lists| lists.into_iter().map(labels_of_item).collect());
    let labels = match (line.labels, line.label_token_ids) {
        (None, None) if item_labels.is_some() => Vec::new(),
        (None, None) if defaults.labels.is_empty() => {
            return Err(ApiError::NoLabel);
        }
        (None, None) => defaults.labels.clone(),
        (texts, ids) => {
            let texts = texts.into_iter().flatten().map(Label::Text);
            texts.chain(ids.into_iter().flatten().map(|ids| Label::Ids(ids.0))).collect()
        }
    };
    Ok(ScoreRequest {
        query,
        items: line.items.0.into_iter().map(Prompt::from).collect(),
        labels,
        item_labels,
        label_end: defaults.label_end.clone(),
        long_labels: line.long_labels.unwrap_or(defaults.long_labels),
        softmax: line.apply_softmax.unwrap_or(defaults.softmax),
        item_first: line.item_first.unwrap_or(defaults.item_first),
        full_logprobs: line.full_logprobs.unwrap_or(defaults.full_logprobs),
        tokenization: line.tokenization.unwrap_or(defaults.tokenization),
        truncate: line.truncate.or(defaults.truncate),
        item_errors: line.item_errors.unwrap_or(defaults.item_errors),
        return_token_ids: line.return_token_ids.unwrap_or(defaults.return_token_ids),
        return_reading: false,
        mc_samples: line.mc_samples.or(defaults.mc_samples),
        seed: line.seed.map(|seed| seed.0).or(defaults.seed),
        cache_salt: line.options.cache_salt.unwrap_or_default(),
        adapters: adapters(line.options.adapter, &defaults.adapters),
        timeout_s: line.options.timeout_s.or(defaults.timeout_s),
        queueing: redline_engine::Queueing::default(),
        receipt: receipt::options(line.options.receipt),
    })
}

fn labels_of_item(labels: Vec<TextOrLabelIds>) -> Vec<Label> {
    let label = |label| match label {
        TextOrLabelIds::Text(text) => Label::Text(text),
        TextOrLabelIds::Ids(ids) => Label::Ids(ids.0),
    };
    labels.into_iter().map(label).collect()
}

/// Builds the JSON document of the answer.
pub fn answer(model: &LoadedModel, mut outcome: ScoreOutcome) -> Scoring {
    let receipt = receipt::attached(outcome.receipt.take());
    Scoring {
        object: "scoring".to_owned(),
        schema: SchemaVersion,
        model: model.name.clone(),
        scores: per_item(&outcome, |item| finite(&item.scores)),
        usage: cost::usage(outcome.cost.usage),
        meta: meta(model, outcome),
        receipt,
    }
}

fn meta(model: &LoadedModel, outcome: ScoreOutcome) -> ScoreMeta {
    let scored = || outcome.items.iter().flatten();
    let has_label_mass = scored().all(|item| item.label_mass.is_some());
    let has_token_ids = scored().any(|item| item.token_ids.is_some());
    ScoreMeta {
        logprobs: per_item(&outcome, |item| finite(&item.logprobs)),
        label_mass: has_label_mass.then(|| optional_per_item(&outcome, |item| item.label_mass.map(Finite))),
        prompt_tokens: per_item(&outcome, |item| item.prompt_tokens),
        truncated: per_item(&outcome, |item| item.truncated),
        boundary_mismatch: optional_per_item(&outcome, |item| item.boundary_mismatch),
        item_errors: item_faults(&outcome),
        token_ids: has_token_ids.then(|| optional_per_item(&outcome, |item| item.token_ids.clone())),
        label_token_ids: cost::label_ids(outcome.label_token_ids),
        item_label_token_ids: outcome
            .item_label_token_ids
            .map(|lists| lists.into_iter().map(cost::label_ids).collect()),
        monte_carlo: outcome.monte_carlo.map(monte_carlo),
        cost: cost::cost(model, outcome.cost),
    }
}

fn monte_carlo(from: MaskSamples) -> MonteCarlo {
    MonteCarlo { samples: from.samples, seed: from.seed, sampled_labels: from.sampled_labels }
}

/// The errors of the items that failed.
pub(crate) fn item_faults(outcome: &ScoreOutcome) -> Vec<ItemFault> {
    let errors = outcome.items.iter().filter_map(|item| item.as_ref().err());
    errors.map(|error| ItemFault { index: error.index, message: error.message.clone() }).collect()
}

/// A value of every item; `None` for items that failed.
pub(crate) fn per_item<T>(outcome: &ScoreOutcome, value: impl Fn(&ItemScore) -> T) -> Vec<Option<T>> {
    optional_per_item(outcome, |item| Some(value(item)))
}

/// As [`per_item`], for a value that an item may lack.
fn optional_per_item<T>(outcome: &ScoreOutcome, value: impl Fn(&ItemScore) -> Option<T>) -> Vec<Option<T>> {
    outcome.items.iter().map(|item| item.as_ref().ok().and_then(&value)).collect()
}

pub(crate) fn finite(row: &[f32]) -> Vec<Finite<f32>> {
    row.iter().copied().map(Finite).collect()
}

#[cfg(test)]
mod tests {
    use redline_engine::{AdapterChoice, LongLabels, Tokenization, Truncate};

    use super::*;

    /// The request of a line.
    fn of_line(json: &str, defaults: &ScoreRequest) -> Result<ScoreRequest, ApiError> {
        let mut line: ScoreLine = serde_json::from_str(json).unwrap();
        let prompt = line.query.take().unwrap().into();
        request(line, prompt, defaults)
    }

    fn defaults() -> ScoreRequest {
        ScoreRequest {
            receipt: None,
            query: Prompt::Text(String::new()),
            items: Vec::new(),
            labels: vec![Label::Ids(vec![3])],
            item_labels: None,
            label_end: Some(Label::Ids(vec![7])),
            long_labels: LongLabels::Sum,
            softmax: true,
            item_first: false,
            full_logprobs: true,
            tokenization: Tokenization::Separate,
            truncate: Some(Truncate::Left),
            item_errors: false,
            return_token_ids: true,
            return_reading: false,
            mc_samples: Some(16),
            seed: None,
            cache_salt: String::new(),
            adapters: vec![AdapterChoice { name: "default".to_owned(), scale: 1.0 }],
            queueing: redline_engine::Queueing::default(),
            timeout_s: None,
        }
    }

    fn line(json: &str) -> ScoreRequest {
        of_line(json, &defaults()).unwrap()
    }

    #[test]
    fn a_line_wins_over_the_flags() {
        let bare = line(r#"{"query":"q","items":["a"]}"#);
        assert_eq!(bare.labels, [Label::Ids(vec![3])]);
        assert_eq!((bare.softmax, bare.full_logprobs, bare.return_token_ids), (true, true, true));
        assert_eq!((bare.tokenization, bare.truncate), (Tokenization::Separate, Some(Truncate::Left)));
        assert_eq!((bare.mc_samples, bare.seed), (Some(16), None));
        let full = line(
            r#"{"query":[1],"items":[[2]],"labels":["x"],"label_token_ids":[9],"softmax":false,"item_first":true,
            "tokenization":"concat","truncate":"right","return_token_ids":false,"mc_samples":8,"seed":3}"#,
        );
        assert_eq!(full.labels, [Label::Text("x".to_owned()), Label::Ids(vec![9])]);
        assert_eq!((full.softmax, full.item_first, full.return_token_ids), (false, true, false));
        assert_eq!((full.tokenization, full.truncate), (Tokenization::Concat, Some(Truncate::Right)));
        assert_eq!((full.mc_samples, full.seed), (Some(8), Some(3)));
        assert_eq!((full.query, full.items), (Prompt::Ids(vec![1]), vec![Prompt::Ids(vec![2])]));
    }

    #[test]
    fn labels_come_from_somewhere() {
        let without = ScoreRequest { labels: Vec::new(), ..defaults() };
        assert!(of_line(r#"{"query":"q","items":["a"]}"#, &without).is_err());
        // An explicitly empty list is passed on, and the engine rejects it.
        assert!(line(r#"{"query":"q","items":["a"],"labels":[]}"#).labels.is_empty());
    }

    #[test]
    fn every_key_of_a_line_and_every_flag_reaches_the_request() {
        let flags = ScoreRequest { seed: Some(4), timeout_s: Some(2.0), ..defaults() };
        let line = |json: &str| format!("{:#?}", of_line(json, &flags).unwrap());
        let bare = ScoreRequest {
            query: Prompt::Text("q".to_owned()),
            items: vec![Prompt::Text("a".to_owned())],
            ..flags.clone()
        };
        assert_eq!(line(r#"{"query":"q","items":["a"]}"#), format!("{bare:#?}"));
        let keys = ScoreRequest {
            receipt: None,
            query: Prompt::Ids(vec![1]),
            items: vec![Prompt::Ids(vec![2])],
            labels: Vec::new(),
            item_labels: Some(vec![vec![Label::Text("x".to_owned()), Label::Ids(vec![9])]]),
            label_end: Some(Label::Ids(vec![7])),
            long_labels: LongLabels::Mean,
            softmax: false,
            item_first: true,
            full_logprobs: false,
            tokenization: Tokenization::Concat,
            truncate: Some(Truncate::Right),
            item_errors: true,
            return_token_ids: false,
            return_reading: false,
            mc_samples: Some(8),
            seed: Some(3),
            cache_salt: "tenant".to_owned(),
            adapters: vec![AdapterChoice { name: "tone".to_owned(), scale: 0.5 }],
            queueing: redline_engine::Queueing::default(),
            timeout_s: Some(3.0),
        };
        let json = r#"{"query":[1],"items":[[2]],"item_labels":[["x",[9]]],"long_labels":"mean","apply_softmax":false,
            "item_first":true,"full_logprobs":false,"tokenization":"concat","truncate":"right","item_errors":true,
            "return_token_ids":false,"mc_samples":8,"seed":3,"cache_salt":"tenant","adapter":[{"name":"tone","scale":0.5}],"timeout_s":3}"#;
        assert_eq!(line(json), format!("{keys:#?}"));
    }

    fn refused(json: &str, expect: &str) {
        let error = serde_json::from_str::<ScoreLine>(json).unwrap_err().to_string();
        assert!(error.contains(expect), "{json}: {error}");
    }

    #[test]
    fn absent_keys_are_absent() {
        let line: ScoreLine = serde_json::from_str(r#"{"query":"q","items":["a","b"]}"#).unwrap();
        assert_eq!(line.query, Some(TextOrIds::Text("q".to_owned())));
        assert_eq!(line.items.0.len(), 2);
        assert_eq!((line.labels, line.label_token_ids), (None, None));
        assert_eq!((line.apply_softmax, line.item_first, line.full_logprobs), (None, None, None));
        assert_eq!((line.item_errors, line.return_token_ids), (None, None));
        assert_eq!((line.tokenization, line.truncate), (None, None));
        let line: ScoreLine = serde_json::from_str(r#"{"query":[1],"items":[]}"#).unwrap();
        assert_eq!((line.query, line.items), (Some(TextOrIds::Ids(vec![1])), Items(Vec::new())));
    }

    #[test]
    fn keys_are_read() {
        let json = r#"{"query":[1,2],"items":[[3]],"labels":[" yes"],"label_token_ids":[7,-1],"apply_softmax":true,
            "item_first":true,"tokenization":"separate","truncate":"left","item_errors":true,"full_logprobs":true,
            "return_token_ids":true,"cache_salt":"t","long_labels":"mean"}"#;
        let line: ScoreLine = serde_json::from_str(json).unwrap();
        assert_eq!(line.label_token_ids, Some(vec![LabelIds(vec![7]), LabelIds(vec![-1])]));
        assert_eq!(line.tokenization, Some(Tokenization::Separate));
        assert_eq!(line.truncate, Some(Truncate::Left));
    }

    #[test]
    fn softmax_is_another_name_of_apply_softmax() {
        let line: ScoreLine = serde_json::from_str(r#"{"query":"","items":"","softmax":true}"#).unwrap();
        assert_eq!(line.apply_softmax, Some(true));
        refused(
            r#"{"query":"","items":"","softmax":true,"apply_softmax":true}"#,
            "duplicate field `apply_softmax`",
        );
    }

    #[test]
    fn bad_requests_are_named() {
        refused(r#"{"query":"q","items":[],"lables":[]}"#, "unknown field `lables`");
        refused(r#"{"query":"q"}"#, "missing field `items`");
        refused(r#"{"query":1,"items":[]}"#, "expected a string or a list of token ids");
        refused(r#"{"query":"q","items":[],"label_token_ids":[1.5]}"#, "floating point `1.5`");
        refused(r#"{"query":"q","items":[],"label_token_ids":["1"]}"#, "string \"1\"");
        refused(r#"{"query":"q","items":[],"label_token_ids":[true]}"#, "boolean `true`");
        refused(r#"{"query":"q","items":[],"tokenization":"both"}"#, "unknown variant `both`");
        refused(r#"{"query":"q","items":[],"item_first":1}"#, "expected a boolean");
        refused("[]", "invalid");
        refused("{\"query\":\"q\",\"items\":[]} x", "trailing characters");
    }

    #[test]
    fn a_choice_of_a_wrong_type_is_answered_with_every_name() {
        refused(
            r#"{"query":"q","items":[],"tokenization":5}"#,
            "integer `5`, expected one of the strings concat, separate",
        );
        refused(
            r#"{"query":"q","items":[],"long_labels":true}"#,
            "boolean `true`, expected one of the strings refuse, sum, mean",
        );
    }

    fn meta() -> ScoreMeta {
        ScoreMeta {
            label_token_ids: vec![LabelIds(vec![5]), LabelIds(vec![6, 7])],
            item_label_token_ids: None,
            monte_carlo: None,
            logprobs: vec![Some(vec![Finite(-1.0), Finite(-0.1)]), None],
            label_mass: None,
            cost: CostMeta {
                cache_miss_count: 0,
                computed_tokens: 4,
                shared_prefix_tokens: 2,
                prefix_cache: Some(crate::cost::PrefixCacheUse { hits: 1, misses: 0, cached_tokens: 2 }),
                queue_s: Finite(0.25),
                compute_s: Finite(0.5),
                peak_memory_bytes: None,
                kernel_path: "scalar/f32".to_owned(),
                threads: 1,
            },
            prompt_tokens: vec![Some(3), None],
            truncated: vec![Some(false), None],
            boundary_mismatch: vec![Some(true), None],
            item_errors: vec![ItemFault { index: 1, message: "too long".to_owned() }],
            token_ids: None,
        }
    }

    #[test]
    fn an_answer_has_the_documented_shape() {
        let answer = Scoring {
            receipt: None,
            object: "scoring".to_owned(),
            schema: SchemaVersion,
            model: "demo".to_owned(),
            scores: vec![Some(vec![Finite(0.1), Finite(0.9)]), None],
            usage: Usage::new(3, 0, 0),
            meta: meta(),
        };
        let json = serde_json::to_string(&answer).unwrap();
        assert!(
            json.starts_with(
                r#"{"object":"scoring","schema":1,"model":"demo","scores":[[0.1,0.9],null],"usage":{"#
            ),
            "{json}"
        );
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(value["meta"]["label_mass"].is_null());
        assert_eq!(value["meta"]["label_token_ids"], serde_json::json!([5, [6, 7]]));
        assert!(value["meta"].get("token_ids").is_none());
        assert_eq!(value["meta"]["cache_miss_count"], 0);
        assert_eq!(serde_json::from_str::<Scoring>(&json).unwrap(), answer);
    }

    #[test]
    fn a_score_that_is_no_number_is_not_printed() {
        let mut meta = meta();
        meta.logprobs[0] = Some(vec![Finite(f32::NEG_INFINITY)]);
        assert!(serde_json::to_string(&meta).is_err());
    }
}
