//! Judgements based on `score`: the class of a text, or the relevance of documents to a query.
//!
//! Each text is inserted into a template, and a softmax over the labels as next tokens decides. So a judgement has the same
//! bits as a score request with whole prompts, and their shared prefix is computed once. Templates belong to models: a model
//! trained for such judgements was trained with one template, and with another its numbers are meaningless.

mod classify;
mod cut;
mod rerank;
mod template;

use crate::answer::outcome::{ItemError, ItemScore, ScoreOutcome};
use crate::answer::ticket::Ticket;
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::front::Engine;
use crate::request::{Label, LongLabels, Prompt, ScoreRequest, Truncate};

use template::Frame;

/// A judgement of texts, each inserted into the frame, by a softmax over the labels.
struct Judgement {
    /// The name of an item in messages.
    noun: &'static str,
    frame: Frame,
    texts: Vec<String>,
    labels: Vec<Label>,
    long_labels: LongLabels,
    truncate: Option<Truncate>,
    item_errors: bool,
    cache_salt: String,
    timeout_s: Option<f64>,
}

impl Judgement {
    /// Cuts texts that are too long, if allowed, and starts to score. `judge` makes the outcome from the scores and from
    /// whether each text was cut.
    fn submit<O: Send + 'static>(
        self,
        engine: &Engine,
        cancel: &Cancel,
        judge: impl FnOnce(ScoreOutcome, Vec<bool>) -> O + Send + 'static,
    ) -> Result<Ticket<O>, EngineError> {
        let noun = self.noun;
        let mut texts = self.texts;
        let cut = match self.truncate {
            Some(end) if !texts.is_empty() => {
                let limits = engine.score_limits();
                let labels = limits.labels(&self.labels, self.long_labels)?;
                let context = limits.context.saturating_sub(engine.label_tail(&labels));
                cut::all(&limits, context, &self.frame, &mut texts, end, noun)?
            }
            _ => vec![false; texts.len()],
        };
        let items = texts.iter().map(|text| Prompt::Text(self.frame.after_head(text))).collect();
        let request = ScoreRequest {
            long_labels: self.long_labels,
            softmax: true,
            item_errors: self.item_errors,
            cache_salt: self.cache_salt,
            timeout_s: self.timeout_s,
            ..ScoreRequest::new(Prompt::Text(self.frame.head), items, self.labels)
        };
        Ticket::begin(cancel, |reply, cancels| {
            let answer = move |outcome: Result<ScoreOutcome, EngineError>| {
                let judged = outcome.map(|outcome| judge(renamed_items(noun, outcome), cut));
                reply.finish(judged.map_err(|error| called(noun, error)));
            };
            engine.run_score(request, cancels, Box::new(answer)).map_err(|error| called(noun, error))
        })
    }
}

/// The scores of items, each with whether its text was cut.
fn scored(
    items: Vec<Result<ItemScore, ItemError>>,
    cut: Vec<bool>,
) -> impl Iterator<Item = Result<(ItemScore, bool), ItemError>> {
    items.into_iter().zip(cut).map(|(item, cut)| item.map(|item| (item, cut)))
}

/// Renames the item in an error to the caller's term.
fn called(noun: &str, error: EngineError) -> EngineError {
    match error {
        EngineError::Request { fact, hint } => EngineError::Request { fact: renamed(noun, &fact), hint },
        EngineError::NonFinite(place) => EngineError::NonFinite(renamed(noun, &place)),
        other => other,
    }
}

/// Renames the items in error messages to the caller's term.
fn renamed_items(noun: &str, mut outcome: ScoreOutcome) -> ScoreOutcome {
    for error in outcome.items.iter_mut().filter_map(|item| item.as_mut().err()) {
        error.message = renamed(noun, &error.message);
    }
    outcome
}

/// Renames the item that a message begins with.
fn renamed(noun: &str, message: &str) -> String {
    match message.strip_prefix("item ") {
        Some(rest) => format!("{noun} {rest}"),
        None => message.to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_item_as_the_caller_does() {
        let named = |error| called("document", error).to_string();
        assert!(named(EngineError::NonFinite("item 3".into())).contains("document 3"));
        assert!(named(EngineError::request("item 3 is empty", "")).starts_with("document 3 is empty"));
        assert!(named(EngineError::request("the query is empty", "")).starts_with("the query is empty"));
    }
}
