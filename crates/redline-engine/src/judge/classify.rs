//! Classification: the probability that the model would write each class after a text.

use super::template::{Frame, Shared};
use super::{Judgement, label_after, scored, some_label};
use crate::cancel::Cancel;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::outcome::{ItemError, ItemScore, ScoreOutcome, Taken};
use crate::request::{Label, LongLabels, Truncate};
use crate::ticket::ClassifyTicket;

/// Placeholder of the text to classify.
const TEXT: &str = "{text}";
/// Placeholder of the classes.
const CLASSES: &str = "{classes}";

/// `classify`: the probability of each class for each text, and the best class.
#[derive(Clone, Debug)]
pub struct ClassifyRequest {
    /// One result per text, in this order. May be empty.
    pub texts: Vec<String>,
    /// The classes, at least two, in the order of the probabilities. With the default template, a text class gets a leading
    /// space unless it has one; with another template it is used unchanged. Duplicates keep their places and share the
    /// probability.
    pub classes: Vec<Label>,
    /// Text with `{text}` once and `{classes}` at most once (replaced by the classes, separated by commas). It ends where the
    /// class is to be written. `None`: [`ClassifyRequest::TEMPLATE`]. A model that was trained to classify needs the template
    /// of its training.
    pub template: Option<String>,
    /// How a class of several tokens is scored.
    pub long_labels: LongLabels,
    /// Which end of a text is cut if its prompt exceeds the context (the template stays whole); `None`: an error.
    pub truncate: Option<Truncate>,
    /// Report a text's error in its place instead of failing the whole request.
    pub item_errors: bool,
    /// Only requests with the same salt share keys and values in the prefix cache. The empty string is a salt too.
    pub cache_salt: String,
    /// Time limit in seconds; `None`: no limit.
    pub timeout_s: Option<f64>,
}

/// The answer to one text.
#[derive(Clone, Debug)]
pub struct Classified {
    /// The probability of each class, in the order of the classes; they sum to one.
    pub probabilities: Vec<f32>,
    /// The index of the most probable class, the first among equals.
    pub best: usize,
    /// The probability of the best class minus that of the second.
    pub margin: f32,
    /// Number of tokens in its prompt.
    pub prompt_tokens: usize,
    /// Whether the text was cut to fit the context.
    pub truncated: bool,
}

/// Answer to `classify`.
#[derive(Clone, Debug)]
pub struct ClassifyOutcome {
    /// In the order of the texts.
    pub texts: Vec<Result<Classified, ItemError>>,
    /// The tokens of each class, in the order of the classes.
    pub class_token_ids: Vec<Vec<u32>>,
    /// Resources used.
    pub taken: Taken,
}

impl ClassifyRequest {
    /// The default template, for instruction-tuned models.
    pub const TEMPLATE: &str = "Classify the text as one of: {classes}\n\nText: {text}\n\nClass:";

    /// Creates a request with these values. Other fields take their defaults: the default template, classes of several tokens
    /// scored by the probability of all of them, and an error in any text fails the request.
    pub fn new(texts: Vec<String>, classes: Vec<Label>) -> Self {
        Self {
            texts,
            classes,
            template: None,
            long_labels: LongLabels::Sum,
            truncate: None,
            item_errors: false,
            cache_salt: String::new(),
            timeout_s: None,
        }
    }

    /// Refuses requests that are invalid for every model. [`Engine::classify`] checks this too.
    pub fn check(&self) -> Result<(), EngineError> {
        self.frame().map(drop)
    }

    fn frame(&self) -> Result<Frame, EngineError> {
        let count = self.classes.len();
        if count < 2 {
            let fact =
                format!("{count} class{} nothing to choose", if count == 1 { " leaves" } else { "es leave" });
            return Err(EngineError::request(fact, "give at least two classes"));
        }
        for (index, class) in self.classes.iter().enumerate() {
            some_label(&format!("class {index}"), class)?;
        }
        let template = self.template.as_deref().unwrap_or(Self::TEMPLATE);
        let names = if template.contains(CLASSES) { names(&self.classes)? } else { String::new() };
        Frame::new(template, TEXT, &[Shared { name: CLASSES, required: false, text: &names }])
    }

    fn judgement(self) -> Result<Judgement, EngineError> {
        let frame = self.frame()?;
        let template = self.template.as_deref();
        Ok(Judgement {
            noun: "text",
            frame,
            texts: self.texts,
            labels: self.classes.iter().map(|class| label_after(template, class)).collect(),
            long_labels: self.long_labels,
            truncate: self.truncate,
            item_errors: self.item_errors,
            cache_salt: self.cache_salt,
            timeout_s: self.timeout_s,
        })
    }
}

/// The list of classes for the template.
fn names(classes: &[Label]) -> Result<String, EngineError> {
    let name = |(index, class): (usize, &Label)| match class {
        Label::Text(text) => Ok(text.trim().to_owned()),
        Label::Ids(_) => Err(EngineError::request(
            format!("the template lists the classes, and class {index} is token ids"),
            format!("give the class as text, or a template without `{CLASSES}`"),
        )),
    };
    Ok(classes.iter().enumerate().map(name).collect::<Result<Vec<_>, _>>()?.join(", "))
}

/// The outcome, from the scores and from whether each text was cut.
fn outcome(scores: ScoreOutcome, cut: Vec<bool>) -> ClassifyOutcome {
    let classified = |(item, cut): (ItemScore, bool)| classified(item, cut);
    let texts = scored(scores.items, cut).map(|text| text.map(classified)).collect();
    ClassifyOutcome { texts, class_token_ids: scores.label_token_ids, taken: scores.taken }
}

fn classified(item: ItemScore, truncated: bool) -> Classified {
    let (best, margin) = best(&item.scores);
    Classified { probabilities: item.scores, best, margin, prompt_tokens: item.prompt_tokens, truncated }
}

/// The index of the largest probability, the first among equals, and its margin over the second.
fn best(probabilities: &[f32]) -> (usize, f32) {
    let largest = |except: Option<usize>| {
        let others = probabilities.iter().copied().enumerate().filter(|(place, _)| Some(*place) != except);
        others.reduce(|best, other| if other.1 > best.1 { other } else { best })
    };
    let Some((place, first)) = largest(None) else { return (0, 0.0) };
    let second = largest(Some(place)).map_or(0.0, |(_, second)| second);
    (place, first - second)
}

impl Engine {
    /// Computes the probability of each class for each text.
    pub fn classify(&self, request: ClassifyRequest) -> Result<ClassifyOutcome, EngineError> {
        self.submit_classify(request, &Cancel::new())?.wait()
    }

    /// Starts to classify. Other requests may be submitted before this one is finished.
    pub fn submit_classify(
        &self,
        request: ClassifyRequest,
        cancel: &Cancel,
    ) -> Result<ClassifyTicket, EngineError> {
        request.judgement()?.submit(self, cancel, outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equals_is_the_best() {
        assert_eq!(best(&[0.25, 0.5, 0.25]), (1, 0.25));
        assert_eq!(best(&[0.125, 0.4375, 0.4375]), (1, 0.0));
        assert_eq!(best(&[0.5, 0.125, 0.375]), (0, 0.125));
        assert_eq!(best(&[0.25, 0.75]), (1, 0.5));
    }
}
