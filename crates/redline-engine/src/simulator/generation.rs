//! Random generation requests, for one prompt and for several in lockstep.

use std::cell::RefCell;

use redline_kernels::Simd;
use redline_kernels::op::kv::PAGE_TOKENS;

use super::Random;
use super::answer::{Checked, Outcome, Work, answered};
use super::machine::VOCABULARY;
use super::mix::{Mix, tokens};
use super::oracle::cached::Stored;
use super::oracle::likelihood::logprob;
use super::oracle::sampling::continues;
use crate::answer::outcome::{BatchOutcome, GenerateOutcome};
use crate::answer::ticket::{BatchTicket, GenerateTicket, Ticket};
use crate::answer::transcript::Transcript;
use crate::heartbeat::task::Task;
use crate::mode::autoregressive::{BatchJob, BatchTask, GenerateJob, GenerateTask};
use crate::request::{PromptLogprobs, Sampling};

/// A generation whose answer has not arrived.
pub(super) struct Generation {
    prompt: Vec<u32>,
    most: usize,
    end_ids: Vec<u32>,
    sampling: Sampling,
    kv_cache: bool,
    salt: String,
    /// The requested log-probabilities of the prompt's tokens.
    of_prompt: Vec<f32>,
    ticket: RefCell<GenerateTicket>,
}

impl Generation {
    pub(super) fn new(random: &mut Random, pages: usize, mix: Mix) -> (Self, Box<dyn Task + Send>) {
        let longest = random.of(&[12, 12, 100]);
        let new = 1 + random.below(longest);
        // The engine accepts prompts that leave one page free.
        let prompt = tokens(random, (pages - 1) * PAGE_TOKENS - new);
        let sampling = if random.once_in(2) {
            Sampling {
                temperature: random.of(&[1.0, 0.6]),
                top_k: random.of(&[0, 0, 5]),
                top_p: random.of(&[1.0, 0.8]),
                min_p: random.of(&[0.0, 0.0, 0.1]),
                seed: random.next(),
            }
        } else {
            Sampling::default()
        };
        let end_ids = vec![random.below(3 * VOCABULARY) as u32];
        let from = random.below(prompt.len() + 2);
        let prompt_logprobs = random.once_in(4).then_some(PromptLogprobs { from, top: 1 });
        let of_prompt = prompt_logprobs.map(|wanted| {
            let logprob = |at: usize| logprob(&prompt[..at], &prompt[at..=at]) as f32;
            (wanted.from.max(1)..prompt.len()).map(logprob).collect()
        });
        let (kv_cache, salt) = (!random.once_in(6), mix.salt(random));
        let job = GenerateJob {
            prompt: prompt.clone(),
            max_new_tokens: new,
            sampling,
            end_ids: end_ids.clone(),
            logprobs: random.once_in(2).then_some(2),
            prompt_logprobs,
            kv_cache,
            cache_salt: salt.clone(),
            kernel_path: String::new(),
        };
        let (ticket, reply) = Ticket::new();
        let task = GenerateTask::new(job, Simd::best(), Transcript::new(None, Vec::new()), reply);
        let of_prompt = of_prompt.unwrap_or_default();
        let ticket = RefCell::new(ticket);
        let pending = Self { prompt, most: new, end_ids, sampling, kv_cache, salt, of_prompt, ticket };
        (pending, Box::new(task))
    }

    pub(super) fn work(&self) -> Work {
        let longest = self.prompt.len() + self.most;
        let tokens = if self.kv_cache { longest } else { longest * self.most };
        Work { tokens, sequences: 1, grown: self.most }
    }

    pub(super) fn stored(&self) -> Stored {
        let sequences = if self.kv_cache { vec![self.prompt.clone()] } else { Vec::new() };
        Stored { salt: self.salt.clone(), sequences, more: self.most }
    }

    pub(super) fn hear(&self) -> Result<Option<Checked>, String> {
        answered(&self.ticket, |outcome| self.check(outcome))
    }

    fn check(&self, outcome: &GenerateOutcome) -> Result<Checked, String> {
        let ids = &outcome.token_ids;
        let whole = continues(&self.prompt, ids, self.most, &self.end_ids, &self.sampling)?;
        let logprobs = outcome.prompt_logprobs.iter().flatten().flatten();
        let logprobs: Vec<f32> = logprobs.map(|position| position.chosen.logprob).collect();
        if !self.of_prompt.starts_with(&logprobs) || whole && logprobs.len() < self.of_prompt.len() {
            return Err(format!("of the prompt {logprobs:?} instead of {:?}", self.of_prompt));
        }
        // The last new token is chosen and not run.
        let run = (self.prompt.len() + ids.len()).saturating_sub(1);
        Ok(Checked {
            outcome: if whole { Outcome::Whole } else { Outcome::Part },
            prompts: if self.kv_cache { vec![self.prompt.clone()] } else { Vec::new() },
            cached_tokens: outcome.usage.cached_tokens,
            run_or_cached: (whole && self.kv_cache).then_some(run),
        })
    }
}

/// A batch whose answer has not arrived.
pub(super) struct Lockstep {
    prompts: Vec<Vec<u32>>,
    most: usize,
    end_ids: Vec<u32>,
    ticket: RefCell<BatchTicket>,
}

impl Lockstep {
    pub(super) fn new(random: &mut Random, pages: usize) -> (Self, Box<dyn Task + Send>) {
        let most = 1 + random.below(8);
        let end_ids = vec![random.below(3 * VOCABULARY) as u32];
        // The engine accepts batches whose sequences all fit at once, in whole pages.
        let (mut prompts, mut left) = (Vec::new(), pages);
        let count = 1 + random.below(pages);
        while left > 0 && prompts.len() < count {
            let room = random_pages(random, left) * PAGE_TOKENS;
            let prompt = tokens(random, room - most);
            left -= (prompt.len() + most).div_ceil(PAGE_TOKENS);
            prompts.push(prompt);
        }
        let (ticket, reply) = Ticket::new();
        let job = BatchJob {
            prompts: prompts.clone(),
            max_new_tokens: most,
            end_ids: end_ids.clone(),
            kernel_path: String::new(),
        };
        let ticket = RefCell::new(ticket);
        (Self { prompts, most, end_ids, ticket }, Box::new(BatchTask::new(job, reply)))
    }

    pub(super) fn work(&self) -> Work {
        let lengths = self.prompts.iter().map(|prompt| prompt.len() + self.most);
        Work { tokens: lengths.sum(), sequences: self.prompts.len(), grown: self.prompts.len() * self.most }
    }

    pub(super) fn hear(&self) -> Result<Option<Checked>, String> {
        answered(&self.ticket, |outcome| self.check(outcome))
    }

    fn check(&self, outcome: &BatchOutcome) -> Result<Checked, String> {
        if outcome.token_ids.len() != self.prompts.len() {
            return Err(format!("{} answers to {} prompts", outcome.token_ids.len(), self.prompts.len()));
        }
        let mut whole = true;
        for (prompt, new) in self.prompts.iter().zip(&outcome.token_ids) {
            whole &= continues(prompt, new, self.most, &self.end_ids, &Sampling::default())?;
        }
        Ok(Checked::of(if whole { Outcome::Whole } else { Outcome::Part }))
    }
}

/// A random number of pages up to `most`, mostly one.
fn random_pages(random: &mut Random, most: usize) -> usize {
    if random.once_in(3) { 1 + random.below(most) } else { 1 }
}
