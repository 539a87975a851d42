//! `/v1/classify`: the class of each text.

use redline_engine::{Classified, ClassifyOutcome, ClassifyRequest, Label};
use redline_wire::limits::{MAX_CLASSES, MAX_TEXTS};
use redline_wire::{ClassifiedText, ClassifyAnswer, ClassifyBody, Finite};

use super::AnswerHead;
use super::fields::{count, salt, timeout, within};
use crate::{ApiError, cost, receipt};

/// Builds the engine's request.
pub fn request(body: ClassifyBody) -> Result<ClassifyRequest, ApiError> {
    count("input", body.input.0.len(), 1..=MAX_TEXTS)?;
    count("classes", body.classes.len(), 2..=MAX_CLASSES)?;
    let classes = body.classes.into_iter().map(Label::Text).collect();
    let mut request = ClassifyRequest::new(body.input.0, classes);
    request.threshold = within("threshold", body.threshold, 0.0..=1.0)?;
    request.options.template = body.template;
    request.options.calibrate = body.calibrate;
    request.options.cache_salt = salt(body.cache_salt)?;
    request.options.timeout_s = timeout(body.timeout_s)?;
    request.options.receipt = receipt::options(body.receipt);
    Ok(request)
}

/// Builds the answer.
pub fn answer(head: AnswerHead, outcome: ClassifyOutcome) -> ClassifyAnswer {
    let classes: Vec<String> = outcome.classes.iter().map(crate::judge::name).collect();
    let text = |(index, Classified { probabilities, best, .. })| ClassifiedText {
        index,
        label: best.and_then(|best: usize| classes.get(best).cloned()),
        num_classes: probabilities.len(),
        probs: probabilities.into_iter().map(Finite).collect(),
    };
    ClassifyAnswer {
        id: head.id,
        object: "list",
        created: head.created,
        model: head.model,
        data: outcome.texts.into_iter().flatten().enumerate().map(text).collect(),
        classes: classes.clone(),
        usage: cost::usage(outcome.cost.usage),
        receipt: receipt::attached(outcome.receipt),
    }
}
