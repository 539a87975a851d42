//! `/v1/decisions`: questions about an input, in OpenAI's form.

pub mod body;
pub mod question;

use std::collections::HashSet;

use redline_engine::{EngineError, ScoreOutcome, ScoreRequest};

use crate::chat::template::Chat;
use crate::error::ApiError;
use crate::head::AnswerHead;
use crate::json::fields::{refused, salt, timeout};
use crate::json::finite::Finite;
use crate::json::limits::{MAX_LEVELS, MAX_OPTIONS, MAX_QUESTIONS};
use crate::model::LoadedModel;
use crate::openai::decisions::body::{
    DecisionAnswer, DecisionBody, DecisionInput, DecisionInputDetails, DecisionItem, DecisionItemKind,
    DecisionKind, DecisionOutputDetails, DecisionPart, DecisionPartKind, DecisionQuestionBody, DecisionRole,
    DecisionText, DecisionUsage, DecisionValue, DecisionsAnswer, LevelProbability, OptionProbability,
    PromptCacheOptions,
};
use crate::openai::decisions::question::{
    Choice, Counts, Kind, Question, Read, Readings, State, counted, filled,
};

/// What the answer repeats of the questions.
#[derive(Clone, Debug)]
pub struct DecisionsForm {
    questions: Vec<Named>,
    readings: Readings,
}

/// A question by its name, and the values of its options.
#[derive(Clone, Debug)]
struct Named {
    name: Option<String>,
    values: Values,
}

#[derive(Clone, Debug)]
enum Values {
    Predicate,
    Choice(Vec<DecisionValue>),
    Score(Vec<String>),
}

/// Builds the engine's request.
pub fn request(
    model: &LoadedModel,
    chat: Option<&Chat>,
    body: DecisionBody,
) -> Result<(ScoreRequest, DecisionsForm), ApiError> {
    counted("questions", "questions", body.questions.len(), 1..=MAX_QUESTIONS)?;
    check_options(body.prompt_cache_options, body.temperature)?;
    let cache_salt = salt(body.cache_salt)?;
    let cache_key = body.prompt_cache_key.unwrap_or_default();
    let timeout_s = timeout(body.timeout_s)?;
    let (mut questions, mut named) = (Vec::new(), Vec::new());
    for (at, question) in body.questions.into_iter().enumerate() {
        let (question, values) = asked(format!("questions[{at}]"), question)?;
        questions.push(question);
        named.push(values);
    }
    let state = State {
        instructions: body.instructions,
        text: input(body.input)?,
        arguments: body.chat_template_kwargs.unwrap_or_default(),
    };
    let (mut request, readings) = question::request(model, chat, state, questions)?;
    request.cache_salt = format!("{cache_salt}\0{cache_key}");
    request.timeout_s = timeout_s;
    Ok((request, DecisionsForm { questions: named, readings }))
}

fn check_options(cache: Option<PromptCacheOptions>, temperature: Option<f32>) -> Result<(), ApiError> {
    if let Some(PromptCacheOptions { mode, ttl }) = cache {
        let known = [("mode", mode, PromptCacheOptions::MODES), ("ttl", ttl, PromptCacheOptions::LIFETIMES)];
        for (key, value, values) in known {
            if let Some(value) = value.filter(|value| !values.contains(&value.as_str())) {
                let param = format!("prompt_cache_options.{key}");
                let fact = format!("`{param}` is {value:?}");
                return Err(refused(&param, fact, format!("give {}", values.join(" or "))));
            }
        }
    }
    if let Some(temperature) = temperature.filter(|&temperature| temperature != 1.0) {
        let hint = "the probabilities are those of the model: leave it out";
        return Err(refused("temperature", format!("`temperature` is {temperature}"), hint));
    }
    Ok(())
}

fn asked(place: String, body: DecisionQuestionBody) -> Result<(Question, Named), ApiError> {
    let text = filled(
        &format!("{place}.instructions"),
        text(&format!("{place}.instructions"), body.instructions, QUESTION)?,
    )?;
    let foreign = |key: &str, kind: &str| {
        let param = format!("{place}.{key}");
        Err(refused(&param, format!("`{param}` is given for a {kind}"), "leave it out"))
    };
    let missing = |key: &str| {
        let param = format!("{place}.{key}");
        refused(&param, format!("`{param}` is missing"), "give the possible answers")
    };
    let (kind, options, values) = match (body.kind, body.choices, body.levels) {
        (DecisionKind::Predicate, None, None) => {
            let option = |name: &str| Choice { name: name.to_owned(), description: None };
            (Kind::YesNo, vec![option("yes"), option("no")], Values::Predicate)
        }
        (DecisionKind::Predicate, Some(_), _) => return foreign("choices", "predicate"),
        (DecisionKind::Predicate, None, Some(_)) => return foreign("levels", "predicate"),
        (DecisionKind::Choice, _, Some(_)) => return foreign("levels", "choice"),
        (DecisionKind::Score, Some(_), _) => return foreign("choices", "score"),
        (DecisionKind::Choice, choices, None) => {
            let choices = choices.ok_or_else(|| missing("choices"))?;
            let param = format!("{place}.choices");
            counted(&param, "choices", choices.len(), 2..=MAX_OPTIONS)?;
            let mut seen = HashSet::new();
            let (mut options, mut values) = (Vec::new(), Vec::new());
            for (at, choice) in choices.into_iter().enumerate() {
                let param = format!("{param}[{at}].value");
                if !seen.insert(choice.value.clone()) {
                    let fact = format!("`{param}` is the value of an earlier choice");
                    return Err(refused(&param, fact, "give every value once"));
                }
                let name = match &choice.value {
                    DecisionValue::Bool(value) => value.to_string(),
                    DecisionValue::Text(text) => filled(&param, text.clone())?,
                };
                options.push(Choice { name, description: choice.description });
                values.push(choice.value);
            }
            (Kind::Choice, options, Values::Choice(values))
        }
        (DecisionKind::Score, None, levels) => {
            let levels = levels.ok_or_else(|| missing("levels"))?;
            let param = format!("{place}.levels");
            counted(&param, "levels", levels.len(), 2..=MAX_LEVELS)?;
            let (mut options, mut labels) = (Vec::new(), Vec::new());
            for (at, level) in levels.into_iter().enumerate() {
                let name = filled(&format!("{param}[{at}].label"), level.label)?;
                labels.push(name.clone());
                options.push(Choice { name, description: level.description });
            }
            (Kind::Score, options, Values::Score(labels))
        }
    };
    let question = Question { place, kind, text: Some(text), options };
    Ok((question, Named { name: body.name, values }))
}

/// The types of parts that a place may have.
type Parts = &'static [DecisionPartKind];
const QUESTION: Parts = &[DecisionPartKind::InputText, DecisionPartKind::InputJson];
const SYSTEM: Parts = &[DecisionPartKind::InputText];
const ASSISTANT: Parts = &[DecisionPartKind::OutputText, DecisionPartKind::Refusal];

/// The text of parts, joined by line ends.
fn text(param: &str, from: DecisionText, kinds: Parts) -> Result<String, ApiError> {
    match from {
        DecisionText::Text(text) => Ok(text),
        DecisionText::Parts(parts) => {
            let parts = parts.into_iter().enumerate();
            let texts = parts.map(|(at, part)| part_text(&format!("{param}[{at}]"), part, kinds));
            Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n"))
        }
    }
}

fn part_text(param: &str, part: DecisionPart, kinds: Parts) -> Result<String, ApiError> {
    if part.kind == DecisionPartKind::InputImage {
        let fact = format!("`{param}` is an image");
        return Err(refused(param, fact, "the model reads text: give `input_text` or `input_json`"));
    }
    if !kinds.contains(&part.kind) {
        let param = format!("{param}.type");
        return Err(refused(&param, format!("`{param}` does not belong here"), "take another type"));
    }
    let (key, value) = match part.kind {
        DecisionPartKind::InputJson => (
            "data",
            part.data
                .as_ref()
                .filter(|data| !data.as_str().starts_with('"'))
                .and_then(crate::json::text::JsonText::content),
        ),
        DecisionPartKind::Refusal => ("refusal", part.refusal),
        _ => ("text", part.text),
    };
    value.ok_or_else(|| {
        let param = format!("{param}.{key}");
        let form = if key == "data" { "an object or a list of objects" } else { "a text" };
        refused(&param, format!("`{param}` is missing or of another kind"), format!("give {form}"))
    })
}

/// The text of an input. A single message of the user is its text; otherwise each item has a heading.
fn input(from: DecisionInput) -> Result<String, ApiError> {
    let items = match from {
        DecisionInput::Text(text) => return Ok(text),
        DecisionInput::Items(items) => items,
    };
    if items.is_empty() {
        return Err(refused("input", "`input` has 0 items", "give a text or at least one message"));
    }
    let is_single = items.len() == 1;
    let (mut functions, mut tools) = (HashSet::new(), HashSet::new());
    let mut texts = Vec::with_capacity(items.len());
    for (at, item) in items.into_iter().enumerate() {
        let place = format!("input[{at}]");
        match item.kind {
            DecisionItemKind::FunctionCall => functions.extend(item.call_id.clone()),
            DecisionItemKind::CustomToolCall => tools.extend(item.call_id.clone()),
            DecisionItemKind::FunctionCallOutput => check_call(&place, item.call_id.as_ref(), &functions)?,
            DecisionItemKind::CustomToolCallOutput => check_call(&place, item.call_id.as_ref(), &tools)?,
            DecisionItemKind::Message => {}
        }
        let is_user = item.role == Some(DecisionRole::User);
        let (heading, text) = item_text(&place, item)?;
        texts.push(if is_single && is_user { text } else { format!("{heading}:\n{text}") });
    }
    Ok(texts.join("\n\n"))
}

/// Refuses an output without a call before it.
fn check_call(place: &str, id: Option<&String>, calls: &HashSet<String>) -> Result<(), ApiError> {
    if id.is_none_or(|id| calls.contains(id)) {
        return Ok(());
    }
    let param = format!("{place}.call_id");
    Err(refused(&param, format!("`{param}` names no call before it"), "give the call before its output"))
}

/// The heading and the text of an item.
fn item_text(place: &str, item: DecisionItem) -> Result<(String, String), ApiError> {
    let given = [
        ("role", item.role.is_some()),
        ("content", item.content.is_some()),
        ("name", item.name.is_some()),
        ("arguments", item.arguments.is_some()),
        ("input", item.input.is_some()),
        ("output", item.output.is_some()),
        ("call_id", item.call_id.is_some()),
    ];
    let fields: &[&str] = match item.kind {
        DecisionItemKind::Message => &["role", "content"],
        DecisionItemKind::FunctionCall => &["name", "arguments", "call_id"],
        DecisionItemKind::CustomToolCall => &["name", "input", "call_id"],
        DecisionItemKind::FunctionCallOutput | DecisionItemKind::CustomToolCallOutput => {
            &["output", "call_id"]
        }
    };
    for (key, is_given) in given {
        let param = format!("{place}.{key}");
        match (fields.contains(&key), is_given) {
            (true, false) => return Err(refused(&param, format!("`{param}` is missing"), "give it")),
            (false, true) => {
                let fact = format!("`{param}` does not belong to an item of this type");
                return Err(refused(&param, fact, "leave it out"));
            }
            _ => {}
        }
    }
    let name = item.name.unwrap_or_default();
    Ok(match item.kind {
        DecisionItemKind::Message => {
            let (heading, kinds) = match item.role {
                Some(DecisionRole::Assistant) => ("assistant", ASSISTANT),
                Some(DecisionRole::Developer) => ("developer", SYSTEM),
                Some(DecisionRole::System) => ("system", SYSTEM),
                Some(DecisionRole::User) | None => ("user", QUESTION),
            };
            let content = item.content.unwrap_or_else(|| DecisionText::Text(String::new()));
            (heading.to_owned(), text(&format!("{place}.content"), content, kinds)?)
        }
        DecisionItemKind::FunctionCall => (format!("call of {name}"), item.arguments.unwrap_or_default()),
        DecisionItemKind::CustomToolCall => (format!("call of {name}"), item.input.unwrap_or_default()),
        DecisionItemKind::FunctionCallOutput | DecisionItemKind::CustomToolCallOutput => {
            let output = item.output.unwrap_or_else(|| DecisionText::Text(String::new()));
            ("output".to_owned(), text(&format!("{place}.output"), output, SYSTEM)?)
        }
    })
}

impl DecisionsForm {
    /// Names the question in an error of the engine.
    pub fn named(&self, error: EngineError) -> EngineError {
        self.readings.named(error)
    }
}

/// Builds the answer.
pub fn answer(head: AnswerHead, form: &DecisionsForm, outcome: &ScoreOutcome) -> DecisionsAnswer {
    let reads = form.readings.read(outcome);
    let Counts { input, cached, written } = Counts::of(outcome);
    DecisionsAnswer {
        id: head.id,
        object: "decision",
        created: head.created,
        model: head.model,
        answers: form.questions.iter().zip(&reads).map(|(question, read)| answered(question, read)).collect(),
        diagnostics: reads.iter().map(Read::diagnostics).collect(),
        usage: DecisionUsage {
            input_tokens: input,
            input_tokens_details: DecisionInputDetails { cached_tokens: cached, cache_write_tokens: written },
            output_tokens: 0,
            output_tokens_details: DecisionOutputDetails::default(),
            total_tokens: input,
        },
    }
}

fn answered(question: &Named, read: &Read) -> DecisionAnswer {
    let name = question.name.clone();
    let shares = || read.probabilities.iter().map(|&share| Finite(share));
    match &question.values {
        Values::Predicate => {
            DecisionAnswer::Predicate { name, probability: shares().next().unwrap_or_default() }
        }
        Values::Choice(values) => DecisionAnswer::Choice {
            name,
            choice: values.get(read.best()).cloned().unwrap_or(DecisionValue::Bool(false)),
            confidence: Finite(read.confidence_of_choice()),
            probabilities: values
                .iter()
                .zip(shares())
                .map(|(value, probability)| OptionProbability { value: value.clone(), probability })
                .collect(),
        },
        Values::Score(labels) => DecisionAnswer::Score {
            name,
            score: Finite(read.expected()),
            confidence: Finite(read.confidence_of_score()),
            probabilities: labels
                .iter()
                .zip(shares())
                .enumerate()
                .map(|(value, (label, probability))| LevelProbability {
                    value,
                    label: label.clone(),
                    probability,
                })
                .collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(json: &str) -> Result<String, String> {
        let parsed: DecisionInput = serde_json::from_str(json).unwrap();
        input(parsed).map_err(|error| error.to_string())
    }

    #[test]
    fn messages_and_calls_become_one_text() {
        assert_eq!(text_of(r#""plain""#), Ok("plain".to_owned()));
        let one = r#"[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_json","data":{"b": [1]}}]}]"#;
        assert_eq!(text_of(one), Ok("a\n{\"b\":[1]}".to_owned()));
        let many = r#"[{"role":"system","content":"s"},{"role":"user","content":"u"},
            {"type":"function_call","name":"f","arguments":"{}","call_id":"1"},
            {"type":"function_call_output","call_id":"1","output":"o"},
            {"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}],"phase":"final_answer"}]"#;
        assert_eq!(
            text_of(many),
            Ok("system:\ns\n\nuser:\nu\n\ncall of f:\n{}\n\noutput:\no\n\nassistant:\nx".to_owned())
        );
    }

    #[test]
    fn what_an_item_may_not_have_is_refused_by_name() {
        let refused = |json: &str, expect: &str| {
            let error = text_of(json).unwrap_err();
            assert!(error.contains(expect), "{json}: {error}");
        };
        refused("[]", "`input` has 0 items");
        refused(r#"[{"content":"u"}]"#, "`input[0].role` is missing");
        refused(r#"[{"role":"user"}]"#, "`input[0].content` is missing");
        refused(
            r#"[{"role":"user","content":"u","arguments":"{}"}]"#,
            "`input[0].arguments` does not belong",
        );
        refused(
            r#"[{"type":"function_call_output","call_id":"1","output":"o"}]"#,
            "`input[0].call_id` names no call",
        );
        refused(
            r#"[{"role":"user","content":[{"type":"input_image","image_url":"data:"}]}]"#,
            "`input[0].content[0]` is an image",
        );
        refused(
            r#"[{"role":"system","content":[{"type":"input_json","data":{}}]}]"#,
            "`input[0].content[0].type`",
        );
        refused(
            r#"[{"role":"user","content":[{"type":"input_text"}]}]"#,
            "`input[0].content[0].text` is missing",
        );
        refused(
            r#"[{"role":"user","content":[{"type":"input_json","data":"x"}]}]"#,
            "`input[0].content[0].data`",
        );
    }
}
