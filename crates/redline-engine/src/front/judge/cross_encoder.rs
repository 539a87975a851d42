//! Reranking with a cross-encoder: a model that reads query and document together, and whose one output is the relevance.

use std::sync::Arc;

use redline_models::block::dense::Classifier;
use redline_settings::{Setting, hint};

use super::encoded;
use super::order::{in_order, without_labels};
use super::template::Frame;
use crate::answer::outcome::{EncodeOutcome, Encoded, Ranked};
use crate::answer::ticket::{RerankTicket, Ticket};
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::front::Engine;
use crate::front::encode::FirstText;
use crate::mode::encode::EncodeText;
use crate::request::{JudgeOptions, Label, RerankRequest};

const NOUN: &str = "document";

/// Refuses what only models that write yes or no can use.
fn check(engine: &Engine, request: &RerankRequest, classifier: &Classifier) -> Result<(), EngineError> {
    request.check()?;
    let labels = classifier.labels.len();
    if labels != 1 && !answers(&classifier.labels) {
        let fact = format!("the model has {labels} classes, and a reranker has one output, the relevance");
        return Err(EngineError::request(fact, "take a reranker such as bge-reranker-base"));
    }
    let own = hint!["leave it out: a cross-encoder reads query and document, and no prompt"];
    let refuse = |name: &str| {
        Err(EngineError::request(format!("`{name}` is for models that write yes or no"), own.clone()))
    };
    if request.options.template.is_some() && !engine.info.objective.is_causal() {
        return refuse("template");
    }
    check_words(request, &refuse)
}

/// Refuses what only models that write words can use.
pub(super) fn check_words(
    request: &RerankRequest,
    refuse: &dyn Fn(&str) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    if request.options.calibrate.is_some() {
        return refuse(Setting::Calibrate.name());
    }
    // An answer in a chat has no space before it.
    let is_default = |label: &Label, name: &str| matches!(label, Label::Text(text) if text.trim() == name);
    if !is_default(&request.yes, "yes") || !is_default(&request.no, "no") {
        return refuse("yes` or `no");
    }
    Ok(())
}

/// Whether the classes are yes and no, of which the logarithm of the odds is the output.
fn answers(labels: &[String]) -> bool {
    matches!(labels, [yes, no] if yes == "yes" && no == "no")
}

/// How query and document are put together.
enum Form<'a> {
    /// As the tokenizer says.
    Pair(FirstText<'a>),
    /// By a template, for a model that was made from a decoder.
    Framed(Frame),
}

impl<'a> Form<'a> {
    fn new(engine: &'a Engine, request: &RerankRequest) -> Result<Self, EngineError> {
        Ok(match request.options.template {
            Some(_) => Self::Framed(request.frame()?),
            None => Self::Pair(FirstText::new(engine, &request.query)?),
        })
    }

    fn frame(&self) -> Option<(&Frame, &'static str)> {
        match self {
            Self::Pair(_) => None,
            Self::Framed(frame) => Some((frame, NOUN)),
        }
    }

    fn text(
        &self,
        engine: &Engine,
        place: (&str, usize),
        document: &str,
        options: &JudgeOptions,
    ) -> Result<EncodeText, EngineError> {
        match self {
            Self::Pair(query) => query.pair(place, document, options.truncate),
            Self::Framed(frame) => {
                let prompt = [&frame.head, document, &frame.tail].concat();
                engine.encode_prompt(place, &prompt, options.add_special_tokens)
            }
        }
    }
}

/// Starts to rerank with a cross-encoder.
pub(super) fn submit(
    engine: &Engine,
    mut request: RerankRequest,
    classifier: Arc<Classifier>,
    cancel: &Cancel,
) -> Result<RerankTicket, EngineError> {
    check(engine, &request, &classifier)?;
    let form = Form::new(engine, &request)?;
    let options = request.options;
    let read = |index: usize, document: &str| form.text(engine, (NOUN, index), document, &options);
    let (texts, failed) = encoded::all(engine, &mut request.documents, &options, form.frame(), read)?;
    let failed = failed.into_iter().map(Err).collect();
    let indices: Vec<usize> = texts.iter().map(|text| text.index).collect();
    let (top_n, threshold) = (request.top_n.unwrap_or(usize::MAX), request.threshold.unwrap_or(0.0));
    Ticket::begin(cancel, |reply, cancels| {
        let answer = move |outcome: Result<EncodeOutcome, EngineError>| {
            let outcome = outcome.map(|EncodeOutcome { texts, cost, receipt, form: _ }| {
                let ranked = indices.iter().zip(texts).map(|(&index, text)| {
                    let log_odds = match text.values[..] {
                        [yes, no] => yes - no,
                        _ => text.values.first().copied().unwrap_or(0.0),
                    };
                    let relevance = logistic(log_odds);
                    let Encoded { prompt_tokens, truncated, .. } = text;
                    Ranked { index, relevance, log_odds, prompt_tokens, truncated }
                });
                without_labels(in_order(ranked.collect(), failed, top_n, threshold), cost, receipt)
            });
            reply.finish(outcome);
        };
        engine.run_classifier(texts, classifier, NOUN, cancels, options, Box::new(answer))
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
