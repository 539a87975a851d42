//! Scoring: prefill only.
//!
//! The longest token prefix that all prompts share is one sequence; each prompt begins like it, or like a longer beginning
//! that is stored elsewhere, and is opened when there is room for it. The head is evaluated at the last row of each prompt
//! only, and only over the labels where the softmax is over labels: the normaliser over the vocabulary cancels there. A label of
//! several tokens continues each prompt: a sequence of its own, whose log-probability is the sum over its tokens, each given
//! those before it.

mod labels;

use std::collections::VecDeque;
use std::sync::mpsc::Sender;

use redline_kernels::op::kv::PAGE_TOKENS;

use self::labels::{Evaluated, LabelSet, Row};
use crate::error::EngineError;
use crate::machine::Logits;
use crate::outcome::{ItemError, ItemScore, PrefixCacheUse, ScoreOutcome, Taken, Usage};
use crate::prompt::{PromptIds, Tokens};
use crate::scheduler::{Done, Next, Opening, Origin};
use crate::task::{Cached, Ended, Head, Ran, RowPlace, Task};

/// Prompts that are open at a time where labels of several tokens follow them: each stays until those have been run.
const CONTINUED: usize = 32;

/// A checked request.
pub(crate) struct ScoreJob {
    pub(crate) prompts: Vec<Result<Tokens, ItemError>>,
    /// Lists of labels, each label its tokens, at least one.
    pub(crate) labels: Vec<Vec<Vec<u32>>>,
    /// The list of each item; `None`: all take the first.
    pub(crate) labels_of: Option<Vec<usize>>,
    /// Divide the log-probability of a label by the number of its tokens.
    pub(crate) mean: bool,
    pub(crate) softmax: bool,
    pub(crate) full_logprobs: bool,
    pub(crate) return_token_ids: bool,
    pub(crate) item_errors: bool,
    pub(crate) cache_salt: String,
    pub(crate) kernel_path: String,
}

impl ScoreJob {
    /// The ids of the prompt of an item that has one.
    fn ids(&self, item: usize) -> Option<&PromptIds> {
        self.prompts[item].as_ref().ok().map(|tokens| &tokens.ids)
    }

    fn labels_of(&self, item: usize) -> usize {
        self.labels_of.as_ref().and_then(|of| of.get(item).copied()).unwrap_or(0)
    }
}

/// What a sequence is for. Prompts go by their items.
#[derive(Clone, Copy)]
enum Purpose {
    Shared,
    Prompt(usize),
    Label { item: usize, label: usize },
}

/// What is known of a prompt.
#[derive(Default)]
struct Found {
    row: Option<Row>,
    /// Its sequence.
    index: u32,
    /// Its tokens that earlier requests had stored before this one arrived.
    known: usize,
    /// Its tokens that came from other requests.
    cached: usize,
    /// With labels of several tokens: the log-probability of each distinct label so far.
    sums: Vec<f64>,
    /// Labels of several tokens that have not been run; `None` before the prompt has.
    waiting: Option<usize>,
}

/// See the module.
pub(crate) struct ScoreTask {
    job: ScoreJob,
    reply: Sender<Result<ScoreOutcome, EngineError>>,
    sets: Vec<LabelSet>,
    /// The distinct first tokens of all labels, ascending.
    label_ids: Vec<u32>,
    /// Logits are wanted over the vocabulary.
    whole_vocabulary: bool,
    /// Some labels have several tokens.
    long: bool,
    /// Items whose prompts are to be opened, then those of labels.
    prompts: VecDeque<usize>,
    continuations: VecDeque<(usize, usize)>,
    /// Tokens that all prompts share, and whether they are stored.
    shared: Vec<u32>,
    shared_ready: bool,
    /// Tokens of them that earlier requests had stored.
    shared_known: usize,
    purposes: Vec<Purpose>,
    found: Vec<Found>,
    /// Prompts.
    count: usize,
    /// Prompts that have no row yet, and those of them that are open.
    unscored: usize,
    unfinished: usize,
    /// Whether anything is kept for later requests.
    keeps: bool,
}

impl ScoreTask {
    pub(crate) fn new(job: ScoreJob, reply: Sender<Result<ScoreOutcome, EngineError>>) -> Self {
        let prompts: VecDeque<usize> =
            (0..job.prompts.len()).filter(|&item| job.prompts[item].is_ok()).collect();
        let ids: Vec<&PromptIds> = prompts.iter().filter_map(|&item| job.ids(item)).collect();
        let shared = match ids.first() {
            Some(first) => first.to_vec()[..shared_prefix(&ids)].to_vec(),
            None => Vec::new(),
        };
        let sets: Vec<LabelSet> = job.labels.iter().map(|labels| LabelSet::new(labels)).collect();
        let mut label_ids: Vec<u32> = sets.iter().flat_map(LabelSet::first_tokens).copied().collect();
        label_ids.sort_unstable();
        label_ids.dedup();
        let long = sets.iter().any(|set| set.long().next().is_some());
        Self {
            whole_vocabulary: !job.softmax || job.full_logprobs || long,
            found: job.prompts.iter().map(|_| Found::default()).collect(),
            count: prompts.len(),
            unscored: prompts.len(),
            shared_ready: shared.is_empty(),
            job,
            reply,
            sets,
            label_ids,
            long,
            prompts,
            continuations: VecDeque::new(),
            shared,
            shared_known: 0,
            purposes: Vec::new(),
            unfinished: 0,
            keeps: false,
        }
    }

    /// The tokens of a prompt.
    fn tokens(&self, item: usize) -> Vec<u32> {
        self.job.ids(item).map(PromptIds::to_vec).unwrap_or_default()
    }

    fn length(&self, item: usize) -> usize {
        self.job.ids(item).map_or(0, PromptIds::len)
    }

    fn set(&self, item: usize) -> &LabelSet {
        &self.sets[self.job.labels_of(item)]
    }

    fn open_prompt(&mut self, item: usize) -> Opening {
        self.found[item].index = self.purposes.len() as u32;
        self.purposes.push(Purpose::Prompt(item));
        let tokens = self.tokens(item);
        let parent = (!self.shared.is_empty()).then_some((0, self.shared.len()));
        let (wanted, rank) = (tokens.len() - 1, 1 + item as u32);
        Opening { wanted, tokens, rank, parent, shares: self.keeps, ..Opening::default() }
    }

    fn open_label(&mut self, item: usize, label: usize) -> Opening {
        self.purposes.push(Purpose::Label { item, label });
        let mut tokens = self.tokens(item);
        let prompt = tokens.len();
        let label = self.set(item).tokens(label);
        tokens.extend_from_slice(&label[..label.len() - 1]);
        // A label goes before the prompts that come later: those that wait for their labels must not keep it out.
        let (rank, parent) = (1 + item as u32, Some((self.found[item].index, prompt)));
        Opening { tokens, wanted: prompt, rank, parent, ..Opening::default() }
    }

    /// What becomes of the sequence of a prompt that has been run to its end.
    fn after_prompt(&mut self, item: usize, done: &Done) -> Next {
        if self.found[item].waiting.is_none() {
            self.found[item].cached = match done.origin {
                Origin::Parent => self.shared_known,
                Origin::Running => done.began,
                // It may be this request that left it.
                Origin::Kept => done.began.min(self.found[item].known.max(self.shared_known)),
            };
            let long: Vec<usize> = if self.long { self.set(item).long().collect() } else { Vec::new() };
            self.found[item].waiting = Some(long.len());
            self.continuations.extend(long.into_iter().map(|label| (item, label)));
        }
        if self.found[item].waiting.is_some_and(|waiting| waiting > 0) {
            Next::Hold
        } else {
            self.scored(item)
        }
    }

    /// A prompt and all its labels have been run.
    fn scored(&mut self, item: usize) -> Next {
        if self.long {
            self.found[item].row = self.set(item).long_row(&self.found[item].sums, &self.job);
        }
        self.unscored -= 1;
        self.unfinished -= 1;
        // A page for the few tokens of a short item is better left to others.
        let alone = self.count == 1;
        if alone || self.length(item) >= self.shared.len() + PAGE_TOKENS { Next::Keep } else { Next::Drop }
    }

    /// Prompt tokens that earlier requests had stored, if that is known.
    fn prefix_cache(&self) -> Option<PrefixCacheUse> {
        let mut sum = self.keeps.then(PrefixCacheUse::default)?;
        for (item, found) in self.found.iter().enumerate() {
            if self.job.prompts[item].is_ok() {
                sum.count(found.cached);
            }
        }
        Some(sum)
    }

    fn outcome(mut self, ran: Ran) -> Result<ScoreOutcome, EngineError> {
        match ran.ended {
            Some(Ended::Cancelled) => return Err(EngineError::Cancelled),
            Some(Ended::Late) => return Err(EngineError::Late { seconds: ran.seconds, tokens: None }),
            None => {}
        }
        let prefix_cache = self.prefix_cache();
        let prompt_tokens = (0..self.found.len()).map(|item| self.length(item)).sum();
        let mut items = Vec::with_capacity(self.found.len());
        for (index, prompt) in std::mem::take(&mut self.job.prompts).into_iter().enumerate() {
            items.push(match (prompt, self.found[index].row.take()) {
                (Err(error), _) => Err(error),
                (Ok(prompt), Some(row)) => Ok(item_score(row, prompt, self.job.return_token_ids)),
                (Ok(_), None) => {
                    let error = EngineError::NonFinite(format!("item {index}"));
                    if !self.job.item_errors {
                        return Err(error);
                    }
                    Err(ItemError { index, message: error.to_string() })
                }
            });
        }
        let lists = &self.job.labels;
        let list_of = |of: &Vec<usize>| of.iter().map(|&list| lists[list].clone()).collect();
        let item_label_token_ids: Option<Vec<_>> = self.job.labels_of.as_ref().map(list_of);
        Ok(ScoreOutcome {
            items,
            label_token_ids: match item_label_token_ids {
                Some(_) => Vec::new(),
                None => self.job.labels.into_iter().next().unwrap_or_default(),
            },
            item_label_token_ids,
            taken: Taken {
                usage: Usage {
                    prompt_tokens,
                    completion_tokens: 0,
                    cached_tokens: prefix_cache.map_or(0, |sum| sum.cached_tokens),
                },
                computed_tokens: ran.computed_tokens,
                plan_misses: ran.plan_misses,
                shared_prefix_tokens: self.shared.len(),
                prefix_cache,
                queue_s: ran.queue_s,
                compute_s: ran.seconds,
                peak_memory_bytes: ran.peak_memory_bytes,
                kernel_path: self.job.kernel_path,
            },
        })
    }
}

impl Task for ScoreTask {
    fn salt(&self) -> String {
        self.job.cache_salt.clone()
    }

    fn longest(&self) -> usize {
        let label = self.job.labels.iter().flatten().map(Vec::len).max().unwrap_or(0);
        (0..self.found.len()).map(|item| self.length(item)).max().unwrap_or(0) + label
    }

    fn labels(&self) -> Option<&[u32]> {
        (!self.whole_vocabulary).then_some(&self.label_ids[..])
    }

    fn head(&self) -> Head {
        if self.whole_vocabulary { Head::Vocabulary { normalise: true } } else { Head::Labels }
    }

    fn start(&mut self, cached: Cached<'_>) {
        // Asked before anything is computed: what this request leaves does not count.
        let salt = &self.job.cache_salt;
        self.keeps = cached(salt, &[]).is_some();
        if self.keeps {
            for item in 0..self.found.len() {
                let tokens = self.tokens(item);
                let known = cached(&self.job.cache_salt, &tokens[..tokens.len().saturating_sub(1)]);
                self.found[item].known = known.unwrap_or(0);
            }
        }
    }

    fn open(&mut self) -> Option<Opening> {
        if !self.shared_ready {
            if !self.purposes.is_empty() {
                return None;
            }
            self.purposes.push(Purpose::Shared);
            let tokens = self.shared.clone();
            return Some(Opening { wanted: tokens.len(), tokens, shares: self.keeps, ..Opening::default() });
        }
        if let Some((item, label)) = self.continuations.pop_front() {
            return Some(self.open_label(item, label));
        }
        if self.long && self.unfinished == CONTINUED {
            return None;
        }
        let item = self.prompts.pop_front()?;
        self.unfinished += 1;
        Some(self.open_prompt(item))
    }

    fn read(&mut self, places: &[RowPlace], logits: Logits<'_>) {
        for (r, place) in places.iter().enumerate() {
            let row = logits.row(r);
            match self.purposes[place.index as usize] {
                Purpose::Shared => {}
                Purpose::Prompt(item) if self.long => {
                    self.found[item].sums = self.set(item).first_logprobs(&row);
                }
                Purpose::Prompt(item) => {
                    let over = if self.whole_vocabulary {
                        Evaluated::Vocabulary
                    } else {
                        Evaluated::Labels(&self.label_ids)
                    };
                    self.found[item].row = self.set(item).row(&row, &over, &self.job);
                }
                Purpose::Label { item, label } => {
                    // The row of the label's token n tells of its token n + 1.
                    let next = place.position - self.length(item) + 1;
                    let id = self.set(item).tokens(label)[next];
                    self.found[item].sums[label] += f64::from(row.logits[id as usize]) - row.log_sum_exp;
                }
            }
        }
    }

    fn advance(&mut self, done: &[Done], _elapsed: f64) -> Result<Vec<(u32, Next)>, EngineError> {
        let mut updates = Vec::with_capacity(done.len());
        for done in done {
            let index = done.index;
            match self.purposes[index as usize] {
                Purpose::Shared => {
                    if !self.shared_ready {
                        (self.shared_ready, self.shared_known) = (true, done.began);
                    }
                    updates.push((index, Next::HoldAndKeep));
                }
                Purpose::Prompt(item) => updates.push((index, self.after_prompt(item, done))),
                Purpose::Label { item, .. } => {
                    updates.push((index, Next::Drop));
                    let waiting = self.found[item].waiting.map_or(0, |waiting| waiting - 1);
                    self.found[item].waiting = Some(waiting);
                    if waiting == 0 {
                        updates.push((self.found[item].index, self.scored(item)));
                    }
                }
            }
        }
        Ok(updates)
    }

    fn finished(&self) -> bool {
        self.unscored == 0
    }

    fn answer(self: Box<Self>, outcome: Result<Ran, EngineError>) {
        let reply = self.reply.clone();
        // A caller that is gone hears nothing.
        let _ = reply.send(outcome.and_then(|ran| self.outcome(ran)));
    }
}

/// Length of the longest common token prefix, leaving every prompt at least one token of its own; 0 for a single prompt.
fn shared_prefix(prompts: &[&PromptIds]) -> usize {
    if prompts.len() < 2 {
        return 0;
    }
    prompts.iter().map(|p| p.common().min(p.len() - 1)).min().unwrap_or(0)
}

fn item_score(row: Row, prompt: Tokens, return_token_ids: bool) -> ItemScore {
    ItemScore {
        scores: row.scores,
        logprobs: row.logprobs,
        label_mass: row.label_mass,
        prompt_tokens: prompt.ids.len(),
        truncated: prompt.truncated,
        boundary_mismatch: prompt.boundary_mismatch,
        token_ids: return_token_ids.then(|| prompt.ids.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(prompts: &[&[u32]]) -> usize {
        let mut stem = None;
        let ids: Vec<PromptIds> = prompts.iter().map(|ids| PromptIds::new(&mut stem, ids.to_vec())).collect();
        for (ids, prompt) in ids.iter().zip(prompts) {
            assert_eq!((ids.to_vec(), ids.len()), (prompt.to_vec(), prompt.len()));
        }
        shared_prefix(&ids.iter().collect::<Vec<_>>())
    }

    #[test]
    fn the_shared_prefix_leaves_each_prompt_a_token() {
        assert_eq!(shared(&[]), 0);
        assert_eq!(shared(&[&[1, 2, 3]]), 0);
        assert_eq!(shared(&[&[1, 2, 3], &[1, 2, 3]]), 2);
        assert_eq!(shared(&[&[1, 2, 3], &[1, 2, 4, 5]]), 2);
        assert_eq!(shared(&[&[1, 2, 3], &[1, 2]]), 1);
        assert_eq!(shared(&[&[1, 2, 3, 4], &[9, 2], &[1, 2, 3, 4]]), 0);
        assert_eq!(shared(&[&[1], &[1]]), 0);
    }
}
