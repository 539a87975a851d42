//! Classification by a model with classes of its own: an encoder that was trained to classify.

use std::sync::Arc;

use redline_models::block::dense::Classifier;
use redline_settings::Setting;

use super::choice::chosen;
use super::encoded;
use crate::answer::outcome::{Classified, ClassifyOutcome, EncodeOutcome, Encoded};
use crate::answer::ticket::{ClassifyTicket, Ticket};
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::front::Engine;
use crate::front::encode::FirstText;
use crate::mode::encode::EncodeText;
use crate::request::{ClassifyRequest, Label};

const NOUN: &str = "text";

/// Refuses what only models that write their answer can use.
fn check(request: &ClassifyRequest, classifier: &Classifier) -> Result<(), EngineError> {
    request.check()?;
    let own = || format!("the model was trained for {}", listed(&classifier.labels));
    if classifier.labels.len() == 1 {
        let fact = "the model has one output, a relevance, which is no class".to_owned();
        return Err(EngineError::request(fact, "use it to rerank"));
    }
    let names = classifier.labels.iter().cloned().map(Label::Text);
    if !request.classes.is_empty() && !names.eq(request.classes.iter().cloned()) {
        return Err(EngineError::field(
            "classes",
            own(),
            "leave the classes out, or give these in this order",
        ));
    }
    let given = [
        ("template", request.options.template.is_some()),
        (Setting::Calibrate.name(), request.options.calibrate.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((name, _)) => {
            let fact = format!("`{name}` is for models that write a class; {}", own());
            Err(EngineError::field(name, fact, "leave it out"))
        }
        None => Ok(()),
    }
}

/// The first few classes.
fn listed(labels: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = labels.iter().take(SHOWN).map(|label| format!("`{label}`")).collect();
    let more =
        if labels.len() > SHOWN { format!(" and {} more", labels.len() - SHOWN) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// Starts to classify by the classes of the model.
pub(super) fn submit(
    engine: &Engine,
    mut request: ClassifyRequest,
    classifier: Arc<Classifier>,
    cancel: &Cancel,
) -> Result<ClassifyTicket, EngineError> {
    check(&request, &classifier)?;
    let mut texts = std::mem::take(&mut request.texts);
    let read = |index: usize, text: &str| encoded_text(engine, &request, index, text);
    let (texts, failed) = encoded::all(engine, &mut texts, &request.options, None, read)?;
    let indices: Vec<usize> = texts.iter().map(|text| text.index).collect();
    let (threshold, options) = (request.threshold.unwrap_or(0.0), request.options);
    let classes = classifier.labels.iter().cloned().map(Label::Text).collect();
    Ticket::begin(cancel, |reply, cancels| {
        let answer = move |outcome: Result<EncodeOutcome, EngineError>| {
            let outcome = outcome.map(|EncodeOutcome { texts, cost, receipt, form: _ }| {
                let sound = indices.into_iter().zip(texts);
                let sound = sound.map(|(index, text)| (index, Ok(classified(text, threshold))));
                let failed = failed.into_iter().map(|error| (error.index, Err(error)));
                let mut results: Vec<_> = sound.chain(failed).collect();
                results.sort_by_key(|(index, _)| *index);
                let texts = results.into_iter().map(|(_, result)| result).collect();
                let (class_token_ids, end_token_ids) = (Vec::new(), Vec::new());
                let prefix_class = None;
                ClassifyOutcome {
                    classes,
                    texts,
                    class_token_ids,
                    end_token_ids,
                    prefix_class,
                    cost,
                    receipt,
                }
            });
            reply.finish(outcome);
        };
        engine.run_classifier(texts, classifier, NOUN, cancels, options, Box::new(answer))
    })
}

/// A text, or a pair of texts, as the model was trained to read it.
fn encoded_text(
    engine: &Engine,
    request: &ClassifyRequest,
    index: usize,
    text: &str,
) -> Result<EncodeText, EngineError> {
    let truncate = request.options.truncate;
    match request.second_texts.get(index).and_then(Option::as_ref) {
        Some(second) => FirstText::new(engine, text)?.pair((NOUN, index), second, truncate),
        None => engine.encode_text((NOUN, index), text, truncate),
    }
}

/// A softmax over the classes, in f64.
fn classified(text: Encoded, threshold: f32) -> Classified {
    let logits = || text.values.iter().map(|logit| f64::from(*logit));
    let largest = logits().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits().map(|logit| libm::exp(logit - largest)).sum();
    let logs = || logits().map(|logit| logit - largest - libm::log(sum));
    let probabilities: Vec<f32> = logs().map(|log| libm::exp(log) as f32).collect();
    let (best, margin) = chosen(&probabilities, threshold);
    Classified {
        best,
        margin,
        logprobs: logs().map(|log| log as f32).collect(),
        probabilities,
        prompt_tokens: text.prompt_tokens,
        truncated: text.truncated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_a_softmax() {
        let text = |values: &[f32]| Encoded {
            values: values.to_vec(),
            indices: Vec::new(),
            vectors: 1,
            prompt_tokens: 3,
            truncated: true,
        };
        let found = classified(text(&[0.0, f32::ln(3.0)]), 0.5);
        assert_eq!((found.best, found.prompt_tokens, found.truncated), (Some(1), 3, true));
        assert!(
            (found.probabilities[0] - 0.25).abs() < 1e-7 && (found.margin - 0.5).abs() < 1e-6,
            "{found:?}"
        );
        assert!((found.logprobs[0] - 0.25f32.ln()).abs() < 1e-6, "{found:?}");
        // No overflow.
        assert_eq!(classified(text(&[1000.0, 0.0]), 0.0).probabilities, [1.0, 0.0]);
    }

    #[test]
    fn many_classes_are_not_all_listed() {
        let labels: Vec<String> = (0..10).map(|i| format!("c{i}")).collect();
        assert_eq!(listed(&labels[..2]), "`c0`, `c1`");
        assert!(listed(&labels).ends_with("`c7` and 2 more"));
    }
}
