//! Judgements based on `score`: the class of a text, or the relevance of documents to a query.
//!
//! Each text is inserted into a template, and a softmax over the labels as next tokens decides. So a judgement has the same
//! bits as a score request with whole prompts, and their shared prefix is computed once. Templates belong to models: a model
//! trained for such judgements was trained with one template, and with another its numbers are meaningless.

mod choice;
mod classify;
mod cross_encoder;
mod cut;
mod encoded;
mod labels;
mod late_interaction;
mod order;
mod own_classes;
pub(super) mod preset;
mod rerank;
mod template;

use redline_settings::{Setting, hint};

use self::cut::Prompts;
use self::labels::Ended;
use self::template::Frame;
use crate::answer::outcome::{ItemError, ItemScore, RequestCost, ScoreOutcome};
use crate::answer::ticket::Ticket;
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::front::Engine;
use crate::receipt::Receipt;
use crate::request::{JudgeOptions, Label, Prompt, ScoreRequest};

/// A judgement of texts, each inserted into the frame, by a softmax over the labels.
struct Judgement {
    /// The names of an item and of a label in messages.
    nouns: (&'static str, &'static str),
    frame: Frame,
    texts: Vec<String>,
    labels: Vec<Label>,
    options: JudgeOptions,
}

/// What a judgement gives.
struct Judged {
    /// The score of each text with whether the text was cut, or its error. Scores are calibrated.
    texts: Vec<Result<(ItemScore, bool), ItemError>>,
    label_token_ids: Vec<Vec<u32>>,
    end_token_ids: Vec<u32>,
    /// A label and another that begins with it, if the end is not scored.
    prefix: Option<(usize, usize)>,
    cost: RequestCost,
    receipt: Option<Box<Receipt>>,
}

impl Judgement {
    /// Cuts texts that are too long, if allowed, and starts to score. `outcome` makes the outcome.
    fn submit<O: Send + 'static>(
        self,
        engine: &Engine,
        cancel: &Cancel,
        outcome: impl FnOnce(Judged) -> O + Send + 'static,
    ) -> Result<Ticket<O>, EngineError> {
        let Self { nouns: (noun, label_noun), frame, mut texts, labels, options } = self;
        let limits = engine.score_limits();
        // The labels of other judgements are no field of their requests.
        let of_labels = |error: EngineError| match label_noun {
            "class" => error.of_field("classes"),
            _ => error,
        };
        let mut tokens = limits.labels(&labels, options.long_labels).map_err(of_labels)?;
        let model_end = engine.end_ids.first().map(|&id| Label::Ids(vec![i64::from(id)]));
        let Ended { end, prefix } =
            labels::ended(&tokens, options.label_end, options.end.or(model_end), label_noun)
                .map_err(of_labels)?;
        if let Some(end) = &end {
            let end = limits.label_end(end)?;
            for label in &mut tokens {
                label.extend(&end);
            }
        }
        let mut cut = match options.max_text_tokens {
            Some(most) => cut::to_tokens(limits.tokenizer()?, &mut texts, most)?,
            None => vec![false; texts.len()],
        };
        if let Some(end) = options.truncate.filter(|_| !texts.is_empty()) {
            let context = limits.context.saturating_sub(engine.label_tail(&tokens));
            let add_special_tokens = options.add_special_tokens;
            let prompts = Prompts { limits, frame: &frame, add_special_tokens, context, noun };
            for (cut, also) in cut.iter_mut().zip(cut::all(&prompts, &mut texts, end)?) {
                *cut |= also;
            }
        }
        let calibrates = options.calibrate.is_some() && !texts.is_empty();
        texts.extend(options.calibrate.filter(|_| calibrates));
        let items = texts.iter().map(|text| Prompt::Text(frame.after_head(text))).collect();
        let nouns = Nouns { item: noun, count: cut.len() };
        let head =
            if options.add_special_tokens { Prompt::Text(frame.head) } else { Prompt::Formatted(frame.head) };
        let request = ScoreRequest {
            long_labels: options.long_labels,
            label_end: end,
            softmax: true,
            item_errors: options.item_errors,
            cache_salt: options.cache_salt,
            adapters: options.adapters,
            timeout_s: options.timeout_s,
            queueing: options.queueing,
            receipt: options.receipt,
            ..ScoreRequest::new(head, items, labels)
        };
        Ticket::begin(cancel, |reply, cancels| {
            let answer = move |scores: Result<ScoreOutcome, EngineError>| {
                let judged = scores.and_then(|scores| judged(scores, cut, prefix, calibrates));
                let judged = judged.map(|judged| outcome(renamed_items(nouns, judged)));
                reply.finish(judged.map_err(|error| called(nouns, error)));
            };
            engine.run_score(request, cancels, Box::new(answer)).map_err(|error| called(nouns, error))
        })
    }
}

/// Assembles what a judgement gives. If it is calibrated, the last item is the text without content.
fn judged(
    mut scores: ScoreOutcome,
    cut: Vec<bool>,
    prefix: Option<(usize, usize)>,
    calibrates: bool,
) -> Result<Judged, EngineError> {
    let preference = if calibrates { scores.items.pop() } else { None };
    let preference = preference.transpose().map_err(|ItemError { message, .. }| {
        EngineError::request(
            match message.strip_prefix(&format!("item {}: ", cut.len())) {
                Some(fact) => format!("the text without content: {fact}"),
                None => format!("the text without content: {message}"),
            },
            hint!["take another text, or leave ", Setting::Calibrate, " out"],
        )
    })?;
    let calibrated = |mut item: ItemScore| {
        if let Some(preference) = &preference {
            (item.scores, item.logprobs) = calibrated(&item.logprobs, &preference.logprobs);
        }
        item
    };
    let texts = scores.items.into_iter().zip(cut);
    Ok(Judged {
        texts: texts.map(|(item, cut)| item.map(|item| (calibrated(item), cut))).collect(),
        label_token_ids: scores.label_token_ids,
        end_token_ids: scores.end_token_ids,
        prefix,
        cost: scores.cost,
        receipt: scores.receipt,
    })
}

/// Divides the probabilities of labels by those for a text without content, and normalises them. Both are given as logarithms,
/// up to a constant each. Returns the quotients and their logarithms.
fn calibrated(logprobs: &[f32], preference: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let ratio = |(one, other): (&f32, &f32)| f64::from(*one) - f64::from(*other);
    let ratios: Vec<f64> = logprobs.iter().zip(preference).map(ratio).collect();
    let largest = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shares: Vec<f64> = ratios.iter().map(|ratio| libm::exp(ratio - largest)).collect();
    let sum: f64 = shares.iter().sum();
    let logs = ratios.iter().map(|ratio| (ratio - largest - libm::log(sum)) as f32).collect();
    (shares.into_iter().map(|share| (share / sum) as f32).collect(), logs)
}

/// Renames the item in an error to the caller's term.
fn called(nouns: Nouns, error: EngineError) -> EngineError {
    match error {
        EngineError::Request { fact, hint, field } => {
            EngineError::Request { fact: renamed(nouns, &fact), hint, field }
        }
        EngineError::NonFinite(place) => EngineError::NonFinite(renamed(nouns, &place)),
        other => other,
    }
}

/// Renames the items in error messages to the caller's term.
fn renamed_items(nouns: Nouns, mut judged: Judged) -> Judged {
    for error in judged.texts.iter_mut().filter_map(|item| item.as_mut().err()) {
        error.message = renamed(nouns, &error.message);
    }
    judged
}

/// The caller's terms for the items of a score request.
#[derive(Clone, Copy)]
struct Nouns {
    item: &'static str,
    /// Number of items. A further one is the text without content.
    count: usize,
}

/// Renames the item that a message begins with.
fn renamed(nouns: Nouns, message: &str) -> String {
    let Some(rest) = message.strip_prefix("item ") else { return message.to_owned() };
    match rest.strip_prefix(&nouns.count.to_string()) {
        Some(rest) if !rest.starts_with(|c: char| c.is_ascii_digit()) => {
            format!("the text without content{rest}")
        }
        _ => format!("{} {rest}", nouns.item),
    }
}

/// Adapts a label to the template. The default templates end without a space, and most vocabularies have words with a leading
/// space. With a custom template, labels are used unchanged.
fn label_after(template: Option<&str>, label: &Label) -> Label {
    match label {
        Label::Text(text) if template.is_none() && !text.starts_with(char::is_whitespace) => {
            Label::Text(format!(" {text}"))
        }
        other => other.clone(),
    }
}

/// Refuses a label without text or ids. `name` is used in the message.
fn some_label(name: &str, label: &Label) -> Result<(), EngineError> {
    let empty = match label {
        Label::Text(text) => text.is_empty(),
        Label::Ids(ids) => ids.is_empty(),
    };
    if !empty {
        return Ok(());
    }
    Err(EngineError::request(format!("{name} is empty"), "give what the model would write for it"))
}

/// Refuses a threshold that is not a probability.
fn check_threshold(threshold: Option<f32>) -> Result<(), EngineError> {
    match threshold {
        Some(value) if !(0.0..=1.0).contains(&value) => {
            Err(EngineError::request(format!("the threshold is {value}"), "a probability is from 0 to 1"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_item_as_the_caller_does() {
        let nouns = Nouns { item: "document", count: 7 };
        let named = |error| called(nouns, error).to_string();
        assert!(named(EngineError::NonFinite("item 3".into())).contains("document 3"));
        assert!(named(EngineError::request("item 3 is empty", "")).starts_with("document 3 is empty"));
        assert!(
            named(EngineError::request("item 7: long", "")).starts_with("the text without content: long")
        );
        assert!(named(EngineError::request("item 71: long", "")).starts_with("document 71: long"));
        assert!(named(EngineError::request("the query is empty", "")).starts_with("the query is empty"));
    }

    #[test]
    fn calibration_divides_by_the_preference_and_normalises() {
        let logs = |values: [f32; 3]| values.map(f32::ln);
        let (even, logs_of_even) = calibrated(&logs([0.2, 0.3, 0.5]), &logs([0.2, 0.3, 0.5]));
        assert_eq!(even, [1.0 / 3.0; 3]);
        assert!(logs_of_even.iter().all(|log| (log.exp() - 1.0 / 3.0).abs() < 1e-6), "{logs_of_even:?}");
        let [a, b, c] = calibrated(&logs([0.5, 0.25, 0.25]), &logs([0.8, 0.1, 0.1])).0[..] else { panic!() };
        assert!((a - 0.111_111).abs() < 1e-5 && (b - 0.444_444).abs() < 1e-5 && b == c);
        // Probabilities that a single precision cannot hold still compare.
        assert_eq!(calibrated(&[-200.0, -201.0], &[-300.0, -200.0]).0[0], 1.0);
    }

    #[test]
    fn a_threshold_is_a_probability() {
        assert!([None, Some(0.0), Some(1.0)].into_iter().all(|value| check_threshold(value).is_ok()));
        for value in [-0.1, 1.1, f32::NAN] {
            assert!(check_threshold(Some(value)).unwrap_err().to_string().contains("the threshold is"));
        }
    }
}
