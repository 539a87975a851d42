//! Generation token by token: one or several continuations of one prompt.

mod branch;
pub(crate) mod guide;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use redline_kernels::Simd;

use self::branch::{Branch, Logprobs, Taken, logprobs};
use self::guide::Guides;
use crate::answer::outcome::{
    Continuation, FinishReason, GenerateOutcome, GeneratedPiece, PositionLogprobs, PrefixCacheCounts,
    ReportedPrompt, TokenCounts,
};
use crate::answer::ticket::Reply;
use crate::answer::transcript::Transcript;
use crate::error::EngineError;
use crate::gauges::Progress;
use crate::mode::sampler::{LogitsProcessor, Sampler};
use crate::request::{Penalties, PromptLogprobs, Sampling};
use crate::task::logits::Logits;
use crate::task::sequence::{Done, Next, Opening};
use crate::task::{Ended, Ran, RowOutput, RowPlace, Task};

/// A checked request.
pub(crate) struct GenerateJob {
    pub(crate) prompt: Vec<u32>,
    pub(crate) max_new_tokens: usize,
    pub(crate) sampling: Sampling,
    pub(crate) penalties: Penalties,
    /// Token ids with their bias; no id occurs twice.
    pub(crate) logit_bias: Vec<(u32, f32)>,
    /// Number of continuations to return.
    pub(crate) n: usize,
    /// Number of continuations to generate, at least `n`.
    pub(crate) continuations: usize,
    pub(crate) end_ids: Vec<u32>,
    pub(crate) logprobs: Option<usize>,
    pub(crate) prompt_logprobs: Option<PromptLogprobs>,
    pub(crate) kv_cache: bool,
    pub(crate) cache_salt: String,
    pub(crate) kernel_path: String,
}

impl GenerateJob {
    /// Whether continuations are ranked by their log-probabilities.
    fn ranks(&self) -> bool {
        self.continuations > self.n
    }

    /// Whether the log-probabilities of new tokens are needed.
    fn own_logprobs(&self) -> bool {
        self.logprobs.is_some() || self.ranks()
    }
}

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
///
/// A single continuation grows the sequence of its prompt. Of several, each has a sequence of its own, which begins with the stored
/// keys and values of the prompt: sequence 0, held until all have ended. Their first tokens are drawn from the same row.
pub(crate) struct GenerateTask {
    job: GenerateJob,
    simd: Simd,
    /// One for each thread.
    samplers: Vec<Mutex<Sampler>>,
    reply: Reply<GenerateOutcome, GeneratedPiece>,
    /// The continuations, in the order of their seeds; at least one.
    branches: Vec<Branch>,
    /// Number of continuations that have not ended.
    growing: usize,
    /// Number of tokens of the vocabulary, once logits have been read.
    vocab: usize,
    /// Whether the sequence of the prompt was opened, and whether it has been run.
    opened: bool,
    prefilled: bool,
    /// Of several continuations: those whose sequences are not open yet, and the one of each sequence from 1 on.
    unopened: VecDeque<usize>,
    branch_of: Vec<usize>,
    prompt: Vec<Logprobs>,
    /// Whether keys and values are kept for later requests.
    keeps: bool,
    cached_tokens: usize,
}

impl GenerateTask {
    /// `transcript` is that of every continuation before its first token.
    pub(crate) fn new(
        job: GenerateJob,
        simd: Simd,
        transcript: Transcript,
        reply: Reply<GenerateOutcome, GeneratedPiece>,
    ) -> Self {
        let processor =
            LogitsProcessor::new(job.penalties, &job.logit_bias, &job.prompt).ending_with(&job.end_ids);
        let branch = |index| Branch::new(&job, index, processor.clone(), transcript.clone());
        Self {
            branches: (0..job.continuations).map(branch).collect(),
            growing: job.continuations,
            vocab: 0,
            job,
            simd,
            samplers: Vec::new(),
            reply,
            opened: false,
            prefilled: false,
            unopened: VecDeque::new(),
            branch_of: Vec::new(),
            prompt: Vec::new(),
            keeps: false,
            cached_tokens: 0,
        }
    }

    /// Drafts and restricts the tokens of each continuation.
    pub(crate) fn guided(mut self, guides: Guides<'_>) -> Self {
        for (index, branch) in self.branches.iter_mut().enumerate() {
            // Without keys and values from pass to pass, every draft would cost a pass.
            if let Some(drafter) = guides.drafter.filter(|_| self.job.kv_cache) {
                branch.set_drafter(drafter(index), &self.job.prompt);
            }
            if let Some(constraint) = guides.constraint {
                branch.set_constraint(constraint(index));
            }
        }
        self
    }

    /// Whether there is one continuation.
    fn single(&self) -> bool {
        self.branches.len() == 1
    }

    /// The continuation of a sequence; `None` for the prompt of several.
    fn branch(&self, sequence: u32) -> Option<usize> {
        if self.single() {
            return Some(0);
        }
        self.branch_of.get((sequence as usize).checked_sub(1)?).copied()
    }

    /// Appends the tokens that were chosen for a continuation. Returns how many of its drafts were right, and what comes next.
    fn take(&mut self, index: usize, elapsed: f64) -> Result<(usize, Next), EngineError> {
        let mut right = 0;
        loop {
            let (token, goes_on) = self.take_one(index, elapsed)?;
            if !goes_on {
                self.growing -= 1;
                return Ok((right, Next::Store));
            }
            let branch = &mut self.branches[index];
            if !branch.has_chosen() {
                return Ok((right, Next::Extend { token, drafts: branch.draft(&self.job, self.vocab) }));
            }
            right += 1;
        }
    }

    /// Appends a token that was chosen for a continuation, and reports it. Returns it, and whether the continuation goes on. One whose
    /// request has lost its receiver ends.
    fn take_one(&mut self, index: usize, elapsed: f64) -> Result<(u32, bool), EngineError> {
        let branch = &mut self.branches[index];
        let Taken { id, text, ended } = branch.take(&self.job, elapsed)?;
        let branch = &self.branches[index];
        // Of more continuations than are returned, nobody knows yet which.
        let heard = self.job.ranks()
            || self.reply.progress_of(|| {
                let logprobs = if self.job.logprobs.is_some() { branch.last_logprobs()? } else { None };
                let is_first = index == 0 && branch.len() == 1;
                let prompt = if is_first { Some(Box::new(self.reported_prompt()?)) } else { None };
                let (continuation, token_id) = (index, Some(id));
                Ok::<_, EngineError>(GeneratedPiece {
                    continuation,
                    token_id,
                    text,
                    logprobs,
                    finish_reason: ended,
                    prompt,
                })
            })?;
        Ok((id, heard && ended.is_none()))
    }

    /// Cuts short the continuations that have not ended, and reports that.
    fn cut(&mut self) {
        for (continuation, branch) in self.branches.iter_mut().enumerate() {
            let Some(text) = branch.cut().filter(|_| !self.job.ranks()) else { continue };
            let finish_reason = Some(FinishReason::Cancelled);
            self.reply.progress(GeneratedPiece {
                continuation,
                token_id: None,
                text,
                logprobs: None,
                finish_reason,
                prompt: None,
            });
        }
    }

    /// Called when the prompt of several continuations was run.
    fn after_prompt(&mut self, first_time: bool, elapsed: f64) -> Result<Next, EngineError> {
        if first_time {
            for branch in 0..self.branches.len() {
                if let (_, Next::Extend { .. }) = self.take(branch, elapsed)? {
                    self.unopened.push_back(branch);
                }
            }
        }
        Ok(if self.job.kv_cache { Next::Hold } else { Next::Drop })
    }

    /// The first position of the prompt whose logits are wanted.
    fn first_wanted(&self) -> usize {
        let last = self.job.prompt.len() - 1;
        // A token's log-probability comes from the row before it.
        self.job.prompt_logprobs.map_or(last, |logprobs| logprobs.from.saturating_sub(1).min(last))
    }

    fn open_prompt(&self) -> Opening {
        let wanted = self.first_wanted();
        let (shares, afresh) = (self.keeps, !self.job.kv_cache);
        Opening { tokens: self.job.prompt.clone(), wanted, shares, afresh, ..Opening::default() }
    }

    fn open_branch(&mut self, branch: usize) -> Opening {
        self.branch_of.push(branch);
        let wanted = self.job.prompt.len();
        let tokens = self.job.prompt.iter().copied().chain(self.branches[branch].ids()).collect();
        let parent = self.job.kv_cache.then_some((0, wanted));
        let (rank, shares, afresh) = (1 + branch as u32, self.keeps, !self.job.kv_cache);
        Opening { tokens, wanted, rank, parent, shares, afresh, ..Opening::default() }
    }
}

impl Task for GenerateTask {
    fn salt(&self) -> String {
        self.job.cache_salt.clone()
    }

    fn longest(&self) -> usize {
        self.job.prompt.len() + self.job.max_new_tokens
    }

    fn prompts(&self, _most: usize) -> Vec<Vec<u32>> {
        if !self.job.kv_cache {
            return Vec::new();
        }
        vec![self.job.prompt[..=self.first_wanted()].to_vec()]
    }

    fn output(&self) -> RowOutput<()> {
        RowOutput::Vocabulary
    }

    fn normalises(&self) -> bool {
        self.job.own_logprobs() || self.job.prompt_logprobs.is_some()
    }

    fn start(&mut self, cached: crate::task::Cached<'_>) {
        self.keeps = self.job.kv_cache && cached(&self.job.cache_salt, &[]).is_some();
    }

    fn open(&mut self) -> Option<Opening> {
        if !std::mem::replace(&mut self.opened, true) {
            return Some(self.open_prompt());
        }
        let branch = self.unopened.pop_front()?;
        Some(self.open_branch(branch))
    }

    fn read(&mut self, places: &[RowPlace], logits: Logits<'_>) {
        self.vocab = logits.rows.width();
        for (r, place) in places.iter().enumerate() {
            if let (Some(request), Some(&next)) =
                (self.job.prompt_logprobs, self.job.prompt.get(place.position + 1))
            {
                self.prompt.push(logprobs(&logits.row(r), next, request.top));
                continue;
            }
            let own = self.branch(place.index).map_or(0..self.branches.len(), |branch| branch..branch + 1);
            for branch in &mut self.branches[own] {
                branch.reads(r, place.position);
            }
        }
        self.samplers.resize_with(self.samplers.len().max(logits.exec.team.size()), Mutex::default);
        let (job, simd, samplers) = (&self.job, self.simd, &self.samplers);
        let choosing: Vec<_> = self.branches.iter_mut().filter(|branch| branch.has_rows()).collect();
        logits.divide(choosing.into_iter(), |thread, logits, branch| {
            let mut sampler = samplers[thread].lock().unwrap_or_else(PoisonError::into_inner);
            branch.choose(job, simd, &mut sampler, &logits);
        });
    }

    fn advance(&mut self, done: &[Done], elapsed: f64) -> Result<Vec<(u32, Next)>, EngineError> {
        let mut updates = Vec::with_capacity(done.len());
        for done in done {
            let first_time = !std::mem::replace(&mut self.prefilled, true);
            if first_time {
                self.cached_tokens = done.reused;
            }
            let (right, next) = match self.branch(done.index) {
                Some(branch) => self.take(branch, elapsed)?,
                None => (0, self.after_prompt(first_time, elapsed)?),
            };
            if right > 0 {
                updates.push((done.index, Next::Accept(right)));
            }
            updates.push((done.index, next));
        }
        Ok(updates)
    }

    fn progress(&self) -> Progress {
        let read = if self.prefilled { self.job.prompt.len() } else { 0 };
        Progress {
            prompt_tokens: read,
            cached_tokens: if self.keeps { self.cached_tokens } else { 0 },
            generated_tokens: self.branches.iter().map(Branch::len).sum(),
            items: 0,
        }
    }

    fn finished(&self) -> bool {
        self.growing == 0
    }

    fn answer(mut self: Box<Self>, outcome: Result<Ran, EngineError>) {
        let outcome = outcome.and_then(|ran| self.outcome(&ran));
        self.reply.finish(outcome);
    }
}

impl GenerateTask {
    /// Builds the outcome.
    fn outcome(&mut self, ran: &Ran) -> Result<GenerateOutcome, EngineError> {
        let completion_tokens = self.branches.iter().map(Branch::len).sum();
        if ran.ended == Some(Ended::Late) {
            return Err(EngineError::Late { seconds: ran.seconds, tokens: Some(completion_tokens) });
        }
        let prompt_logprobs = self.prompt_logprobs()?;
        let timing = Timing::of(ran, self.branches[0].first_token_s());
        let decoded = self.branches.iter().map(|branch| branch.len().saturating_sub(1)).sum();
        self.cut();
        let (first, others, cancelled) = self.continuations()?;
        Ok(GenerateOutcome {
            text: first.text,
            usage: TokenCounts {
                prompt_tokens: self.job.prompt.len(),
                completion_tokens,
                cached_tokens: self.told_cached_tokens(),
            },
            prefix_cache: self.keeps.then(|| PrefixCacheCounts::of(self.cached_tokens)),
            plan_misses: ran.plan_misses,
            token_ids: first.token_ids,
            prompt_token_ids: std::mem::take(&mut self.job.prompt),
            finish_reason: first.finish_reason,
            logprobs: first.logprobs,
            prompt_logprobs,
            queue_s: ran.queue_s,
            prefill_s: timing.prefill_s,
            decode_s: timing.decode_s,
            decode_tokens_per_s: timing.rate(decoded),
            token_s: first.token_s,
            seed: first.seed,
            mean_logprob: first.mean_logprob,
            others,
            cancelled,
            arrived_s: ran.arrived_s,
            peak_memory_bytes: ran.peak_memory_bytes,
            kernel_path: std::mem::take(&mut self.job.kernel_path),
            receipt: None,
        })
    }

    /// The continuations to return: the first, and the others. If more were generated, they are those with the highest mean
    /// log-probability, equals in the order of their seeds. Also returns whether any that was generated is cancelled.
    fn continuations(&mut self) -> Result<(Continuation, Vec<Continuation>, bool), EngineError> {
        let mut first = self.branches[0].finish(&self.job)?;
        let others = self.branches.iter_mut().skip(1).map(|branch| branch.finish(&self.job));
        let mut others = others.collect::<Result<Vec<_>, EngineError>>()?;
        let is_cancelled = |one: &Continuation| one.finish_reason == FinishReason::Cancelled;
        let cancelled = is_cancelled(&first) || others.iter().any(is_cancelled);
        if self.job.ranks() {
            others.insert(0, first);
            others.sort_by(|a, b| likelihood(b).total_cmp(&likelihood(a)));
            first = others.remove(0);
            others.truncate(self.job.n - 1);
        }
        Ok((first, others, cancelled))
    }

    /// The prompt, for the first piece.
    fn reported_prompt(&self) -> Result<ReportedPrompt, EngineError> {
        Ok(ReportedPrompt {
            token_ids: self.job.prompt.clone(),
            logprobs: self.prompt_logprobs()?,
            cached_tokens: self.told_cached_tokens(),
        })
    }

    /// Number of prompt tokens that came from the prefix cache; 0 if the request does not use it.
    fn told_cached_tokens(&self) -> usize {
        if self.keeps { self.cached_tokens } else { 0 }
    }

    /// Log-probabilities of the prompt's tokens, if requested; `None` before the first requested position, and after the last one that
    /// was run.
    fn prompt_logprobs(&self) -> Result<Option<Vec<Option<PositionLogprobs>>>, EngineError> {
        let Some(request) = self.job.prompt_logprobs else { return Ok(None) };
        let prompt = &self.job.prompt;
        let first = request.from.clamp(1, prompt.len());
        let named = prompt[first..].iter().zip(&self.prompt);
        let named = named.map(|(&id, logprobs)| self.branches[0].named(id, logprobs).map(Some));
        let none = || std::iter::repeat_with(|| Ok(None));
        none().take(first).chain(named).chain(none()).take(prompt.len()).collect::<Result<_, _>>().map(Some)
    }
}

/// The mean log-probability by which continuations are ranked; one without tokens comes last.
fn likelihood(of: &Continuation) -> f64 {
    of.mean_logprob.unwrap_or(f64::NEG_INFINITY)
}

#[cfg(test)]
mod tests {
    use redline_kernels::{Exec, Rows, Team};

    use super::*;
    use crate::answer::ticket::GenerateTicket;
    use crate::task::sequence::Origin;

    #[test]
    fn a_token_is_drawn_with_the_random_number_of_its_own_position() {
        let team = Team::new(1).unwrap();
        let exec = Exec { simd: Simd::best(), team: &team };
        let sampling = Sampling { temperature: 1.0, seed: 5, ..Sampling::default() };
        let job = GenerateJob {
            prompt: vec![1],
            max_new_tokens: 100,
            sampling,
            penalties: Penalties::default(),
            logit_bias: Vec::new(),
            n: 1,
            continuations: 1,
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
            task.job.prompt = vec![1; position + 1];
            let rows = Rows::new(&logits, 1, 50, 50);
            task.read(&[RowPlace { index: 0, position }], Logits { exec, rows, log_sum_exp: &[0.0] });
            let chosen = task.branches[0].chosen_ids().pop();
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

    #[test]
    fn a_choice_among_continuations_that_were_cut_short_is_cancelled() {
        let team = Team::new(1).unwrap();
        let exec = Exec { simd: Simd::best(), team: &team };
        let job = GenerateJob {
            prompt: vec![1],
            max_new_tokens: 2,
            sampling: Sampling { temperature: 1.0, ..Sampling::default() },
            penalties: Penalties::default(),
            logit_bias: Vec::new(),
            n: 1,
            continuations: 2,
            end_ids: Vec::new(),
            logprobs: None,
            prompt_logprobs: None,
            kv_cache: true,
            cache_salt: String::new(),
            kernel_path: String::new(),
        };
        let (ticket, reply) = GenerateTicket::new();
        let mut task = GenerateTask::new(job, exec.simd, Transcript::new(None, Vec::new()), reply);
        let logits = [0.0; 10];
        // The prompt is run, and then the first continuation to its end. The second one keeps its first token.
        for (index, position) in [(0, 0), (1, 1)] {
            task.open().unwrap();
            let rows = Rows::new(&logits, 1, 10, 10);
            task.read(&[RowPlace { index, position }], Logits { exec, rows, log_sum_exp: &[2.0] });
            task.advance(&[Done { index, reused: 0, origin: Origin::Parent }], 0.5).unwrap();
        }
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
        let outcome = ticket.wait().unwrap();
        assert_eq!((outcome.finish_reason, outcome.others.len()), (FinishReason::Length, 0));
        assert!(outcome.cancelled);
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
            penalties: Penalties::default(),
            logit_bias: Vec::new(),
            n: 1,
            continuations: 1,
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
