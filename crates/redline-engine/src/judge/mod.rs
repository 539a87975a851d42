//! Judgements on top of `score`: which class a text belongs to, how relevant a document is to a query.
//!
//! Each text is put into a template, and what the model would write next decides: a softmax over the labels. So a judgement is
//! a score request of whole prompts, to the bit; what the prompts share is computed once. Templates belong to models: a model
//! that was trained for such judgements was trained with one template, and with another its numbers mean nothing.

mod classify;
mod cut;
mod rerank;
mod template;

use crate::cancel::Cancel;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::outcome::{ItemError, ItemScore, ScoreOutcome};
use crate::request::{Label, LongLabels, Prompt, ScoreRequest, Truncate};
use crate::ticket::Ticket;

pub use classify::{Classified, ClassifyOutcome, ClassifyRequest};
pub use rerank::{Ranked, RerankOutcome, RerankRequest};

use template::Frame;

/// A judgement of texts, each in the frame, by the softmax over the labels.
struct Judgement {
    /// What an item is called in messages.
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
    /// Cuts what is too long, if it may be cut, and begins to score. `judge` makes the outcome from the scores and from whether
    /// each text was cut.
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
                let context = limits.context.saturating_sub(engine.behind(&labels));
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
        let (ticket, reply) = Ticket::new();
        let answer = move |outcome: Result<ScoreOutcome, EngineError>| {
            let judged = outcome.map(|outcome| judge(renamed_items(noun, outcome), cut));
            reply.finish(judged.map_err(|error| called(noun, error)));
        };
        let cancels = vec![cancel.clone(), ticket.canceller()];
        engine.run_score(request, cancels, Box::new(answer)).map_err(|error| called(noun, error))?;
        Ok(ticket)
    }
}

/// The scores of items, each with whether its text was cut.
fn scored(
    items: Vec<Result<ItemScore, ItemError>>,
    cut: Vec<bool>,
) -> impl Iterator<Item = Result<(ItemScore, bool), ItemError>> {
    items.into_iter().zip(cut).map(|(item, cut)| item.map(|item| (item, cut)))
}

/// The error with its item called what the caller calls it.
fn called(noun: &str, error: EngineError) -> EngineError {
    match error {
        EngineError::Request { fact, hint } => EngineError::Request { fact: renamed(noun, &fact), hint },
        other => other,
    }
}

/// The scores, with the items called what the caller calls them in messages.
fn renamed_items(noun: &str, mut outcome: ScoreOutcome) -> ScoreOutcome {
    for error in outcome.items.iter_mut().filter_map(|item| item.as_mut().err()) {
        error.message = renamed(noun, &error.message);
    }
    outcome
}

/// A message that begins with an item, about what that item was.
fn renamed(noun: &str, message: &str) -> String {
    match message.strip_prefix("item ") {
        Some(rest) => format!("{noun} {rest}"),
        None => message.to_owned(),
    }
}

/// A label as the template asks for it. The templates that stand here end without a space, and most vocabularies hold words
/// with the space in front; a template of the caller's own takes its labels as they are.
fn label_behind(template: Option<&str>, label: &Label) -> Label {
    match label {
        Label::Text(text) if template.is_none() && !text.starts_with(char::is_whitespace) => {
            Label::Text(format!(" {text}"))
        }
        other => other.clone(),
    }
}

/// Refuses a label without text or ids. `name` is how the message calls it.
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
