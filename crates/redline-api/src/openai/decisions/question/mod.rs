//! Questions about a state, each answered by the probabilities of its options: what `/v1/decisions` and `/v1/systemone` share.
//!
//! All questions are items of one score request, whose query is the prompt up to the state, so the state is computed once. Each option
//! has a label, such as a letter, and the probability of the label as the beginning of the answer is read. An answer does not depend on
//! the other questions, their order, or what a cache holds.

mod labels;
mod prompt;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use redline_engine::{EngineError, Label, LongLabels, Prompt, ScoreOutcome, ScoreRequest};

use crate::chat::template::Chat;
use crate::error::ApiError;
use crate::json::fields::{refused, within_count};
use crate::json::finite::Finite;
use crate::json::text::JsonText;
use crate::model::LoadedModel;
use crate::openai::decisions::body::DecisionDiagnostics;
use crate::openai::decisions::question::labels::Labels;
use crate::openai::decisions::question::prompt::Frame;

/// The kinds of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The options are yes and no.
    YesNo,
    /// The options have no order.
    Choice,
    /// The options are levels, from the lowest.
    Score,
}

/// An option of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Its name.
    pub(crate) name: String,
    /// When it applies.
    pub(crate) description: Option<String>,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// Its name in error messages.
    pub(crate) place: String,
    pub(crate) kind: Kind,
    /// What is asked, if the options alone do not say it.
    pub(crate) text: Option<String>,
    pub(crate) options: Vec<Choice>,
}

/// What all questions are about.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Context that precedes it.
    pub(crate) instructions: Option<String>,
    pub(crate) text: String,
    /// Variables of the chat template.
    pub(crate) arguments: BTreeMap<String, JsonText>,
}

/// How the answers are read from the scores.
#[derive(Clone, Debug)]
pub(crate) struct Readings {
    /// For each question, the option of each label.
    options: Vec<Vec<usize>>,
    places: Vec<String>,
}

/// The probabilities of the options of a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Read {
    pub(crate) probabilities: Vec<f32>,
    pub(crate) label_mass: Option<f32>,
    pub(crate) argmax_is_label: Option<bool>,
}

/// Builds the engine's request. The prompts are put into the chat template, if the model has one.
pub(crate) fn request(
    model: &LoadedModel,
    chat: Option<&Chat>,
    state: State,
    questions: Vec<Question>,
) -> Result<(ScoreRequest, Readings), ApiError> {
    let frame = Frame::new(chat, state)?;
    let (mut items, mut item_labels, mut options) = (Vec::new(), Vec::new(), Vec::new());
    let mut places = Vec::with_capacity(questions.len());
    for question in questions {
        let labels = Labels::of(question.kind, question.options.len(), frame.lead(), &model.engine)?;
        items.push(frame.item(&prompt::question(&question, &labels.shown)));
        item_labels.push(labels.written.into_iter().map(Label::Text).collect());
        options.push(labels.options);
        places.push(question.place);
    }
    let request = ScoreRequest {
        item_labels: Some(item_labels),
        long_labels: LongLabels::Sum,
        softmax: true,
        full_logprobs: true,
        return_reading: true,
        ..ScoreRequest::new(frame.query(), items.into_iter().map(Prompt::Text).collect(), Vec::new())
    };
    Ok((request, Readings { options, places }))
}

impl Readings {
    /// Names the question in an error of the engine.
    pub(crate) fn named(&self, error: EngineError) -> EngineError {
        let EngineError::Request { fact, hint, field } = error else { return error };
        let named = fact.strip_prefix("item ").and_then(|rest| {
            let (item, fact) = rest.split_once(": ")?;
            let place = self.places.get(item.parse::<usize>().ok()?)?;
            let too_long = fact.contains("exceed");
            Some(EngineError::Request {
                fact: format!("{place}: {fact}"),
                hint: if too_long { Some("shorten the state or the question".into()) } else { hint.clone() },
                field,
            })
        });
        named.unwrap_or(EngineError::Request { fact, hint, field })
    }

    /// The answers, in the order of the questions.
    pub(crate) fn read(&self, outcome: &ScoreOutcome) -> Vec<Read> {
        let labels = outcome.item_label_token_ids.as_deref().unwrap_or_default();
        let items = outcome.items.iter().flatten().zip(labels).zip(&self.options);
        let read = items.map(|((item, labels), options)| {
            let count = options.iter().max().map_or(0, |last| last + 1);
            let mut sums = vec![0.0_f64; count];
            for (&option, &score) in options.iter().zip(&item.scores) {
                sums[option] += f64::from(score);
            }
            let reading = item.reading;
            let begins = |id| labels.iter().any(|label| label.first() == Some(&id));
            Read {
                probabilities: sums.into_iter().map(|sum| sum as f32).collect(),
                label_mass: reading.map(|reading| reading.label_mass),
                argmax_is_label: reading.map(|reading| begins(reading.most_probable)),
            }
        });
        read.collect()
    }
}

impl Read {
    /// The most probable option, the first among equals.
    pub(crate) fn best(&self) -> usize {
        let options = self.probabilities.iter().enumerate();
        options.reduce(|best, other| if other.1 > best.1 { other } else { best }).map_or(0, |(at, _)| at)
    }

    /// The expected level.
    pub(crate) fn expected(&self) -> f32 {
        let levels = self.probabilities.iter().enumerate();
        levels.map(|(level, &share)| level as f64 * f64::from(share)).sum::<f64>() as f32
    }

    /// How far the largest probability lies above chance: 0 if all options are equally probable, 1 if one is certain.
    pub(crate) fn confidence_of_choice(&self) -> f32 {
        let count = self.probabilities.len() as f64;
        if count < 2.0 {
            return 1.0;
        }
        let largest = self.probabilities.get(self.best()).map_or(0.0, |&share| f64::from(share));
        ((count * largest - 1.0) / (count - 1.0)).clamp(0.0, 1.0) as f32
    }

    /// How concentrated the levels are: 1 minus the mean distance to the most probable level, in units of the mean distance of equally
    /// probable levels to their middle.
    pub(crate) fn confidence_of_score(&self) -> f32 {
        let count = self.probabilities.len();
        if count < 2 {
            return 1.0;
        }
        let distance = |from: f64| move |level: usize| (level as f64 - from).abs();
        let to_best = distance(self.best() as f64);
        let weighted = |(level, &share): (usize, &f32)| f64::from(share) * to_best(level);
        let mean: f64 = self.probabilities.iter().enumerate().map(weighted).sum();
        let even: f64 = (0..count).map(distance((count - 1) as f64 / 2.0)).sum::<f64>() / count as f64;
        (1.0 - mean / even).clamp(0.0, 1.0) as f32
    }

    pub(crate) fn diagnostics(&self) -> DecisionDiagnostics {
        DecisionDiagnostics { label_mass: self.label_mass.map(Finite), argmax_is_label: self.argmax_is_label }
    }
}

/// Token counts in which what all prompts share counts once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) input: usize,
    pub(crate) cached: usize,
    /// Shared tokens that were not cached.
    pub(crate) written: usize,
}

impl Counts {
    pub(crate) fn of(outcome: &ScoreOutcome) -> Self {
        let (items, shared) = (outcome.items.len(), outcome.cost.shared_prefix_tokens);
        let usage = outcome.cost.usage;
        let once = |sum: usize, each: usize| sum.saturating_sub(each.saturating_mul(items.saturating_sub(1)));
        // Every prompt counts what it took from the cache, and all take at least what is cached of the shared part.
        let shared_cached = usage.cached_tokens.checked_div(items).unwrap_or(0).min(shared);
        Self {
            input: once(usage.prompt_tokens, shared),
            cached: once(usage.cached_tokens, shared_cached),
            written: if outcome.cost.prefix_cache.is_some() { shared - shared_cached } else { 0 },
        }
    }
}

/// Refuses a number of questions, options or levels out of range.
pub(crate) fn counted(
    param: &str,
    noun: &str,
    count: usize,
    range: RangeInclusive<usize>,
) -> Result<(), ApiError> {
    within_count(param, &format!("there are {count} {noun}"), count, range)
}

/// Refuses an empty text.
pub(crate) fn filled(param: &str, text: String) -> Result<String, ApiError> {
    if text.is_empty() {
        return Err(refused(param, format!("`{param}` is empty"), "give a text"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(probabilities: &[f32]) -> Read {
        Read { probabilities: probabilities.to_vec(), label_mass: None, argmax_is_label: None }
    }

    #[test]
    fn confidence_is_0_for_chance_and_1_for_certainty() {
        for count in [2, 3, 10, 255] {
            let even = read(&vec![1.0 / count as f32; count]);
            assert!(even.confidence_of_choice() < 1e-5, "{count}");
            let mut sure = vec![0.0; count];
            sure[count - 1] = 1.0;
            let sure = read(&sure);
            assert_eq!((sure.confidence_of_choice(), sure.confidence_of_score()), (1.0, 1.0));
            assert_eq!((sure.best(), sure.expected()), (count - 1, (count - 1) as f32));
        }
        assert_eq!((read(&[1.0]).confidence_of_choice(), read(&[1.0]).confidence_of_score()), (1.0, 1.0));
        // (3 * 0.5 - 1) / 2, and 1 - 0.75 / (2 / 3) cut at 0.
        assert_eq!(read(&[0.25, 0.5, 0.25]).confidence_of_choice(), 0.25);
        assert_eq!(read(&[0.25, 0.5, 0.25]).confidence_of_score(), 0.25);
        assert_eq!(read(&[0.5, 0.0, 0.5]).confidence_of_score(), 0.0);
        assert_eq!(read(&[0.5, 0.0, 0.5]).best(), 0);
    }

    /// So many options, one of which has this share; the others share the rest evenly.
    fn peaked(count: usize, at: usize, share: f32) -> Read {
        let mut all = vec![(1.0 - share) / (count - 1) as f32; count];
        all[at] = share;
        read(&all)
    }

    /// The examples that TypeSafe publishes, and those with which llama.cpp and SGLang test. All are rounded.
    #[test]
    fn confidence_is_as_others_publish_it() {
        let close = |told: f32, published: f32| (told - published).abs() <= 0.01;
        for (count, share, published) in [
            (3, 0.61, 0.42),
            (4, 0.40, 0.20),
            (5, 0.74, 0.67),
            (3, 0.84, 0.76),
            (3, 0.88, 0.82),
            (2, 0.9, 0.8),
        ] {
            let told = peaked(count, 0, share).confidence_of_choice();
            assert!(close(told, published), "{count} {share}: {told}");
        }
        let scores: [(&[f32], f32); 8] = [
            (&[0.95, 0.05], 0.90),
            (&[0.0, 0.57, 0.43], 0.35),
            (&[0.0, 0.74, 0.26], 0.61),
            (&[0.0, 0.91, 0.09], 0.87),
            (&[0.0, 0.48, 0.52, 0.0], 0.52),
            (&[0.0, 0.0, 0.48, 0.52], 0.52),
            (&[0.0, 0.0, 0.86, 0.14, 0.0], 0.89),
            (&[0.5, 0.0, 0.0, 0.0, 0.5], 0.0),
        ];
        for (shares, published) in scores {
            let told = read(shares).confidence_of_score();
            assert!(close(told, published), "{shares:?}: {told}");
        }
        // The two measures differ where levels are more than a step apart, or more than three.
        assert!(close(read(&[0.0, 0.48, 0.52, 0.0]).confidence_of_choice(), 0.36));
        let ends = read(&[0.6, 0.0, 0.4]);
        assert!(ends.confidence_of_choice() - ends.confidence_of_score() > 0.1);
        for share in [0.5, 0.625, 0.75, 0.875, 1.0] {
            for of in [peaked(2, 1, share), read(&[0.0, share, 1.0 - share])] {
                assert!((of.confidence_of_choice() - of.confidence_of_score()).abs() < 1e-6, "{of:?}");
            }
        }
    }

    #[test]
    fn confidence_grows_with_the_share_of_the_best() {
        for count in 2..=10 {
            for at in 0..count {
                let mut last = [0.0_f32; 2];
                for step in 0..=40 {
                    let even = 1.0 / count as f32;
                    let of = peaked(count, at, even + (1.0 - even) * step as f32 / 40.0);
                    let now = [of.confidence_of_choice(), of.confidence_of_score()];
                    for (now, last) in now.iter().zip(last) {
                        assert!((last - 1e-5..=1.0).contains(now), "{count} {at} {step}: {now} {last}");
                    }
                    last = now;
                }
                assert!(last.iter().all(|&last| last > 0.9999), "{count} {at}: {last:?}");
            }
        }
    }

    #[test]
    fn an_error_names_the_question() {
        let readings =
            Readings { options: Vec::new(), places: vec!["questions[0]".into(), "question `b`".into()] };
        let named = |fact: &str| {
            let error = readings.named(EngineError::Request {
                fact: fact.to_owned(),
                hint: Some("h".into()),
                field: None,
            });
            format!("{error}; {}", error.hint().unwrap())
        };
        assert_eq!(
            named("item 1: 700 tokens exceed the context of 512"),
            "question `b`: 700 tokens exceed the context of 512; shorten the state or the question"
        );
        assert_eq!(named("item 0: x"), "questions[0]: x; h");
        for fact in ["item 2: x", "item x: y", "other"] {
            assert_eq!(named(fact), format!("{fact}; h"));
        }
    }
}
