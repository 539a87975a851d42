//! Generation token by token, for one prompt or for several in lockstep.

use redline_kernels::Simd;

use crate::answer::outcome::{
    BatchOutcome, FinishReason, GenerateOutcome, PositionLogprobs, PrefixCacheCounts, TokenCounts,
    TokenLogprob,
};
use crate::answer::ticket::Reply;
use crate::answer::transcript::Transcript;
use crate::error::EngineError;
use crate::heartbeat::machine::{Logits, LogitsRow};
use crate::heartbeat::task::{Ended, Head, Ran, RowPlace, Task};
use crate::mode::sampler::{self, Sampler};
use crate::request::{PromptLogprobs, Sampling};
use crate::scheduler::{Done, Next, Opening};

/// A checked request.
pub(crate) struct GenerateJob {
    pub(crate) prompt: Vec<u32>,
    pub(crate) max_new_tokens: usize,
    pub(crate) sampling: Sampling,
    pub(crate) end_ids: Vec<u32>,
    pub(crate) logprobs: Option<usize>,
    pub(crate) prompt_logprobs: Option<PromptLogprobs>,
    pub(crate) kv_cache: bool,
    pub(crate) cache_salt: String,
    pub(crate) kernel_path: String,
}

/// Checked prompts that are continued together, greedily.
pub(crate) struct BatchJob {
    pub(crate) prompts: Vec<Vec<u32>>,
    pub(crate) max_new_tokens: usize,
    pub(crate) end_ids: Vec<u32>,
    pub(crate) kernel_path: String,
}

/// A new token.
#[derive(Clone, Debug)]
struct NewToken {
    id: u32,
    ends: bool,
    logprobs: Option<Logprobs>,
}

/// Log-probability of the chosen token, then those of the most probable tokens.
type Logprobs = (f32, Vec<(u32, f32)>);

/// Durations of a finished request, in seconds.
#[derive(Clone, Copy, Debug)]
struct Timing {
    prefill_s: f64,
    decode_s: f64,
}

impl Timing {
    /// Splits the duration; `prefill_s` is the time until the first token was chosen, if any was.
    fn of(ran: &Ran, prefill_s: Option<f64>) -> Self {
        // Without a first token, all the time counts as prefill.
        let prefill_s = prefill_s.unwrap_or(ran.seconds);
        Self { prefill_s, decode_s: ran.seconds - prefill_s }
    }

    /// Decoded tokens per second.
    fn rate(&self, decoded: usize) -> Option<f64> {
        (decoded > 0 && self.decode_s > 0.0).then(|| decoded as f64 / self.decode_s)
    }
}

/// A request that continues one prompt.
pub(crate) struct GenerateTask {
    job: GenerateJob,
    simd: Simd,
    sampler: Sampler,
    transcript: Transcript,
    reply: Reply<GenerateOutcome, String>,
    opened: bool,
    /// The token chosen at the last row, until it is taken.
    chosen: Option<NewToken>,
    tokens: Vec<NewToken>,
    /// Seconds from arrival to the choice of each token.
    token_s: Vec<f64>,
    prompt: Vec<Logprobs>,
    finished: bool,
    /// Whether keys and values are kept for later requests.
    keeps: bool,
    cached_tokens: usize,
}

impl GenerateTask {
    pub(crate) fn new(
        job: GenerateJob,
        simd: Simd,
        transcript: Transcript,
        reply: Reply<GenerateOutcome, String>,
    ) -> Self {
        Self {
            job,
            simd,
            sampler: Sampler::default(),
            transcript,
            reply,
            opened: false,
            chosen: None,
            tokens: Vec::new(),
            token_s: Vec::new(),
            prompt: Vec::new(),
            finished: false,
            keeps: false,
            cached_tokens: 0,
        }
    }

    /// Reports text. Returns whether there is still a receiver.
    fn show(&self, text: &str) -> bool {
        text.is_empty() || self.reply.progress(text.into())
    }

    /// Appends a token. Returns whether to continue.
    fn take(&mut self, token: NewToken) -> Result<bool, EngineError> {
        let (id, ends) = (token.id, token.ends);
        self.tokens.push(token);
        if ends {
            return Ok(false);
        }
        let text = self.transcript.push(id)?.to_owned();
        let read = self.show(&text);
        Ok(read && !self.transcript.stopped() && self.tokens.len() < self.job.max_new_tokens)
    }
}

impl Task for GenerateTask {
    fn salt(&self) -> String {
        self.job.cache_salt.clone()
    }

    fn longest(&self) -> usize {
        self.job.prompt.len() + self.job.max_new_tokens
    }

    fn head(&self) -> Head {
        Head::Vocabulary { normalise: self.job.logprobs.or(self.job.prompt_logprobs.map(|_| 0)).is_some() }
    }

    fn start(&mut self, cached: crate::heartbeat::task::Cached<'_>) {
        self.keeps = self.job.kv_cache && cached(&self.job.cache_salt, &[]).is_some();
    }

    fn open(&mut self) -> Option<Opening> {
        if std::mem::replace(&mut self.opened, true) {
            return None;
        }
        let last = self.job.prompt.len() - 1;
        // A token's log-probability comes from the row before it.
        let wanted =
            self.job.prompt_logprobs.map_or(last, |logprobs| logprobs.from.saturating_sub(1).min(last));
        let (shares, afresh) = (self.keeps, !self.job.kv_cache);
        Some(Opening { tokens: self.job.prompt.clone(), wanted, shares, afresh, ..Opening::default() })
    }

    fn read(&mut self, places: &[RowPlace], logits: Logits<'_>) {
        for (r, place) in places.iter().enumerate() {
            let row = logits.row(r);
            if let (Some(request), Some(&next)) =
                (self.job.prompt_logprobs, self.job.prompt.get(place.position + 1))
            {
                self.prompt.push(logprobs(&row, next, request.top));
                continue;
            }
            let chosen = self.sampler.choose(self.simd, row.logits, &self.job.sampling, place.position + 1);
            self.chosen = chosen.map(|id| NewToken {
                id,
                ends: self.job.end_ids.contains(&id),
                logprobs: self.job.logprobs.map(|n| logprobs(&row, id, n)),
            });
        }
    }

    fn advance(&mut self, done: &[Done], elapsed: f64) -> Result<Vec<(u32, Next)>, EngineError> {
        if self.tokens.is_empty() {
            self.cached_tokens = done.first().map_or(0, |done| done.reused);
        }
        let position = self.job.prompt.len() + self.tokens.len();
        let token =
            self.chosen.take().ok_or_else(|| EngineError::NonFinite(format!("position {position}")))?;
        let id = token.id;
        self.token_s.push(elapsed);
        self.finished = !self.take(token)?;
        Ok(vec![(0, if self.finished { Next::Store } else { Next::Extend(id) })])
    }

    fn finished(&self) -> bool {
        self.finished
    }

    fn answer(mut self: Box<Self>, outcome: Result<Ran, EngineError>) {
        let outcome = outcome.and_then(|ran| self.outcome(&ran));
        self.reply.finish(outcome);
    }
}

impl GenerateTask {
    /// Builds the outcome, and releases the text that was held back.
    fn outcome(&mut self, ran: &Ran) -> Result<GenerateOutcome, EngineError> {
        if ran.ended == Some(Ended::Late) {
            return Err(EngineError::Late { seconds: ran.seconds, tokens: Some(self.tokens.len()) });
        }
        let rest = self.transcript.finish().to_owned();
        self.show(&rest);
        let finish_reason = if self.transcript.stopped() || self.tokens.last().is_some_and(|token| token.ends)
        {
            FinishReason::Stop
        } else if self.tokens.len() < self.job.max_new_tokens {
            FinishReason::Cancelled
        } else {
            FinishReason::Length
        };
        let logprobs = self.job.logprobs.is_some().then(|| self.new_logprobs()).transpose()?;
        let prompt_logprobs =
            self.job.prompt_logprobs.is_some().then(|| self.prompt_logprobs()).transpose()?;
        let timing = Timing::of(ran, self.token_s.first().copied());
        Ok(GenerateOutcome {
            text: self.transcript.take_text(),
            usage: TokenCounts {
                prompt_tokens: self.job.prompt.len(),
                completion_tokens: self.tokens.len(),
                cached_tokens: if self.keeps { self.cached_tokens } else { 0 },
            },
            prefix_cache: self.keeps.then(|| PrefixCacheCounts::of(self.cached_tokens)),
            plan_misses: ran.plan_misses,
            token_ids: self.tokens.iter().map(|token| token.id).collect(),
            prompt_token_ids: std::mem::take(&mut self.job.prompt),
            finish_reason,
            logprobs,
            prompt_logprobs,
            queue_s: ran.queue_s,
            prefill_s: timing.prefill_s,
            decode_s: timing.decode_s,
            decode_tokens_per_s: timing.rate(self.tokens.len().saturating_sub(1)),
            token_s: std::mem::take(&mut self.token_s),
            arrived_s: ran.arrived_s,
            peak_memory_bytes: ran.peak_memory_bytes,
            kernel_path: std::mem::take(&mut self.job.kernel_path),
        })
    }

    /// Log-probabilities of the new tokens.
    fn new_logprobs(&self) -> Result<Vec<PositionLogprobs>, EngineError> {
        let none = (0.0, Vec::new());
        let of = |token: &NewToken| self.named(token.id, token.logprobs.as_ref().unwrap_or(&none));
        self.tokens.iter().map(of).collect()
    }

    /// Log-probabilities of the prompt's tokens; `None` before the first requested position, and after the last one that was run.
    fn prompt_logprobs(&self) -> Result<Vec<Option<PositionLogprobs>>, EngineError> {
        let prompt = &self.job.prompt;
        let first = self.job.prompt_logprobs.map_or(0, |logprobs| logprobs.from).clamp(1, prompt.len());
        let named = prompt[first..].iter().zip(&self.prompt);
        let named = named.map(|(&id, logprobs)| self.named(id, logprobs).map(Some));
        let none = || std::iter::repeat_with(|| Ok(None));
        none().take(first).chain(named).chain(none()).take(prompt.len()).collect()
    }

    /// Adds the text of the tokens to log-probabilities.
    fn named(&self, id: u32, (own, top): &Logprobs) -> Result<PositionLogprobs, EngineError> {
        let named = |id: u32, logprob: f32| {
            let text = self.transcript.text_of(id)?;
            Ok::<_, EngineError>(TokenLogprob { id, text, logprob })
        };
        let top = top.iter().map(|&(id, logprob)| named(id, logprob)).collect::<Result<_, _>>()?;
        Ok(PositionLogprobs { chosen: named(id, *own)?, top })
    }
}

/// A request that continues several prompts, one pass per token. Each sequence waits until all have been run.
pub(crate) struct BatchTask {
    job: BatchJob,
    reply: Reply<BatchOutcome>,
    opened: usize,
    /// Whether each prompt has been run.
    filled: Vec<bool>,
    chosen: Vec<Option<u32>>,
    new: Vec<Vec<u32>>,
    open: usize,
    prefill_s: Option<f64>,
}

impl BatchTask {
    pub(crate) fn new(job: BatchJob, reply: Reply<BatchOutcome>) -> Self {
        let count = job.prompts.len();
        Self {
            reply,
            opened: 0,
            filled: vec![false; count],
            chosen: vec![None; count],
            new: vec![Vec::new(); count],
            open: count,
            prefill_s: None,
            job,
        }
    }

    /// Appends the token that was chosen for a sequence.
    fn take(&mut self, index: usize) -> Result<Next, EngineError> {
        let position = self.job.prompts[index].len() + self.new[index].len();
        let place = || format!("position {position} of sequence {index}");
        let id = self.chosen[index].take().ok_or_else(|| EngineError::NonFinite(place()))?;
        self.new[index].push(id);
        let more = self.new[index].len() < self.job.max_new_tokens && !self.job.end_ids.contains(&id);
        self.open -= usize::from(!more);
        Ok(if more { Next::Extend(id) } else { Next::Drop })
    }
}

impl Task for BatchTask {
    fn longest(&self) -> usize {
        self.job.prompts.iter().map(Vec::len).max().unwrap_or(0) + self.job.max_new_tokens
    }

    fn head(&self) -> Head {
        Head::Vocabulary { normalise: false }
    }

    fn open(&mut self) -> Option<Opening> {
        let prompt = self.job.prompts.get(self.opened)?;
        self.opened += 1;
        Some(Opening { wanted: prompt.len() - 1, tokens: prompt.clone(), ..Opening::default() })
    }

    fn read(&mut self, places: &[RowPlace], logits: Logits<'_>) {
        for (r, place) in places.iter().enumerate() {
            self.chosen[place.index as usize] = sampler::greedy(logits.row(r).logits);
        }
    }

    fn advance(&mut self, done: &[Done], elapsed: f64) -> Result<Vec<(u32, Next)>, EngineError> {
        let mut ready: Vec<usize> = done.iter().map(|done| done.index as usize).collect();
        if self.prefill_s.is_none() {
            for &index in &ready {
                self.filled[index] = true;
            }
            if !self.filled.iter().all(|filled| *filled) {
                return Ok(Vec::new());
            }
            self.prefill_s = Some(elapsed);
            ready = (0..self.filled.len()).collect();
        }
        ready.into_iter().map(|index| Ok((index as u32, self.take(index)?))).collect()
    }

    fn finished(&self) -> bool {
        self.open == 0
    }

    fn answer(self: Box<Self>, outcome: Result<Ran, EngineError>) {
        let Self { job, reply, new, prefill_s, .. } = *self;
        reply.finish(outcome.map(|ran| {
            let timing = Timing::of(&ran, prefill_s);
            let decoded = new.iter().map(|ids| ids.len().saturating_sub(1)).sum();
            BatchOutcome {
                usage: TokenCounts {
                    prompt_tokens: job.prompts.iter().map(Vec::len).sum(),
                    completion_tokens: new.iter().map(Vec::len).sum(),
                    cached_tokens: 0,
                },
                token_ids: new,
                prefill_s: timing.prefill_s,
                decode_s: timing.decode_s,
                decode_tokens_per_s: timing.rate(decoded),
                peak_memory_bytes: ran.peak_memory_bytes,
                kernel_path: job.kernel_path,
            }
        }));
    }
}

/// A token's log-probability and the `n` highest, ties by lower id.
fn logprobs(row: &LogitsRow<'_>, id: u32, n: usize) -> Logprobs {
    let logprob = |i: u32| (f64::from(row.logits[i as usize]) - row.log_sum_exp) as f32;
    let mut order: Vec<u32> = (0..row.logits.len() as u32).collect();
    let by_logit =
        |a: &u32, b: &u32| row.logits[*b as usize].total_cmp(&row.logits[*a as usize]).then(a.cmp(b));
    if n > 0 && n < order.len() {
        order.select_nth_unstable_by(n - 1, by_logit);
    }
    order.truncate(n);
    order.sort_unstable_by(by_logit);
    (logprob(id), order.into_iter().map(|i| (i, logprob(i))).collect())
}

#[cfg(test)]
mod tests {
    use redline_kernels::{Exec, Rows, Team};

    use super::*;
    use crate::answer::ticket::GenerateTicket;

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

    #[test]
    fn log_probabilities_are_logits_less_the_log_sum_exp() {
        let row = LogitsRow { logits: &[1.0, 3.0, 2.0], log_sum_exp: 3.5 };
        assert_eq!(logprobs(&row, 2, 2), (-1.5, vec![(1, -0.5), (2, -1.5)]));
    }

    #[test]
    fn a_token_is_drawn_with_the_random_number_of_its_own_position() {
        let team = Team::new(1).unwrap();
        let exec = Exec { simd: Simd::best(), team: &team };
        let sampling = Sampling { temperature: 1.0, seed: 5, ..Sampling::default() };
        let job = GenerateJob {
            prompt: vec![1],
            max_new_tokens: 100,
            sampling,
            end_ids: Vec::new(),
            logprobs: None,
            prompt_logprobs: None,
            kv_cache: true,
            cache_salt: String::new(),
            kernel_path: String::new(),
        };
        let transcript = Transcript::new(None, Vec::new());
        let mut task = GenerateTask::new(job, exec.simd, transcript, GenerateTicket::new().1);
        let logits = [0.0; 50];
        for position in 0..20 {
            let rows = Rows::new(&logits, 1, 50, 50);
            task.read(&[RowPlace { index: 0, position }], Logits { exec, rows, log_sum_exp: &[0.0] });
            let chosen = task.chosen.take().map(|token| token.id);
            let expected = Sampler::default().choose(exec.simd, &logits, &sampling, position + 1);
            assert_eq!(chosen, expected, "after position {position}");
        }
    }

    #[test]
    fn seconds_are_parted_at_the_first_token() {
        let ran = Ran {
            arrived_s: 1.0,
            queue_s: 0.5,
            seconds: 5.0,
            sampling_s: 0.0,
            computed_tokens: 9,
            plan_misses: 0,
            peak_memory_bytes: None,
            ended: None,
        };
        let timing = Timing::of(&ran, Some(2.0));
        assert_eq!((timing.prefill_s, timing.decode_s), (2.0, 3.0));
        assert_eq!((timing.rate(6), timing.rate(0)), (Some(2.0), None));
        let cut = Timing::of(&ran, None);
        assert_eq!((cut.prefill_s, cut.decode_s, cut.rate(6)), (5.0, 0.0, None));
    }

    /// A prompt that is longer than a pass may have been run in part.
    #[test]
    fn log_probabilities_of_a_prompt_that_was_cut_short_stay_at_their_places() {
        let team = Team::new(1).unwrap();
        let exec = Exec { simd: Simd::best(), team: &team };
        let job = GenerateJob {
            prompt: vec![5, 6, 7, 8],
            max_new_tokens: 1,
            sampling: Sampling::default(),
            end_ids: Vec::new(),
            logprobs: None,
            prompt_logprobs: Some(PromptLogprobs { from: 2, top: 0 }),
            kv_cache: true,
            cache_salt: String::new(),
            kernel_path: String::new(),
        };
        let (ticket, reply) = GenerateTicket::new();
        let mut task = GenerateTask::new(job, exec.simd, Transcript::new(None, Vec::new()), reply);
        let logits = [0.0; 10];
        let rows = Rows::new(&logits, 1, 10, 10);
        task.read(&[RowPlace { index: 0, position: 1 }], Logits { exec, rows, log_sum_exp: &[2.0] });
        let ran = Ran {
            arrived_s: 0.0,
            queue_s: 0.0,
            seconds: 1.0,
            sampling_s: 0.0,
            computed_tokens: 2,
            plan_misses: 0,
            peak_memory_bytes: None,
            ended: Some(Ended::Cancelled),
        };
        Box::new(task).answer(Ok(ran));
        let told = ticket.wait().unwrap().prompt_logprobs.unwrap();
        let ids: Vec<Option<u32>> =
            told.iter().map(|position| position.as_ref().map(|told| told.chosen.id)).collect();
        assert_eq!(ids, [None, None, Some(7), None]);
    }
}
