//! One continuation of a prompt, while it grows.

use std::collections::VecDeque;
use std::ops::Range;

use redline_kernels::Simd;

use super::GenerateJob;
use super::guide::{Allowed, Constraint, Drafter};
use crate::answer::outcome::{Continuation, FinishReason, PositionLogprobs, TokenLogprob};
use crate::answer::transcript::Transcript;
use crate::error::EngineError;
use crate::mode::sampler::{LogitsProcessor, Sampler, greedy, seed_of};
use crate::request::Sampling;
use crate::task::logits::{Logits, LogitsRow};

/// Log-probability of the chosen token, then those of the most probable tokens.
pub(super) type Logprobs = (f32, Vec<(u32, f32)>);

/// A new token.
#[derive(Clone, Debug)]
struct NewToken {
    id: u32,
    /// Whether it is an end token, which has no text.
    ends: bool,
    /// Whether the constraint is met with it, and nothing may follow.
    completes: bool,
    logprobs: Option<Logprobs>,
    masked_mass: Option<f32>,
}

/// A token that was appended.
pub(super) struct Taken {
    pub(super) id: u32,
    /// The text that has become final.
    pub(super) text: String,
    /// Why the continuation ends with this token; `None` if it goes on.
    pub(super) ended: Option<FinishReason>,
}

/// A continuation of a prompt.
pub(super) struct Branch {
    /// The parameters of the request, with a seed of its own.
    sampling: Sampling,
    processor: LogitsProcessor,
    transcript: Transcript,
    drafter: Option<Box<dyn Drafter>>,
    constraint: Option<Box<dyn Constraint>>,
    /// Drafts of the tokens after the last one.
    drafts: Vec<u32>,
    /// Its rows among those that are read now, and the position of the token after the first.
    rows: Range<usize>,
    first: usize,
    /// The tokens chosen at the last rows, until they are taken; all but the last one are drafts that were right.
    chosen: VecDeque<NewToken>,
    /// Whether no token is allowed after those.
    dead_end: bool,
    tokens: Vec<NewToken>,
    /// Seconds from arrival to the choice of each token.
    token_s: Vec<f64>,
    /// Why it ended, once it has.
    ended: Option<FinishReason>,
}

impl Branch {
    /// Continuation number `index` of a request.
    pub(super) fn new(
        job: &GenerateJob,
        index: usize,
        processor: LogitsProcessor,
        transcript: Transcript,
    ) -> Self {
        Self {
            sampling: Sampling { seed: seed_of(job.sampling.seed, index), ..job.sampling },
            processor,
            transcript,
            drafter: None,
            constraint: None,
            drafts: Vec::new(),
            rows: 0..0,
            first: 0,
            chosen: VecDeque::new(),
            dead_end: false,
            tokens: Vec::new(),
            token_s: Vec::new(),
            ended: None,
        }
    }

    /// Sets what guesses its tokens.
    pub(super) fn set_drafter(&mut self, mut drafter: Box<dyn Drafter>, prompt: &[u32]) {
        drafter.push(prompt);
        self.drafter = Some(drafter);
    }

    /// Sets what restricts its tokens.
    pub(super) fn set_constraint(&mut self, constraint: Box<dyn Constraint>) {
        self.constraint = Some(constraint);
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The tokens.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.tokens.iter().map(|token| token.id)
    }

    /// Seconds from arrival to the choice of the first token.
    pub(super) fn first_token_s(&self) -> Option<f64> {
        self.token_s.first().copied()
    }

    /// Row `row` of those that are read now is its row at `position`. Its rows follow each other.
    pub(super) fn reads(&mut self, row: usize, position: usize) {
        if self.rows.is_empty() {
            (self.rows, self.first) = (row..row, position + 1);
        }
        self.rows.end = row + 1;
    }

    /// Whether it has rows among those that are read now.
    pub(super) fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Chooses tokens from its rows among those that are read now.
    pub(super) fn choose(
        &mut self,
        job: &GenerateJob,
        simd: Simd,
        sampler: &mut Sampler,
        logits: &Logits<'_>,
    ) {
        let rows = std::mem::take(&mut self.rows);
        for (row, position) in rows.zip(self.first..) {
            self.choose_one(job, simd, sampler, &logits.row(row), position);
        }
    }

    /// Chooses the token at `position` from the logits of the row before it, unless that row is the row of a draft that was wrong, or of
    /// one after the end.
    fn choose_one(
        &mut self,
        job: &GenerateJob,
        simd: Simd,
        sampler: &mut Sampler,
        row: &LogitsRow<'_>,
        position: usize,
    ) {
        let before = self.chosen.len();
        let is_draft =
            |last: &NewToken| !last.ends && !last.completes && self.drafts.get(before - 1) == Some(&last.id);
        let is_next = position == job.prompt.len() + self.tokens.len() + before;
        if !is_next || !self.chosen.back().is_none_or(is_draft) {
            return;
        }
        let (processor, sampling) = (&self.processor, &self.sampling);
        let mut choose = |allowed: Allowed<'_>| {
            sampler.process_and_choose(simd, (processor, allowed), row.logits, sampling, position)
        };
        let chosen = match &mut self.constraint {
            None => choose(Allowed::All),
            Some(constraint) => {
                // The most probable token of all is that of the allowed ones, if it is allowed: no mask is needed.
                let best = if sampling.temperature == 0.0 { choose(Allowed::All) } else { None };
                let best = best.filter(|id| constraint.accepts(*id));
                best.or_else(|| choose(constraint.allowed()))
            }
        };
        let Some(id) = chosen else {
            self.dead_end = self.constraint.is_some() && greedy(row.logits).is_some();
            return;
        };
        self.processor.push(id);
        let mut masked_mass = None;
        if let Some(constraint) = &mut self.constraint {
            masked_mass = job.logprobs.map(|_| constraint.allowed().masked_mass(row));
            constraint.push(id);
        }
        self.chosen.push_back(NewToken {
            id,
            ends: job.end_ids.contains(&id),
            completes: self.constraint.as_ref().is_some_and(|constraint| constraint.is_complete()),
            logprobs: job.own_logprobs().then(|| logprobs(row, id, job.logprobs.unwrap_or(0))),
            masked_mass,
        });
    }

    /// Whether a chosen token has not been taken.
    pub(super) fn has_chosen(&self) -> bool {
        !self.chosen.is_empty()
    }

    /// Drafts of the next tokens: no more than could be generated, and none that is no token.
    pub(super) fn draft(&mut self, job: &GenerateJob, vocab: usize) -> Vec<u32> {
        let Some(drafter) = &mut self.drafter else { return Vec::new() };
        // The last draft comes before the last token.
        let most = job.max_new_tokens.saturating_sub(self.tokens.len() + 1);
        self.drafts = if most > 0 { drafter.draft(most) } else { Vec::new() };
        let tokens = self.drafts.iter().take(most).take_while(|id| (**id as usize) < vocab).count();
        self.drafts.truncate(tokens);
        self.drafts.clone()
    }

    /// Appends the first token that was chosen; `elapsed` seconds have passed since the request arrived.
    pub(super) fn take(&mut self, job: &GenerateJob, elapsed: f64) -> Result<Taken, EngineError> {
        let Some(token) = self.chosen.pop_front() else {
            let position = job.prompt.len() + self.tokens.len();
            let place = format!("position {position}");
            return Err(if self.dead_end {
                let failure = self.constraint.as_ref().and_then(|constraint| constraint.failure());
                let reason = failure.map_or_else(String::new, |failure| format!(": {failure}"));
                let hint = "the constraint on the answer cannot be met from there";
                EngineError::request(format!("no token is allowed at {place}{reason}"), hint)
            } else {
                EngineError::NonFinite(place)
            });
        };
        let (id, ends, completes) = (token.id, token.ends, token.completes);
        self.token_s.push(elapsed);
        self.tokens.push(token);
        if let Some(drafter) = &mut self.drafter {
            drafter.push(&[id]);
        }
        let mut text = if ends { String::new() } else { self.transcript.push(id)?.to_owned() };
        let ended = if ends || completes || self.transcript.stopped() {
            Some(FinishReason::Stop)
        } else {
            (self.tokens.len() == job.max_new_tokens).then_some(FinishReason::Length)
        };
        if let Some(reason) = ended {
            text.push_str(&self.end(reason));
        }
        Ok(Taken { id, text, ended })
    }

    /// Cuts the continuation short, unless it has ended. Returns the text that was held back.
    pub(super) fn cut(&mut self) -> Option<String> {
        self.ended.is_none().then(|| self.end(FinishReason::Cancelled))
    }

    /// Ends the continuation. Returns the text that was held back.
    fn end(&mut self, reason: FinishReason) -> String {
        self.ended = Some(reason);
        self.transcript.finish().to_owned()
    }

    /// The continuation, which has ended.
    pub(super) fn finish(&mut self, job: &GenerateJob) -> Result<Continuation, EngineError> {
        Ok(Continuation {
            text: self.transcript.take_text(),
            token_ids: self.ids().collect(),
            finish_reason: self.ended.unwrap_or(FinishReason::Cancelled),
            logprobs: job.logprobs.is_some().then(|| self.logprobs()).transpose()?,
            token_s: std::mem::take(&mut self.token_s),
            seed: self.sampling.seed,
            mean_logprob: if job.ranks() { self.mean_logprob() } else { None },
        })
    }

    /// Mean log-probability of the tokens, summed in their order; `None` without tokens.
    fn mean_logprob(&self) -> Option<f64> {
        let own = self.tokens.iter().filter_map(|token| token.logprobs.as_ref());
        let sum: f64 = own.map(|(own, _)| f64::from(*own)).sum();
        (!self.tokens.is_empty()).then(|| sum / self.tokens.len() as f64)
    }

    /// Log-probabilities of the tokens.
    fn logprobs(&self) -> Result<Vec<PositionLogprobs>, EngineError> {
        self.tokens.iter().map(|token| self.logprobs_of(token)).collect()
    }

    /// Log-probabilities of the last token.
    pub(super) fn last_logprobs(&self) -> Result<Option<PositionLogprobs>, EngineError> {
        self.tokens.last().map(|token| self.logprobs_of(token)).transpose()
    }

    fn logprobs_of(&self, token: &NewToken) -> Result<PositionLogprobs, EngineError> {
        let none = (0.0, Vec::new());
        let named = self.named(token.id, token.logprobs.as_ref().unwrap_or(&none))?;
        Ok(PositionLogprobs { masked_mass: token.masked_mass, ..named })
    }

    /// Adds the text of the tokens to log-probabilities.
    pub(super) fn named(&self, id: u32, (own, top): &Logprobs) -> Result<PositionLogprobs, EngineError> {
        let named = |id: u32, logprob: f32| {
            let text = self.transcript.text_of(id)?;
            Ok::<_, EngineError>(TokenLogprob { id, text, logprob })
        };
        let top = top.iter().map(|&(id, logprob)| named(id, logprob)).collect::<Result<_, _>>()?;
        Ok(PositionLogprobs { chosen: named(id, *own)?, top, masked_mass: None })
    }
}

/// A token's log-probability and the `n` highest, ties by lower id.
pub(super) fn logprobs(row: &LogitsRow<'_>, id: u32, n: usize) -> Logprobs {
    let logprob = |i: u32| (f64::from(row.logits[i as usize]) - row.log_sum_exp) as f32;
    let highest = if n <= SHORT_LIST { few_highest(row.logits, n) } else { highest(row.logits, n) };
    (logprob(id), highest.into_iter().map(|i| (i, logprob(i))).collect())
}

/// Number of tokens that are found in one scan of the logits, with a short list of the highest so far.
const SHORT_LIST: usize = 32;

/// The ids of the `n` highest logits in descending order, ties by lower id.
fn few_highest(logits: &[f32], n: usize) -> Vec<u32> {
    let n = n.min(logits.len());
    let mut highest: Vec<u32> = Vec::with_capacity(n + 1);
    let logit = |id: &u32| logits[*id as usize];
    for (id, value) in (0..).zip(logits) {
        // Ids come in ascending order, so an equal one ranks lower.
        let stays_above = |other: &u32| logit(other).total_cmp(value).is_ge();
        if highest.len() == n && highest.last().is_none_or(stays_above) {
            continue;
        }
        highest.insert(highest.partition_point(stays_above), id);
        highest.truncate(n);
    }
    highest
}

/// As [`few_highest`], for any number.
fn highest(logits: &[f32], n: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let by_logit = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    if n > 0 && n < order.len() {
        order.select_nth_unstable_by(n - 1, by_logit);
    }
    order.truncate(n);
    order.sort_unstable_by(by_logit);
    order
}

#[cfg(test)]
impl Branch {
    /// Takes the ids of the chosen tokens.
    pub(super) fn chosen_ids(&mut self) -> Vec<u32> {
        self.chosen.drain(..).map(|token| token.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top(logits: &[f32], n: usize) -> Vec<u32> {
        let row = LogitsRow { logits, log_sum_exp: 0.0 };
        logprobs(&row, 0, n).1.into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn of_equally_probable_tokens_the_lowest_ids_are_told_in_order() {
        assert_eq!(top(&[1.0, 3.0, 3.0, 3.0, 2.0, 3.0], 3), [1, 2, 3]);
        assert_eq!(top(&[1.0, 3.0, 2.0, 3.0, 2.0, 2.0], 4), [1, 3, 2, 4]);
        assert_eq!(top(&[0.5; 1000], 5), [0, 1, 2, 3, 4]);
        let mut logits = [0.5; 1000];
        (logits[700], logits[300]) = (2.0, 2.0);
        assert_eq!(top(&logits, 4), [300, 700, 0, 1]);
        assert_eq!(top(&[2.0, 2.0, 5.0], 9), [2, 0, 1]);
        assert!(top(&[2.0, 2.0], 0).is_empty());
    }

    /// A scan with a short list finds what sorting finds, with equal logits and infinities among them.
    #[test]
    fn a_few_highest_logits_are_those_that_sorting_finds() {
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let values = [0.0, -0.0, 1.5, f32::NEG_INFINITY, f32::INFINITY, -2.0, 3.0];
        for round in 0..2000 {
            let (len, kinds) = (next(70) as usize, 1 + round % values.len() as u64);
            let logits: Vec<f32> = (0..len).map(|_| values[next(kinds) as usize]).collect();
            let n = next(1 + SHORT_LIST as u64) as usize;
            assert_eq!(few_highest(&logits, n), highest(&logits, n), "{n} of {logits:?}");
        }
    }

    #[test]
    fn log_probabilities_are_logits_less_the_log_sum_exp() {
        let row = LogitsRow { logits: &[1.0, 3.0, 2.0], log_sum_exp: 3.5 };
        assert_eq!(logprobs(&row, 2, 2), (-1.5, vec![(1, -0.5), (2, -1.5)]));
    }
}
