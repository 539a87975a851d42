//! `/v1/systemone`: questions about a state, in TypeSafe's form.

use std::collections::HashSet;

use redline_engine::{EngineError, ScoreOutcome, ScoreRequest};
use redline_wire::limits::{MAX_LEVELS, MAX_OPTIONS, MAX_QUESTIONS};
use redline_wire::{
    Criteria, Entries, Finite, JsonText, SystemOneAnswer, SystemOneAnswers, SystemOneBody, SystemOneKind,
    SystemOneQuestion, SystemOneUsage,
};

use super::AnswerHead;
use super::decision::{self, Choice, Counts, Kind, Question, Read, Readings, State, counted, filled};
use super::fields::{refused, salt, timeout};
use crate::{ApiError, Chat, LoadedModel};

/// What the answer repeats of the questions.
#[derive(Clone, Debug)]
pub struct SystemOneForm {
    questions: Vec<(String, Values)>,
    readings: Readings,
}

#[derive(Clone, Debug)]
enum Values {
    Noul,
    Choice(Vec<String>),
    Score(Vec<JsonText>),
}

/// Whether there are more questions than one request may have.
pub fn too_many(body: &SystemOneBody) -> bool {
    body.questions.0.len() > MAX_QUESTIONS
}

/// Builds the engine's request.
pub fn request(
    model: &LoadedModel,
    chat: Option<&Chat>,
    body: SystemOneBody,
) -> Result<(ScoreRequest, SystemOneForm), ApiError> {
    for (key, value) in [("assets", body.assets), ("images", body.images), ("videos", body.videos)] {
        if value.is_some_and(|value| !value.is_empty_list()) {
            return Err(refused(key, format!("`{key}` is given"), "the model reads text: leave it out"));
        }
    }
    let cache_salt = salt(body.cache_salt)?;
    let timeout_s = timeout(body.timeout_s)?;
    let state = State {
        instructions: body.instructions.map(|text| content("instructions", &text)).transpose()?,
        text: content("state", &body.state)?,
        arguments: body.chat_template_kwargs.unwrap_or_default(),
    };
    counted("questions", "questions", body.questions.0.len(), [1, MAX_QUESTIONS])?;
    let (mut questions, mut named, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for (name, question) in body.questions.0 {
        let place = format!("questions.{name}");
        if name.is_empty() {
            return Err(refused("questions", "a question has an empty name", "give it a name"));
        }
        if !seen.insert(name.clone()) {
            return Err(refused(&place, format!("`{place}` is given twice"), "give every name once"));
        }
        let (question, values) = asked(place, question)?;
        questions.push(question);
        named.push((name, values));
    }
    let (mut request, readings) = decision::request(model, chat, state, questions)?;
    request.cache_salt = cache_salt;
    request.timeout_s = timeout_s;
    Ok((request, SystemOneForm { questions: named, readings }))
}

/// A text, or an object or an array as JSON.
fn content(param: &str, value: &JsonText) -> Result<String, ApiError> {
    value.content().ok_or_else(|| {
        refused(param, format!("`{param}` is of another kind"), "give a text, an object or an array")
    })
}

/// As [`content`], of something.
fn some_content(param: &str, value: &JsonText) -> Result<String, ApiError> {
    let text = content(param, value)?;
    let is_text = value.as_str().starts_with('"');
    if text.is_empty() || (!is_text && matches!(text.as_str(), "{}" | "[]")) {
        return Err(refused(param, format!("`{param}` is empty"), "say what is asked or meant"));
    }
    Ok(text)
}

fn asked(place: String, body: SystemOneQuestion) -> Result<(Question, Values), ApiError> {
    let param = format!("{place}.criteria");
    let instructions = body.instructions.as_ref();
    let text = instructions.map(|text| some_content(&format!("{place}.instructions"), text)).transpose()?;
    let (kind, options, values) = match body.kind {
        SystemOneKind::Box => {
            let param = format!("{place}.type");
            return Err(refused(
                &param,
                "a question of type `box` is about an image",
                "the model reads text",
            ));
        }
        SystemOneKind::Noul => {
            let options = outcomes(&param, body.criteria)?;
            if text.is_none() && options.iter().all(|option| option.description.is_none()) {
                let param = format!("{place}.instructions");
                let fact = format!("`{place}` has neither `instructions` nor `criteria`");
                return Err(refused(&param, fact, "say what is asked"));
            }
            (Kind::YesNo, options, Values::Noul)
        }
        SystemOneKind::Choice => {
            let entries = match body.criteria {
                Some(Criteria::Named(entries)) => entries.0,
                _ => return Err(wrong_criteria(&param, "an object: the options and what they mean")),
            };
            counted(&param, "options", entries.len(), [1, MAX_OPTIONS])?;
            let (mut options, mut names, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
            for (name, description) in entries {
                let param = format!("{param}.{name}");
                if !seen.insert(name.clone()) {
                    return Err(refused(
                        &param,
                        format!("`{param}` is given twice"),
                        "give every option once",
                    ));
                }
                let description = description.map(|text| content(&param, &text)).transpose()?;
                names.push(filled(&param, name.clone())?);
                options.push(Choice { name, description: description.filter(|text| !text.is_empty()) });
            }
            (Kind::Choice, options, Values::Choice(names))
        }
        SystemOneKind::Score => {
            let Some(Criteria::Levels(levels)) = body.criteria else {
                return Err(wrong_criteria(&param, "a list: the levels from the lowest"));
            };
            counted(&param, "levels", levels.len(), [2, MAX_LEVELS])?;
            let level = |(at, level): (usize, &JsonText)| {
                Ok(Choice { name: some_content(&format!("{param}[{at}]"), level)?, description: None })
            };
            let options = levels.iter().enumerate().map(level).collect::<Result<_, ApiError>>()?;
            (Kind::Score, options, Values::Score(levels))
        }
    };
    Ok((Question { place, kind, text, options }, values))
}

fn wrong_criteria(param: &str, form: &str) -> ApiError {
    refused(param, format!("`{param}` is missing or of another kind"), format!("give {form}"))
}

/// Yes and no, and what they mean.
fn outcomes(param: &str, criteria: Option<Criteria>) -> Result<Vec<Choice>, ApiError> {
    let entries = match criteria {
        None => Vec::new(),
        Some(Criteria::Named(entries)) => entries.0,
        Some(Criteria::Levels(_)) => {
            return Err(wrong_criteria(param, "an object: what `true` and `false` mean"));
        }
    };
    let mut options = ["yes", "no"].map(|name| Choice { name: name.to_owned(), description: None });
    for (name, description) in entries {
        let param = format!("{param}.{name}");
        let option = match name.as_str() {
            "true" => &mut options[0],
            "false" => &mut options[1],
            _ => return Err(refused(&param, format!("`{param}` is unknown"), "give `true` and `false`")),
        };
        let description = description.map(|text| content(&param, &text)).transpose()?;
        option.description = description.filter(|text| !text.is_empty());
    }
    Ok(options.to_vec())
}

impl SystemOneForm {
    /// Names the question in an error of the engine.
    pub fn named(&self, error: EngineError) -> EngineError {
        self.readings.named(error)
    }
}

/// Builds the answer.
pub fn answer(head: AnswerHead, form: &SystemOneForm, outcome: &ScoreOutcome) -> SystemOneAnswers {
    let reads = form.readings.read(outcome);
    let named = || form.questions.iter().zip(&reads);
    SystemOneAnswers {
        id: head.id,
        object: "structured_decision",
        created: head.created,
        model: head.model,
        answers: Entries(
            named().map(|((name, values), read)| (name.clone(), answered(values, read))).collect(),
        ),
        usage: SystemOneUsage { input_tokens: Counts::of(outcome).input, output_tokens: 0 },
        diagnostics: Entries(named().map(|((name, _), read)| (name.clone(), read.diagnostics())).collect()),
    }
}

fn answered(values: &Values, read: &Read) -> SystemOneAnswer {
    let shares = || read.probabilities.iter().map(|&share| Finite(share));
    match values {
        Values::Noul => SystemOneAnswer::Noul { noul: shares().next().unwrap_or_default() },
        Values::Choice(names) => SystemOneAnswer::Choice {
            choice: names.get(read.best()).cloned().unwrap_or_default(),
            probabilities: Entries(names.iter().cloned().zip(shares()).collect()),
            confidence: Finite(read.confidence_of_choice()),
        },
        Values::Score(levels) => {
            let numbered = levels.iter().enumerate();
            SystemOneAnswer::Score {
                score: Finite(read.expected()),
                legend: Entries(numbered.map(|(at, level)| (at.to_string(), level.clone())).collect()),
                probabilities: Entries(shares().enumerate().map(|(at, p)| (at.to_string(), p)).collect()),
                confidence: Finite(read.confidence_of_score()),
            }
        }
    }
}
