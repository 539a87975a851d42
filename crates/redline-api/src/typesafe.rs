//! `/v1/systemone`, as TypeSafe has it, with the additions of vLLM and llama.cpp.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use redline_engine::{EngineError, ScoreOutcome, ScoreRequest};
use schemars::{JsonSchema, Schema};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::chat::template::Chat;
use crate::error::ApiError;
use crate::head::AnswerHead;
use crate::json::cases::{case, cases, given};
use crate::json::entries::{Entries, entries};
use crate::json::fields::{refused, salt, timeout};
use crate::json::finite::Finite;
use crate::json::limits::{MAX_LEVELS, MAX_OPTIONS, MAX_QUESTIONS};
use crate::json::named::names;
use crate::json::object::objects;
use crate::json::shape::{self, one_of, schemas};
use crate::json::text::JsonText;
use crate::model::LoadedModel;
use crate::openai::decisions::body::DecisionDiagnostics;
use crate::openai::decisions::question::{
    self, Choice, Counts, Kind, Question, Read, Readings, State, counted, filled,
};

/// Asks questions about a state.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemOneBody {
    /// The model's name.
    pub model: Option<String>,
    /// What the questions are about: a text, an object or an array.
    #[schemars(with = "Content")]
    pub state: JsonText,
    /// The questions by name.
    #[schemars(extend("minProperties" = 1, "maxProperties" = MAX_QUESTIONS, "propertyNames" = { "minLength": 1 }))]
    pub questions: Entries<SystemOneQuestion>,
    /// Context that precedes the state: a text, an object or an array.
    #[schemars(with = "Option<Content>")]
    pub instructions: Option<JsonText>,
    /// Further variables of the chat template by name.
    pub chat_template_kwargs: Option<BTreeMap<String, JsonText>>,
    /// Only requests with the same salt share cached prefixes.
    #[schemars(with = "Option<shape::Salt>")]
    pub cache_salt: Option<String>,
    /// Time limit in seconds.
    #[schemars(with = "Option<shape::Seconds>")]
    pub timeout_s: Option<f64>,
    /// Images, which no model here reads.
    #[schemars(with = "Option<shape::EmptyList>")]
    pub assets: Option<JsonText>,
    /// Images, which no model here reads.
    #[schemars(with = "Option<shape::EmptyList>")]
    pub images: Option<JsonText>,
    /// Videos, which no model here reads.
    #[schemars(with = "Option<shape::EmptyList>")]
    pub videos: Option<JsonText>,
}

/// A question. The form of its criteria follows from its type.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(transform = question_cases)]
#[serde(deny_unknown_fields, remote = "SystemOneQuestion")]
pub struct SystemOneQuestion {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: SystemOneKind,
    /// What is asked: a text, an object or an array.
    #[schemars(with = "Option<SomeContent>")]
    pub instructions: Option<JsonText>,
    /// The possible answers.
    #[schemars(with = "Option<CriteriaForms>")]
    pub criteria: Option<Criteria>,
}

objects!(SystemOneQuestion);
names!(SystemOneKind);

/// The types of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", remote = "SystemOneKind")]
pub enum SystemOneKind {
    /// Yes or no.
    Noul,
    /// One of some options.
    Choice,
    /// A level.
    Score,
    /// A place in an image, which no model here reads.
    Box,
}

/// The possible answers to a question.
#[derive(Clone, Debug)]
pub enum Criteria {
    /// Options by name, or what `true` and `false` mean.
    Named(Entries<Option<JsonText>>),
    /// Levels, from the lowest.
    Levels(Vec<JsonText>),
}

impl<'de> Deserialize<'de> for Criteria {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = Criteria;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of options or a list of levels")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Criteria, A::Error> {
                entries(map).map(Criteria::Named)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Criteria, A::Error> {
                let mut levels = Vec::new();
                while let Some(level) = seq.next_element()? {
                    levels.push(level);
                }
                Ok(Criteria::Levels(levels))
            }
        }
        from.deserialize_any(Forms)
    }
}

/// Answer of `/v1/systemone`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SystemOneAnswers {
    /// Identifies the answer.
    pub id: String,
    /// Always `structured_decision`.
    pub object: &'static str,
    /// When the request came, in seconds since 1970.
    pub created: u64,
    /// The name of the model that answered.
    pub model: String,
    /// The answers by the names of the questions, in their order.
    pub answers: Entries<SystemOneAnswer>,
    /// Token counts.
    pub usage: SystemOneUsage,
    /// How the answers were read.
    pub diagnostics: Entries<DecisionDiagnostics>,
}

/// The answer to a question.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SystemOneAnswer {
    /// To a question of yes or no.
    Noul {
        /// The probability of yes.
        noul: Finite<f32>,
    },
    /// To a choice.
    Choice {
        /// The most probable option.
        choice: String,
        /// The probability of each option.
        probabilities: Entries<Finite<f32>>,
        /// How far the probability of the choice lies above chance, from 0 to 1.
        confidence: Finite<f32>,
    },
    /// To a score.
    Score {
        /// The expected level, counted from 0.
        score: Finite<f32>,
        /// The levels by their number.
        legend: Entries<JsonText>,
        /// The probability of each level by its number.
        probabilities: Entries<Finite<f32>>,
        /// How concentrated the levels are, from 0 to 1.
        confidence: Finite<f32>,
    },
}

/// Token counts.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct SystemOneUsage {
    /// Tokens of the prompts; what all questions share counts once.
    pub input_tokens: usize,
    /// Always 0.
    pub output_tokens: usize,
}

/// A text, an object or an array.
struct Content;
/// A text, an object or an array that is not empty.
struct SomeContent;
/// Options by name, or levels.
struct CriteriaForms;

/// A text, an object or an array that is not empty.
fn content_shape() -> Value {
    json!({ "type": ["string", "object", "array"], "minLength": 1, "minProperties": 1, "minItems": 1 })
}

/// A description, which may be left out.
fn description() -> Value {
    json!({ "type": ["string", "object", "array", "null"] })
}

schemas! {
    Content: |_g| json!({ "type": ["string", "object", "array"] });
    SomeContent: |_g| content_shape();
    CriteriaForms: |_g| json!({ "anyOf": [
        { "type": "object", "additionalProperties": description() },
        { "type": "array", "items": content_shape() }
    ] });
}

/// The criteria of a question, by its type. A question of yes or no says what is asked, or what yes or no means.
fn question_cases(schema: &mut Schema) {
    let of = |kind: &str| ("type", one_of(&[kind]));
    let outcomes = json!({
        "type": ["object", "null"],
        "properties": { "true": description(), "false": description() },
        "additionalProperties": false
    });
    let described = |outcome: &str| {
        let description = json!({ "type": ["string", "object", "array"], "minLength": 1 });
        case([(outcome, description)], &[])
    };
    let some_described = json!({ "allOf": [
        outcomes, { "type": "object", "anyOf": [described("true"), described("false")] }
    ] });
    let mut with_instructions = case([of("noul"), ("instructions", given())], &[]);
    with_instructions["properties"]["criteria"] = outcomes;
    let options = json!({
        "type": "object", "minProperties": 1, "maxProperties": MAX_OPTIONS, "propertyNames": { "minLength": 1 }
    });
    let levels = json!({ "type": "array", "minItems": 2, "maxItems": MAX_LEVELS });
    cases(
        schema,
        [
            with_instructions,
            case([of("noul"), ("criteria", some_described)], &[]),
            case([of("choice"), ("criteria", options)], &[]),
            case([of("score"), ("criteria", levels)], &[]),
        ],
    );
}

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
    counted("questions", "questions", body.questions.0.len(), 1..=MAX_QUESTIONS)?;
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
    let (mut request, readings) = question::request(model, chat, state, questions)?;
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
            counted(&param, "options", entries.len(), 1..=MAX_OPTIONS)?;
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
            counted(&param, "levels", levels.len(), 2..=MAX_LEVELS)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_keep_the_order_of_their_entries() {
        let json = r#"{"b":1,"a":2,"b":3}"#;
        let object: Entries<u8> = serde_json::from_str(json).unwrap();
        assert_eq!(
            object.0.iter().map(|(name, n)| (name.as_str(), *n)).collect::<Vec<_>>(),
            [("b", 1), ("a", 2), ("b", 3)]
        );
        assert_eq!(serde_json::to_string(&object).unwrap(), json);
        assert!(
            serde_json::from_str::<Entries<u8>>("[]").unwrap_err().to_string().contains("expected an object")
        );
    }

    #[test]
    fn criteria_are_an_object_or_a_list() {
        let of = |json: &str| serde_json::from_str::<Criteria>(json).map_err(|error| error.to_string());
        assert!(
            matches!(of(r#"{"a":null,"b":"x"}"#), Ok(Criteria::Named(Entries(all))) if all.len() == 2 && all[0].1.is_none())
        );
        assert!(
            matches!(of(r#"["a",{"b":1}]"#), Ok(Criteria::Levels(all)) if all[1].as_str() == r#"{"b":1}"#)
        );
        assert!(of("7").unwrap_err().contains("an object of options or a list of levels"));
    }
}
