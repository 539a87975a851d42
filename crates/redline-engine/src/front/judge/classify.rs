//! Classification: the probability that the model would write each class after a text.

use std::collections::HashMap;

use super::choice::chosen;
use super::template::{Frame, Shared};
use super::{Judged, Judgement, check_threshold, label_after, own_classes, some_label};
use crate::answer::outcome::{Classified, ClassifyOutcome, ItemScore};
use crate::answer::ticket::ClassifyTicket;
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::front::Engine;
use crate::request::{ClassifyRequest, Label};

/// Placeholder of the text to classify.
const TEXT: &str = "{text}";
/// Placeholder of the classes.
const CLASSES: &str = "{classes}";

impl ClassifyRequest {
    /// Refuses requests that are invalid for every model. [`Engine::classify`] checks this too.
    pub fn check(&self) -> Result<(), EngineError> {
        self.frame().map(drop)
    }

    /// The classes, adapted to the template.
    fn labels(&self) -> Vec<Label> {
        let template = self.options.template.as_deref();
        self.classes.iter().map(|class| label_after(template, class)).collect()
    }

    fn frame(&self) -> Result<Frame, EngineError> {
        let (count, seconds) = (self.classes.len(), self.second_texts.len());
        if seconds != 0 && seconds != self.texts.len() {
            let fact = format!("{seconds} second texts for {} texts", self.texts.len());
            return Err(EngineError::request(fact, "give one for each text, or none"));
        }
        // A model may have classes of its own.
        if count == 1 {
            let fact = "1 class leaves nothing to choose";
            return Err(EngineError::field("classes", fact, "give at least two classes"));
        }
        for (index, class) in self.classes.iter().enumerate() {
            some_label(&format!("class {index}"), class).map_err(|error| error.of_field("classes"))?;
        }
        check_distinct(&self.labels())?;
        check_threshold(self.threshold)?;
        let template = self.options.template.as_deref().unwrap_or(Self::TEMPLATE);
        let names = if template.contains(CLASSES) { names(&self.classes)? } else { String::new() };
        Frame::new(template, TEXT, &[Shared { name: CLASSES, required: false, text: &names }])
    }

    fn judgement(self) -> Result<Judgement, EngineError> {
        if self.classes.is_empty() {
            let hint = "give at least two, or take a model that was trained to classify";
            return Err(EngineError::field("classes", "0 classes leave nothing to choose", hint));
        }
        let (frame, labels) = (self.frame()?, self.labels());
        let mut texts = self.texts;
        for (text, second) in texts.iter_mut().zip(self.second_texts) {
            text.extend(second.iter().flat_map(|second| ["\n", second]));
        }
        Ok(Judgement { nouns: ("text", "class"), frame, texts, labels, options: self.options })
    }
}

/// Refuses a class that is given twice. Classes that differ, but not in their tokens, are refused when the tokens are known.
fn check_distinct(classes: &[Label]) -> Result<(), EngineError> {
    let mut first = HashMap::new();
    for (index, class) in classes.iter().enumerate() {
        if let Some(other) = first.insert(class, index) {
            let both = match class {
                Label::Text(text) => format!("{text:?}"),
                Label::Ids(ids) => format!("{ids:?}"),
            };
            let fact = format!("class {other} and class {index} are the same tokens: both are {both}");
            return Err(EngineError::field("classes", fact, "give every class once"));
        }
    }
    Ok(())
}

/// The list of classes for the template.
fn names(classes: &[Label]) -> Result<String, EngineError> {
    let name = |(index, class): (usize, &Label)| match class {
        Label::Text(text) => Ok(text.trim().to_owned()),
        Label::Ids(_) => Err(EngineError::field(
            "classes",
            format!("the template lists the classes, and class {index} is token ids"),
            format!("give the class as text, or a template without `{CLASSES}`"),
        )),
    };
    Ok(classes.iter().enumerate().map(name).collect::<Result<Vec<_>, _>>()?.join(", "))
}

/// The outcome. A text has a best class only if the probability of that class reaches the threshold.
fn outcome(judged: Judged, classes: Vec<Label>, threshold: Option<f32>) -> ClassifyOutcome {
    let classified = |(item, cut): (ItemScore, bool)| classified(item, cut, threshold.unwrap_or(0.0));
    ClassifyOutcome {
        classes,
        texts: judged.texts.into_iter().map(|text| text.map(classified)).collect(),
        class_token_ids: judged.label_token_ids,
        end_token_ids: judged.end_token_ids,
        prefix_class: judged.prefix,
        cost: judged.cost,
        receipt: judged.receipt,
    }
}

fn classified(item: ItemScore, truncated: bool, threshold: f32) -> Classified {
    let (best, margin) = chosen(&item.scores, threshold);
    Classified {
        probabilities: item.scores,
        logprobs: item.logprobs,
        best,
        margin,
        prompt_tokens: item.prompt_tokens,
        truncated,
    }
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
        if let Some(classifier) = self.classifier.clone() {
            return own_classes::submit(self, request, classifier, cancel);
        }
        let (threshold, classes) = (request.threshold, request.classes.clone());
        request.judgement()?.submit(self, cancel, move |judged| outcome(judged, classes, threshold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_given_twice_is_refused_for_every_model() {
        let refused = |classes: &[&str], template: Option<&str>| {
            let classes = classes.iter().map(|class| Label::Text((*class).to_owned())).collect();
            let mut request = ClassifyRequest::new(Vec::new(), classes);
            request.options.template = template.map(str::to_owned);
            request.check().map_err(|error| error.to_string())
        };
        let twice = refused(&["a", "b", "a"], None).unwrap_err();
        assert_eq!(twice, "class 0 and class 2 are the same tokens: both are \" a\"");
        // Only the default template puts a space in front.
        assert!(refused(&["a", " a"], None).is_err());
        assert_eq!(refused(&["a", " a"], Some("{text}")), Ok(()));
    }
}
