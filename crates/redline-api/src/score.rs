//! `score`: the probability of each label as the next token.

use redline_engine::{ItemScore, Label, MaskSamples, Prompt, ScoreOutcome, ScoreRequest};
use redline_wire::{
    Finite, ItemFault, MonteCarlo, SchemaVersion, ScoreLine, ScoreMeta, Scoring, TextOrLabelIds,
};

use crate::adapter::adapters;
use crate::prompt::prompt;
use crate::{ApiError, LoadedModel, cost, receipt};

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
        items: line.items.0.into_iter().map(prompt).collect(),
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
        seed: line.seed.or(defaults.seed),
        cache_salt: line.cache_salt.unwrap_or_default(),
        adapters: adapters(line.adapter, &defaults.adapters),
        timeout_s: line.timeout_s.or(defaults.timeout_s),
        queueing: redline_engine::Queueing::default(),
        receipt: receipt::options(line.receipt),
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
    use redline_engine::{LongLabels, Tokenization, Truncate};

    use redline_engine::AdapterChoice;

    use super::*;

    /// The request of a line.
    fn of_line(json: &str, defaults: &ScoreRequest) -> Result<ScoreRequest, ApiError> {
        let mut line: ScoreLine = serde_json::from_str(json).unwrap();
        let prompt = crate::prompt::prompt(line.query.take().unwrap());
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
}
