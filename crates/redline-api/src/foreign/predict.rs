//! `/predict`: the classes of texts, in the form of Text Embeddings Inference.

use redline_engine::{Classified, ClassifyOutcome, ClassifyRequest, Label};
use redline_wire::{Finite, PredictBody, PredictInputs, PredictedClass, Predictions};

use super::fields::refused;
use super::rerank::end_of;
use crate::ApiError;

/// The form of the answer.
#[derive(Clone, Copy, Debug)]
pub struct PredictForm {
    is_batch: bool,
    raw: bool,
}

/// The number of texts of a request.
pub fn batch_size(body: &PredictBody) -> usize {
    match &body.inputs {
        PredictInputs::Single(_) => 1,
        PredictInputs::Batch(batch) => batch.len(),
    }
}

/// Builds the engine's request.
pub fn request(body: PredictBody, classes: &[String]) -> Result<(ClassifyRequest, PredictForm), ApiError> {
    let (is_batch, inputs) = match body.inputs {
        PredictInputs::Single(parts) => (false, vec![parts]),
        PredictInputs::Batch(batch) => (true, batch),
    };
    let parts = inputs.into_iter().map(|parts| {
        let mut parts = parts.into_iter();
        (parts.next().unwrap_or_default(), parts.next())
    });
    let (texts, second_texts): (Vec<String>, Vec<Option<String>>) = parts.unzip();
    if texts.is_empty() {
        return Err(refused("inputs", "`inputs` has 0 texts", "give at least one"));
    }
    let classes = classes.iter().cloned().map(Label::Text).collect();
    let mut request = ClassifyRequest { second_texts, ..ClassifyRequest::new(texts, classes) };
    if body.truncate == Some(true) {
        request.options.truncate = Some(end_of(body.truncation_direction));
    }
    Ok((request, PredictForm { is_batch, raw: body.raw_scores.unwrap_or(false) }))
}

/// Builds the answer.
pub fn answer(form: PredictForm, outcome: ClassifyOutcome) -> Predictions {
    let classes: Vec<String> = outcome.classes.iter().map(crate::judge::name).collect();
    let predicted = |Classified { probabilities, logprobs, .. }: Classified| {
        let scores = if form.raw { logprobs } else { probabilities };
        let class =
            |(label, score): (&String, f32)| PredictedClass { score: Finite(score), label: label.clone() };
        let mut classes: Vec<PredictedClass> = classes.iter().zip(scores).map(class).collect();
        // The sort is stable: equals stay in the order of the classes.
        classes.sort_by(|a, b| b.score.0.total_cmp(&a.score.0));
        classes
    };
    let mut all: Vec<_> = outcome.texts.into_iter().flatten().map(predicted).collect();
    if form.is_batch { Predictions::Batch(all) } else { Predictions::Single(all.pop().unwrap_or_default()) }
}
