//! `/predict`: the classes of texts, in the form of Text Embeddings Inference.

use std::fmt;

use redline_engine::{Classified, ClassifyOutcome, ClassifyRequest, Label};
use schemars::JsonSchema;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::ApiError;
use crate::json::fields::refused;
use crate::json::finite::Finite;
use crate::json::limits::MAX_TEXTS;
use crate::json::shape::{list_of, schemas, text};
use crate::tei::truncation::{TruncationDirection, end_of};

/// Asks for the class of texts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PredictBody {
    /// The texts.
    pub inputs: PredictInputs,
    /// Whether texts that are too long are cut.
    pub truncate: Option<bool>,
    /// The end at which they are cut; the right one if absent.
    pub truncation_direction: Option<TruncationDirection>,
    /// Whether scores are log-probabilities.
    pub raw_scores: Option<bool>,
}

/// The texts of a request: one, or a batch. The two texts of a pair are parts of one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PredictInputs {
    /// One text, as its parts.
    Single(Vec<String>),
    /// A batch.
    Batch(Vec<Vec<String>>),
}

impl<'de> Deserialize<'de> for PredictInputs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = PredictInputs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a pair of strings, or a list of lists of one or two strings")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<PredictInputs, E> {
                Ok(PredictInputs::Single(vec![text.to_owned()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<PredictInputs, A::Error> {
                let (mut single, mut batch) = (Vec::new(), Vec::new());
                while let Some(part) = seq.next_element::<TextOrParts>()? {
                    match part {
                        TextOrParts::Text(text) => single.push(text),
                        TextOrParts::Parts(parts) => batch.push(parts),
                    }
                    if single.len() > 2 || (!single.is_empty() && !batch.is_empty()) {
                        return Err(A::Error::custom(
                            "the list is neither a pair of strings nor a batch of lists",
                        ));
                    }
                }
                Ok(if single.is_empty() {
                    PredictInputs::Batch(batch)
                } else {
                    PredictInputs::Single(single)
                })
            }
        }
        from.deserialize_any(Forms)
    }
}

/// An element of a list of inputs.
enum TextOrParts {
    Text(String),
    Parts(Vec<String>),
}

impl<'de> Deserialize<'de> for TextOrParts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = TextOrParts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or a list of one or two strings")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<TextOrParts, E> {
                Ok(TextOrParts::Text(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<TextOrParts, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = seq.next_element()? {
                    parts.push(part);
                    if parts.len() > 2 {
                        break;
                    }
                }
                match parts.len() {
                    1 | 2 => Ok(TextOrParts::Parts(parts)),
                    count => Err(A::Error::invalid_length(count, &self)),
                }
            }
        }
        from.deserialize_any(Forms)
    }
}

/// Answer of `/predict`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Predictions {
    /// To one text: its classes, the most probable one first.
    Single(Vec<PredictedClass>),
    /// To a batch.
    Batch(Vec<Vec<PredictedClass>>),
}

/// A class of a text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PredictedClass {
    /// Its probability among the classes, or the logarithm of that.
    pub score: Finite<f32>,
    /// The class.
    pub label: String,
}

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
    let classes: Vec<String> = outcome.classes.iter().map(crate::jsonl::judge::name).collect();
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

schemas! {
    PredictInputs: |_g| {
        let texts = list_of(text(), [1, 2]);
        json!({ "anyOf": [text(), texts, list_of(texts.clone(), [1, MAX_TEXTS])] })
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_take_every_documented_form() {
        let list = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
        let check = |json: &str, expect: PredictInputs| {
            assert_eq!(serde_json::from_str::<PredictInputs>(json).unwrap(), expect, "{json}");
        };
        check(r#""a""#, PredictInputs::Single(list(&["a"])));
        check(r#"["a"]"#, PredictInputs::Single(list(&["a"])));
        check(r#"["a","b"]"#, PredictInputs::Single(list(&["a", "b"])));
        check(r#"[["a"],["a","b"]]"#, PredictInputs::Batch(vec![list(&["a"]), list(&["a", "b"])]));
        check("[]", PredictInputs::Batch(Vec::new()));
        for json in
            [r#"["a","b","c"]"#, r#"["a",["b"]]"#, r#"[["a"],"b"]"#, "[[]]", r#"[["a","b","c"]]"#, "7"]
        {
            assert!(serde_json::from_str::<PredictInputs>(json).is_err(), "{json}");
        }
    }
}
