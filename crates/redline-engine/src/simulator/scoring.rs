//! Random score requests: labels of one token and of several, items of a few tokens and of several pages.

use std::cell::RefCell;

use redline_kernels::op::kv::PAGE_TOKENS;

use super::Random;
use super::answer::{Checked, Outcome, Work, answered};
use super::filling::MASK;
use super::machine::VOCABULARY;
use super::mix::{Lengths, Mix, tokens};
use super::oracle::likelihood::{LabelsRequest, Scored};
use crate::answer::outcome::ScoreOutcome;
use crate::answer::ticket::{ScoreTicket, Ticket};
use crate::mode::score::prompts::{LabelLists, PromptIds, Tokens};
use crate::mode::score::{MaskedScoreTask, Masks, ScoreJob, ScoreTask};
use crate::task::Task;

/// A score request whose answer has not arrived.
pub(super) struct Scoring {
    request: LabelsRequest,
    salt: String,
    ticket: RefCell<ScoreTicket>,
}

/// Random lists of labels: of up to four tokens each, or of one token each.
fn labels(random: &mut Random) -> Vec<Vec<Vec<u32>>> {
    let most = if random.once_in(2) { 4 } else { 1 };
    let label = |random: &mut Random| -> Vec<u32> {
        (0..=random.below(most)).map(|_| random.below(VOCABULARY) as u32).collect()
    };
    (0..=random.below(2)).map(|_| (0..=random.below(3)).map(|_| label(random)).collect()).collect()
}

/// Random prompts of up to `most` tokens: a long query with short items, or a short query with items of up to several pages.
fn items(random: &mut Random, most: usize, lengths: Lengths) -> Vec<Vec<u32>> {
    if random.once_in(2) {
        let query = tokens(random, most - 3, lengths);
        let count = random.of(&[3, 9, 50]);
        let item = |random: &mut Random| -> Vec<u32> {
            (0..=random.below(3)).map(|_| random.below(VOCABULARY) as u32).collect()
        };
        return (0..random.below(count)).map(|_| [query.clone(), item(random)].concat()).collect();
    }
    let query: Vec<u32> = (0..=random.below(3)).map(|_| random.below(VOCABULARY) as u32).collect();
    (0..=random.below(8))
        .map(|_| [query.clone(), tokens(random, most - query.len(), lengths)].concat())
        .collect()
}

impl Scoring {
    pub(super) fn new(random: &mut Random, pages: usize, mix: Mix) -> (Self, Box<dyn Task + Send>) {
        let labels = labels(random);
        let longest = labels.iter().flatten().map(Vec::len).max().unwrap_or(0);
        let masks = (random.once_in(3) && mix.has_canvases()).then(|| Masks {
            id: MASK,
            shifted: random.once_in(2),
            samples: random.of(&[1, 3, 15]),
            seed: random.next(),
        });
        // The engine's limits: see `front/score.rs`.
        let (label_tail, spare) = match masks {
            None => (longest - 1, if longest > 1 { 2 } else { 1 }),
            Some(_) => (longest, 0),
        };
        let items = items(random, (pages - spare) * PAGE_TOKENS - label_tail, mix.lengths);
        let of = (labels.len() > 1).then(|| items.iter().map(|_| random.below(labels.len())).collect());
        let (softmax, full_logprobs, mean) = (random.once_in(2), random.once_in(2), random.once_in(2));
        let mut stem = None;
        let prompts = items.iter().map(|ids| {
            let ids = PromptIds::new(&mut stem, ids.clone());
            Ok(Tokens { ids, truncated: false, boundary_mismatch: None })
        });
        let salt = mix.salt(random);
        let divisor = |label: &Vec<u32>| if mean { label.len() as f64 } else { 1.0 };
        let divisors = labels.iter().map(|list| list.iter().map(divisor).collect()).collect();
        let job = ScoreJob {
            prompts: prompts.collect(),
            labels: LabelLists { lists: labels.clone(), divisors, end_tokens: 0, of_item: of.clone() },
            softmax,
            full_logprobs,
            return_token_ids: false,
            return_reading: false,
            item_errors: false,
            cache_salt: salt.clone(),
            kernel_path: String::new(),
        };
        let (ticket, reply) = Ticket::new();
        let answer = Box::new(|outcome| reply.finish(outcome));
        let task: Box<dyn Task + Send> = match masks {
            None => Box::new(ScoreTask::new(job, answer)),
            Some(masks) => Box::new(MaskedScoreTask::new(job, masks, answer)),
        };
        let ticket = RefCell::new(ticket);
        let request =
            LabelsRequest { items, labels, of, masks, softmax, full_logprobs, mean, model: mix.model };
        (Self { request, salt, ticket }, task)
    }

    pub(super) fn work(&self) -> Work {
        // The shared prefix is a sequence too.
        let first = self.request.items.first().map_or(0, Vec::len);
        let mut work = Work { tokens: first, sequences: 1, grown: 0 };
        for (item, ids) in self.request.items.iter().enumerate() {
            for label in self.request.labels_of(item) {
                let canvases =
                    self.request.masks.map_or(1, |masks| masks.samples.min((1 << label.len()) - 1));
                work.tokens += canvases * (ids.len() + label.len());
                work.sequences += canvases;
            }
            work.tokens += ids.len();
            work.sequences += 1;
        }
        work
    }

    /// Its salt, and the tokens that it may store.
    pub(super) fn stored(&self) -> (String, Vec<Vec<u32>>, usize) {
        let sequences = if self.request.masks.is_none() { self.request.items.clone() } else { Vec::new() };
        (self.salt.clone(), sequences, 0)
    }

    pub(super) fn hear(&self) -> Result<Option<Checked>, String> {
        answered(&self.ticket, |outcome| self.check(outcome))
    }

    fn check(&self, outcome: &ScoreOutcome) -> Result<Checked, String> {
        if outcome.items.len() != self.request.items.len() {
            return Err(format!("{} answers to {} items", outcome.items.len(), self.request.items.len()));
        }
        let bits = |scored: &Scored| -> Vec<u32> {
            let all = scored.scores.iter().chain(&scored.logprobs).chain(&scored.label_mass);
            all.map(|x| x.to_bits()).collect()
        };
        for (index, item) in outcome.items.iter().enumerate() {
            let item = item.as_ref().map_err(|error| format!("item {index}: {error:?}"))?;
            let (scores, logprobs) = (item.scores.clone(), item.logprobs.clone());
            let (got, expected) =
                (Scored { scores, logprobs, label_mass: item.label_mass }, self.request.expected(index));
            if bits(&got) != bits(&expected) {
                return Err(format!("item {index}: {got:?} instead of {expected:?}"));
            }
        }
        let usage = &outcome.cost.usage;
        let tokens: usize = self.request.items.iter().map(Vec::len).sum();
        if usage.prompt_tokens != tokens || usage.completion_tokens != 0 {
            return Err(format!("{usage:?} of {tokens} prompt tokens"));
        }
        let one =
            self.request.items.len() == 1 && self.request.labels_of(0).iter().all(|label| label.len() == 1);
        Ok(Checked {
            outcome: Outcome::Whole,
            prompts: if self.request.masks.is_none() { self.request.items.clone() } else { Vec::new() },
            cached_tokens: usage.cached_tokens,
            run_or_cached: (one && self.request.masks.is_none()).then_some(tokens),
        })
    }
}
