//! `/v1/score`: the probability of each label, in SGLang's form.

use redline_engine::{EngineError, Label, ScoreOutcome, ScoreRequest};
use redline_wire::limits::{MAX_ITEMS, MAX_LABELS};
use redline_wire::{ScoreAnswer, ScoreBody, TextOrIds};

use super::AnswerHead;
use super::fields::{count, refused, salt, timeout};
use crate::prompt::prompt;
use crate::score::{finite, item_faults, per_item};
use crate::{ApiError, cost, receipt};

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
    let query = prompt(body.query);
    let mut request = ScoreRequest::new(query, items.into_iter().map(prompt).collect(), labels);
    request.softmax = body.apply_softmax.unwrap_or(false);
    request.item_first = body.item_first.unwrap_or(false);
    request.long_labels = body.long_labels.unwrap_or(request.long_labels);
    request.tokenization = body.tokenization.unwrap_or(request.tokenization);
    request.truncate = body.truncate;
    request.item_errors = body.item_errors.unwrap_or(false);
    request.cache_salt = salt(body.cache_salt)?;
    request.timeout_s = timeout(body.timeout_s)?;
    request.receipt = receipt::options(body.receipt);
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
