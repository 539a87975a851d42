//! Random requests, and the checks of their answers.

use std::cell::RefCell;

use super::Random;
use super::filling::Filling;
use super::generation::{Generation, Lockstep};
use super::machine::VOCABULARY;
use super::oracle::cached::{Stored, fewest_computed, most};
use super::scoring::Scoring;
use crate::cancel::Cancel;
use crate::core::Arrival;
use crate::error::EngineError;
use crate::runner::Place;
use crate::ticket::{Event, Ticket};

/// Upper bounds of a request's work, as if each of its sequences ran alone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// Number of tokens of all its sequences, or of rows of all passes over its canvases.
    pub(super) tokens: usize,
    /// Number of sequences, or of passes over canvases.
    pub(super) sequences: usize,
    /// Number of new tokens.
    pub(super) grown: usize,
}

/// How an answer ends.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The answer is complete.
    Whole,
    /// The answer is cut short.
    Part,
    Failed(EngineError),
}

/// An answer with correct contents.
pub(super) struct Checked {
    pub(super) outcome: Outcome,
    /// The prompts that may have found tokens in the prefix cache.
    pub(super) prompts: Vec<Vec<u32>>,
    pub(super) cached_tokens: usize,
    /// Number of tokens that were run or cached, if every one is exactly one of the two.
    pub(super) run_or_cached: Option<usize>,
}

impl Checked {
    pub(super) fn of(outcome: Outcome) -> Self {
        Self { outcome, prompts: Vec::new(), cached_tokens: 0, run_or_cached: None }
    }

    pub(super) fn failed(error: EngineError) -> Self {
        Self::of(Outcome::Failed(error))
    }
}

enum Kind {
    Generation(Generation),
    Lockstep(Lockstep),
    Filling(Filling),
    Scoring(Scoring),
}

/// A request whose answer has not arrived.
pub(super) struct Pending {
    kind: Kind,
    cancel: Cancel,
    /// Time limit in seconds from its arrival.
    timeout_s: Option<f64>,
    /// Time of arrival, in nanoseconds on the engine's clock.
    arrived: u64,
    /// Its number in the engine.
    pub(super) number: u64,
    /// Number of preemptions before it arrived.
    pub(super) preemptions: u64,
    /// Whether no other request has run beside it.
    pub(super) alone: bool,
}

/// State of the simulation when an answer arrives.
pub(super) struct Scene<'a> {
    /// The clock before the last heartbeat.
    pub(super) beat: u64,
    pub(super) preemptions: u64,
    /// Number of tokens run for the request.
    pub(super) computed_tokens: usize,
    /// Tokens that all requests so far may have stored, by number.
    pub(super) stored: &'a [Stored],
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Answered,
    Cancelled,
    Late,
}

impl Pending {
    pub(super) fn cancel(&self) {
        self.cancel.cancel();
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Whether its deadline has passed at a given time.
    pub(super) fn is_late(&self, at: u64) -> bool {
        self.timeout_s.is_some_and(|most| at.saturating_sub(self.arrived) as f64 * 1e-9 > most)
    }

    pub(super) fn work(&self) -> Work {
        match &self.kind {
            Kind::Generation(asked) => asked.work(),
            Kind::Lockstep(asked) => asked.work(),
            Kind::Filling(asked) => asked.work(),
            Kind::Scoring(asked) => asked.work(),
        }
    }

    /// Tokens that it may store for later requests.
    pub(super) fn stored(&self) -> Stored {
        match &self.kind {
            Kind::Generation(asked) => asked.stored(),
            Kind::Scoring(asked) => asked.stored(),
            Kind::Lockstep(_) | Kind::Filling(_) => {
                Stored { salt: String::new(), sequences: Vec::new(), more: 0 }
            }
        }
    }

    /// The answer, if it has arrived; an error if it is wrong.
    pub(super) fn hear(&self) -> Result<Option<Checked>, String> {
        match &self.kind {
            Kind::Generation(asked) => asked.hear(),
            Kind::Lockstep(asked) => asked.hear(),
            Kind::Filling(asked) => asked.hear(),
            Kind::Scoring(asked) => asked.hear(),
        }
    }

    /// How the request ended; an error if it must not end that way now.
    pub(super) fn judge(&self, heard: &Checked, scene: &Scene<'_>) -> Result<End, String> {
        let (cancelled, late) = (self.is_cancelled(), self.is_late(scene.beat));
        let end = match &heard.outcome {
            Outcome::Whole => End::Answered,
            Outcome::Part | Outcome::Failed(EngineError::Cancelled) if cancelled => End::Cancelled,
            Outcome::Part | Outcome::Failed(EngineError::Late { .. }) if late => End::Late,
            Outcome::Failed(error) => return Err(format!("a request failed: {error}")),
            Outcome::Part => return Err("an answer is not finished".into()),
        };
        if end == End::Answered {
            self.check_counts(heard, scene)?;
        }
        Ok(end)
    }

    /// Cached tokens must have been stored under the request's salt, and all others must have been run.
    fn check_counts(&self, heard: &Checked, scene: &Scene<'_>) -> Result<(), String> {
        let (cached, computed) = (heard.cached_tokens, scene.computed_tokens);
        let own = self.number as usize;
        let others = scene.stored[..own].iter().chain(&scene.stored[own + 1..]);
        let from_others = most(&scene.stored[own].salt, &heard.prompts, others);
        let most: usize = from_others.iter().sum();
        if cached > most {
            return Err(format!(
                "{cached} tokens are told to be cached, and requests of its salt have {most}"
            ));
        }
        let fewest = fewest_computed(&heard.prompts, &from_others);
        if computed < fewest {
            return Err(format!("{computed} tokens were run, and {fewest} were nowhere under its salt"));
        }
        let Some(total) = heard.run_or_cached.filter(|_| self.preemptions == scene.preemptions) else {
            return Ok(());
        };
        // Tokens that others store after the request arrived may be used, but are not reported as cached.
        let hidden = total - computed.min(total);
        if computed > total || cached > hidden || self.alone && cached != hidden {
            return Err(format!("{computed} tokens run and {cached} cached of {total}"));
        }
        Ok(())
    }
}

/// The answer, if it has arrived; `check` inspects its contents.
pub(super) fn answered<O, P>(
    ticket: &RefCell<Ticket<O, P>>,
    check: impl FnOnce(&O) -> Result<Checked, String>,
) -> Result<Option<Checked>, String> {
    let mut ticket = ticket.borrow_mut();
    while ticket.is_ready() {
        match ticket.event() {
            Some(Event::Progress(_)) => {}
            Some(Event::Done(Ok(outcome))) => return check(&outcome).map(Some),
            Some(Event::Done(Err(EngineError::Stopped))) | None => return Err("a request was lost".into()),
            Some(Event::Done(Err(error))) => return Ok(Some(Checked::failed(error))),
        }
    }
    Ok(None)
}

/// A random request that fits `pages` pages.
pub(super) fn ask(
    random: &mut Random,
    pages: usize,
    mix: Mix,
    place: Place,
    number: u64,
    arrived: u64,
) -> (Pending, Arrival) {
    let cancel = Cancel::new();
    // Immediate, short and generous limits.
    let timeout_s = match random.below(24) {
        0 => Some(0.0),
        1..=2 => Some(random.below(2000) as f64 * 1e-6),
        3 => Some(1e6),
        _ => None,
    };
    let (kind, task) = match if mix.scores { 9 } else { random.below(9) } {
        0..=2 => {
            let (asked, task) = Generation::new(random, pages, mix);
            (Kind::Generation(asked), task)
        }
        3 => {
            let (asked, task) = Lockstep::new(random, pages);
            (Kind::Lockstep(asked), task)
        }
        4..=5 => {
            let (asked, task) = Filling::new(random, pages);
            (Kind::Filling(asked), task)
        }
        _ => {
            let (asked, task) = Scoring::new(random, pages, mix);
            (Kind::Scoring(asked), task)
        }
    };
    let asked =
        Pending { kind, cancel: cancel.clone(), timeout_s, arrived, number, preemptions: 0, alone: true };
    (asked, Arrival { task, cancels: vec![cancel], timeout_s, place })
}

/// Random tokens: a random part of one of a few stems, then a tail of its own.
pub(super) fn tokens(random: &mut Random, most: usize) -> Vec<u32> {
    let typical = random.of(&[4, 30, 100, 400]);
    let length = 1 + random.below(most.min(typical));
    let (stem, own) = (random.below(3), random.below(1 + length / 2));
    let stemmed = |i: usize| ((i * 7 + stem * (1 + i / 50)) % VOCABULARY) as u32;
    let mut tokens: Vec<u32> = (0..length - own).map(stemmed).collect();
    tokens.extend((0..own).map(|_| random.below(VOCABULARY) as u32));
    tokens
}

/// Kinds of requests in a schedule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    /// Whether all requests are for scores.
    scores: bool,
    /// Whether requests use two different salts.
    salts: bool,
}

impl Mix {
    pub(super) fn new(random: &mut Random) -> Self {
        Self { scores: random.once_in(4), salts: random.once_in(2) }
    }

    pub(super) fn salt(self, random: &mut Random) -> String {
        if self.salts { random.of(&["", "other"]) } else { "" }.to_owned()
    }
}
