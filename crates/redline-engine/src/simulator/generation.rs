//! Random generation requests.

use std::cell::RefCell;

use redline_kernels::Simd;
use redline_kernels::op::kv::PAGE_TOKENS;

use super::Random;
use super::answer::{Checked, Outcome, Work, answered};
use super::guides::{Adversary, Ruler};
use super::machine::VOCABULARY;
use super::mix::{Mix, tokens};
use super::oracle::likelihood::logprob;
use super::oracle::sampling::Continued;
use super::rule::Rule;
use crate::answer::outcome::GenerateOutcome;
use crate::answer::ticket::{GenerateTicket, Ticket};
use crate::answer::transcript::Transcript;
use crate::mode::autoregressive::guide::{Constraint, Drafter, Guides};
use crate::mode::autoregressive::{GenerateJob, GenerateTask};
use crate::request::{Penalties, PromptLogprobs, Sampling};
use crate::task::Task;

/// Combined with the state of random numbers, gives that of those that decide on drafts and constraints.
const GUIDED: u64 = 0x6a09_e667_f3bc_c908;

/// A generation whose answer has not arrived.
pub(super) struct Generation {
    expected: Continued,
    /// Number of continuations to return, and to generate.
    n: usize,
    best_of: usize,
    kv_cache: bool,
    /// Whether its tokens are drafted.
    drafted: bool,
    salt: String,
    /// The requested log-probabilities of the prompt's tokens.
    of_prompt: Vec<f32>,
    ticket: RefCell<GenerateTicket>,
}

impl Generation {
    pub(super) fn new(random: &mut Random, pages: usize, mix: Mix) -> (Self, Box<dyn Task + Send>) {
        // The engine accepts generations that leave one page free. With a window, they may be longer than what fits at a time.
        let room = (pages - 1) * PAGE_TOKENS;
        let longest =
            if mix.model.window.is_some() { random.of(&[12, 100, 1000]) } else { random.of(&[12, 12, 100]) };
        let mut new = 1 + random.below(longest);
        let prompt = tokens(random, room - new.min(100), mix.lengths);
        let sampling = sampling(random);
        let mut best_of =
            if sampling.temperature > 0.0 && random.once_in(2) { 1 + random.below(5) } else { 1 };
        while mix.resident(prompt.len(), new, best_of > 1) > room {
            new = (new / 2).max(1);
            best_of = if new == 1 { 1 } else { best_of };
        }
        let n = if random.once_in(2) { best_of } else { 1 + random.below(best_of) };
        let (penalties, logit_bias) = (penalties(random), logit_bias(random));
        let end_ids = vec![random.below(3 * VOCABULARY) as u32];
        let from = random.below(prompt.len() + 2);
        let prompt_logprobs = random.once_in(4).then_some(PromptLogprobs { from, top: 1 });
        let of_prompt = prompt_logprobs.map(|wanted| {
            let logprob = |at: usize| logprob(&prompt[..at], &prompt[at..=at], mix.model) as f32;
            (wanted.from.max(1)..prompt.len()).map(logprob).collect()
        });
        let (kv_cache, salt) = (!random.once_in(6), mix.salt(random));
        let job = GenerateJob {
            prompt: prompt.clone(),
            max_new_tokens: new,
            sampling,
            penalties,
            logit_bias: logit_bias.clone(),
            n,
            continuations: best_of,
            end_ids: end_ids.clone(),
            logprobs: random.once_in(2).then_some(2),
            prompt_logprobs,
            kv_cache,
            cache_salt: salt.clone(),
            kernel_path: String::new(),
        };
        let (ticket, reply) = Ticket::new();
        let mut task = GenerateTask::new(job, Simd::best(), Transcript::new(None, Vec::new()), reply);
        let of_prompt = of_prompt.unwrap_or_default();
        let ticket = RefCell::new(ticket);
        let model = mix.model;
        let mut expected =
            Continued { prompt, most: new, end_ids, sampling, penalties, logit_bias, model, rule: None };
        // Other random numbers, so that schedules without guides stay what they were.
        let mut guided = Random(random.0 ^ GUIDED);
        if mix.guided && guided.once_in(3) {
            let rule = Rule(guided.next());
            expected.rule = Some(rule);
        }
        let drafted = mix.guided && !guided.once_in(4);
        let drafter = |index| -> Box<dyn Drafter> {
            let random = Random(guided.0 ^ index as u64);
            Box::new(Adversary::new(random, expected.clone(), expected.seed(index)))
        };
        let constraint = |_| -> Box<dyn Constraint> {
            let rule = expected.rule.unwrap_or(Rule(0));
            Box::new(Ruler::new(rule, expected.end_ids.clone()))
        };
        task = task.guided(Guides {
            drafter: drafted.then_some(&drafter),
            constraint: expected.rule.is_some().then_some(&constraint),
        });
        (Self { expected, n, best_of, kv_cache, drafted, salt, of_prompt, ticket }, Box::new(task))
    }

    pub(super) fn work(&self) -> Work {
        let (prompt, most) = (self.expected.prompt.len(), self.expected.most);
        let longest = prompt + most;
        let each = if self.kv_cache { longest } else { longest * most };
        // The prompt of several continuations is a sequence of its own.
        let of_prompt = if self.best_of > 1 { prompt } else { 0 };
        Work {
            tokens: of_prompt + self.best_of * each,
            sequences: self.best_of + usize::from(self.best_of > 1),
            grown: self.best_of * most,
        }
    }

    /// Its salt, and the tokens that it may store.
    pub(super) fn stored(&self) -> (String, Vec<Vec<u32>>, usize) {
        let sequences = if self.kv_cache { vec![self.expected.prompt.clone()] } else { Vec::new() };
        (self.salt.clone(), sequences, self.expected.most)
    }

    pub(super) fn hear(&self) -> Result<Option<Checked>, String> {
        answered(&self.ticket, |outcome| self.check(outcome))
    }

    fn check(&self, outcome: &GenerateOutcome) -> Result<Checked, String> {
        let all = outcome.clone().take_continuations();
        let all: Vec<(u64, Vec<u32>)> = all.into_iter().map(|one| (one.seed, one.token_ids)).collect();
        let generated = outcome.usage.completion_tokens;
        let whole = self.expected.admits(&all, (self.n, self.best_of), generated)?;
        let prompt = &self.expected.prompt;
        let logprobs = outcome.prompt_logprobs.iter().flatten().flatten();
        let logprobs: Vec<f32> = logprobs.map(|position| position.chosen.logprob).collect();
        if !self.of_prompt.starts_with(&logprobs) || whole && logprobs.len() < self.of_prompt.len() {
            return Err(format!("of the prompt {logprobs:?} instead of {:?}", self.of_prompt));
        }
        // The last new token of each continuation is chosen and not run.
        let run = (prompt.len() + generated).saturating_sub(self.best_of);
        Ok(Checked {
            outcome: if whole { Outcome::Whole } else { Outcome::Part },
            prompts: if self.kv_cache { vec![prompt.clone()] } else { Vec::new() },
            cached_tokens: outcome.usage.cached_tokens,
            run_or_cached: (whole && self.kv_cache && !self.drafted).then_some(run),
        })
    }
}

/// Greedy, or random parameters.
fn sampling(random: &mut Random) -> Sampling {
    if random.once_in(2) {
        return Sampling::default();
    }
    Sampling {
        temperature: random.of(&[1.0, 0.6]),
        top_k: random.of(&[0, 0, 5]),
        top_p: random.of(&[1.0, 0.8]),
        min_p: random.of(&[0.0, 0.0, 0.1]),
        typical_p: random.of(&[1.0, 1.0, 0.7]),
        seed: random.next(),
    }
}

/// Mostly none.
fn penalties(random: &mut Random) -> Penalties {
    Penalties {
        repetition: random.of(&[1.0, 1.0, 1.0, 1.3, 0.7]),
        frequency: random.of(&[0.0, 0.0, 0.0, 0.25, -0.1]),
        presence: random.of(&[0.0, 0.0, 0.0, 1.5, -0.5]),
        min_tokens: random.of(&[0, 0, 0, 2, 9]),
    }
}

/// Mostly none; else for some tokens.
fn logit_bias(random: &mut Random) -> Vec<(u32, f32)> {
    if !random.once_in(4) {
        return Vec::new();
    }
    let first = random.below(VOCABULARY);
    let count = 1 + random.below(4);
    let biased = (0..count).map(|i| ((first + 5 * i) % VOCABULARY) as u32);
    biased.map(|id| (id, random.of(&[-100.0, -1.5, 0.75, 3.0]))).collect()
}
