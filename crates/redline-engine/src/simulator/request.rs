//! Random requests, and the checks of their answers.

use super::Random;
use super::adapters::Used;
use super::answer::{Checked, Outcome, Work};
use super::filling::Filling;
use super::generation::Generation;
use super::mix::Mix;
use super::oracle::cached::{Stored, fewest_computed, most};
use super::scoring::Scoring;
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::heartbeat::core::Arrival;
use crate::heartbeat::places::Place;
use crate::request::Queueing;

enum Kind {
    Generation(Generation),
    Filling(Filling),
    Scoring(Scoring),
}

/// A request whose answer has not arrived.
pub(super) struct Pending {
    kind: Kind,
    /// Contents and scales of its adapters.
    adapters: Vec<(u64, f32)>,
    /// Bytes of its adapters.
    pub(super) adapter_bytes: u64,
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
    /// The same of the process before.
    pub(super) stored_before: &'a [Stored],
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
            Kind::Generation(request) => request.work(),
            Kind::Filling(request) => request.work(),
            Kind::Scoring(request) => request.work(),
        }
    }

    /// Tokens that it may store for later requests.
    pub(super) fn stored(&self) -> Stored {
        let (salt, sequences, more) = match &self.kind {
            Kind::Generation(request) => request.stored(),
            Kind::Scoring(request) => request.stored(),
            Kind::Filling(_) => (String::new(), Vec::new(), 0),
        };
        Stored { adapters: self.adapters.clone(), salt, sequences, more }
    }

    /// The answer, if it has arrived; an error if it is wrong.
    pub(super) fn hear(&self) -> Result<Option<Checked>, String> {
        match &self.kind {
            Kind::Generation(request) => request.hear(),
            Kind::Filling(request) => request.hear(),
            Kind::Scoring(request) => request.hear(),
        }
    }

    /// How the request ended; an error if it must not end that way now.
    pub(super) fn judge(&self, answer: &Checked, scene: &Scene<'_>) -> Result<End, String> {
        let (cancelled, late) = (self.is_cancelled(), self.is_late(scene.beat));
        let end = match &answer.outcome {
            Outcome::Whole => End::Answered,
            Outcome::Part | Outcome::Failed(EngineError::Cancelled) if cancelled => End::Cancelled,
            Outcome::Part | Outcome::Failed(EngineError::Late { .. }) if late => End::Late,
            Outcome::Failed(error) => return Err(format!("a request failed: {error}")),
            Outcome::Part => return Err("an answer is not finished".into()),
        };
        if end == End::Answered {
            self.check_counts(answer, scene)?;
        }
        Ok(end)
    }

    /// Cached tokens must have been stored under the request's salt with its adapters, and all others must have been run.
    fn check_counts(&self, answer: &Checked, scene: &Scene<'_>) -> Result<(), String> {
        let (cached, computed) = (answer.cached_tokens, scene.computed_tokens);
        let own = self.number as usize;
        let others = scene.stored[..own].iter().chain(&scene.stored[own + 1..]).chain(scene.stored_before);
        let from_others = most(&scene.stored[own], &answer.prompts, others);
        let most: usize = from_others.iter().sum();
        if cached > most {
            return Err(format!(
                "{cached} tokens are reported as cached, and requests of its salt and adapters have {most}"
            ));
        }
        let fewest = fewest_computed(&answer.prompts, &from_others);
        if computed < fewest {
            return Err(format!(
                "{computed} tokens were run, and {fewest} were nowhere under its salt and adapters"
            ));
        }
        let Some(total) = answer.run_or_cached.filter(|_| self.preemptions == scene.preemptions) else {
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

/// A random request that fits `pages` pages.
pub(super) fn ask(
    random: &mut Random,
    (pages, mix): (usize, Mix),
    used: Used,
    place: Place,
    (number, arrived): (u64, u64),
) -> (Pending, Arrival) {
    let mix = mix.with(used.mark);
    let cancel = Cancel::new();
    // Immediate, short and generous limits.
    let timeout_s = match random.below(24) {
        0 => Some(0.0),
        1..=2 => Some(random.below(2000) as f64 * 1e-6),
        3 => Some(1e6),
        _ => None,
    };
    let (kind, task) = match if mix.scores { 9 } else { random.below(9) } {
        0..=3 => {
            let (request, task) = Generation::new(random, pages, mix);
            (Kind::Generation(request), task)
        }
        4..=5 if mix.has_canvases() => {
            let (request, task) = Filling::new(random, pages, mix);
            (Kind::Filling(request), task)
        }
        _ => {
            let (request, task) = Scoring::new(random, pages, mix);
            (Kind::Scoring(request), task)
        }
    };
    let request = Pending {
        kind,
        adapters: used.key,
        adapter_bytes: used.bytes,
        cancel: cancel.clone(),
        timeout_s,
        arrived,
        number,
        preemptions: 0,
        alone: true,
    };
    (
        request,
        Arrival {
            task,
            at: arrived,
            cancels: vec![cancel],
            timeout_s,
            queueing: Queueing::default(),
            place,
            adapters: used.adapters,
            recorder: None,
        },
    )
}
