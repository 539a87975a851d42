//! Reranking with a cross-encoder: a model that reads query and document together, and whose one output is the relevance.

use std::sync::Arc;

use redline_models::block::pooled::Classifier;
use redline_settings::{Setting, hint};

use super::encoded;
use super::order::in_order;
use crate::answer::outcome::{EncodeOutcome, Encoded, Ranked, RerankOutcome};
use crate::answer::ticket::{RerankTicket, Ticket};
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::front::Engine;
use crate::front::encode::FirstText;
use crate::request::RerankRequest;

const NOUN: &str = "document";

/// Refuses what only models that write yes or no can use.
fn check(request: &RerankRequest, classifier: &Classifier) -> Result<(), EngineError> {
    request.check()?;
    let labels = classifier.labels.len();
    if labels != 1 {
        let fact = format!("the model has {labels} classes, and a reranker has one output, the relevance");
        return Err(EngineError::request(fact, "take a reranker such as bge-reranker-base"));
    }
    let plain = RerankRequest::new(String::new(), Vec::new());
    let own = hint!["leave it out: a cross-encoder reads query and document, and no prompt"];
    let refuse = |name: &str| {
        Err(EngineError::request(format!("`{name}` is for models that write yes or no"), own.clone()))
    };
    if request.options.template.is_some() {
        return refuse("template");
    }
    if request.options.calibrate.is_some() {
        return refuse(Setting::Calibrate.name());
    }
    if request.yes != plain.yes || request.no != plain.no {
        return refuse("yes` or `no");
    }
    Ok(())
}

/// Starts to rerank with a cross-encoder.
pub(super) fn submit(
    engine: &Engine,
    mut request: RerankRequest,
    classifier: Arc<Classifier>,
    cancel: &Cancel,
) -> Result<RerankTicket, EngineError> {
    check(&request, &classifier)?;
    let query = FirstText::new(engine, &request.query)?;
    let truncate = request.options.truncate;
    let read = |index: usize, document: &str| query.pair((NOUN, index), document, truncate);
    let (texts, failed) = encoded::all(engine, &mut request.documents, &request.options, read)?;
    let failed = failed.into_iter().map(Err).collect();
    let indices: Vec<usize> = texts.iter().map(|text| text.index).collect();
    let (top_n, threshold) = (request.top_n.unwrap_or(usize::MAX), request.threshold.unwrap_or(0.0));
    let options = request.options;
    Ticket::begin(cancel, |reply, cancels| {
        let answer = move |outcome: Result<EncodeOutcome, EngineError>| {
            let outcome = outcome.map(|EncodeOutcome { texts, cost }| {
                let ranked = indices.iter().zip(texts).map(|(&index, text)| {
                    let log_odds = text.values.first().copied().unwrap_or(0.0);
                    let relevance = logistic(log_odds);
                    let Encoded { prompt_tokens, truncated, .. } = text;
                    Ranked { index, relevance, log_odds, prompt_tokens, truncated }
                });
                RerankOutcome {
                    results: in_order(ranked.collect(), failed, top_n, threshold),
                    label_token_ids: Vec::new(),
                    end_token_ids: Vec::new(),
                    prefix_label: None,
                    cost,
                }
            });
            reply.finish(outcome);
        };
        let limits = (options.timeout_s, options.queueing);
        engine.run_classifier(texts, classifier, NOUN, cancels, limits, &options.adapters, Box::new(answer))
    })
}

/// `1 / (1 + e^-x)`, computed in f64.
fn logistic(x: f32) -> f32 {
    (1.0 / (1.0 + libm::exp(-f64::from(x)))) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logistic_function_has_no_overflow() {
        assert_eq!([0.0, 200.0, -200.0].map(logistic), [0.5, 1.0, libm::exp(-200.0) as f32]);
        assert!((logistic(1.0) - 0.731_058_6).abs() < 1e-6);
    }
}
