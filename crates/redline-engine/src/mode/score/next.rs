//! Scoring with autoregressive models: prefill only.
//!
//! The longest token prefix common to all prompts is one sequence. Each prompt begins with it, or with a longer beginning that
//! is stored elsewhere, and is opened when there is room for it. The head is evaluated at the last row of each prompt only. A
//! label of several tokens continues each prompt as a separate sequence; its log-probability is the sum over its tokens, each
//! given those before it.

use std::collections::{BTreeSet, VecDeque};

use redline_kernels::op::kv::PAGE_TOKENS;

use super::labels::{LabelSet, Row, most_probable};
use super::{LabelLogits, ScoreJob, Shared};
use crate::answer::outcome::{PrefixCacheCounts, ScoreOutcome};
use crate::answer::ticket::Answer;
use crate::error::EngineError;
use crate::gauges::Progress;
use crate::mode::score::prompts::PromptIds;
use crate::task::logits::Logits;
use crate::task::sequence::{Done, Next, Opening, Origin};
use crate::task::{Cached, Ran, RowOutput, RowPlace, Task};

/// Maximum number of open prompts if labels of several tokens follow them: each prompt stays open until those have been run.
const CONTINUED: usize = 32;

/// The purpose of a sequence. Prompts are identified by their items.
#[derive(Clone, Copy)]
enum Purpose {
    Shared,
    Prompt(usize),
    Label { item: usize, label: usize },
}

/// State of a prompt.
#[derive(Default)]
struct ItemState {
    row: Option<Row>,
    /// Index of its sequence.
    index: u32,
    /// Number of its tokens that earlier requests had stored before this request arrived.
    known: usize,
    /// Number of its tokens that were taken from other requests.
    cached: usize,
    /// For labels of several tokens: the log-probability of each distinct label so far.
    sums: Vec<f64>,
    /// For labels of several tokens: the most probable token after the prompt, if requested.
    most_probable: Option<u32>,
    /// Number of labels of several tokens that have not been run; `None` before the prompt has been run.
    waiting: Option<usize>,
}

/// A score request for an autoregressive model.
pub(crate) struct ScoreTask {
    job: ScoreJob,
    reply: Answer<ScoreOutcome>,
    logits: LabelLogits,
    /// Items whose prompts are not open yet.
    prompts: VecDeque<usize>,
    /// Items and labels that can be opened, because the prompt is stored.
    continuations: BTreeSet<(usize, usize)>,
    /// Tokens that all prompts share, and whether they are stored.
    shared: Vec<u32>,
    shared_ready: bool,
    /// Number of shared tokens that earlier requests had stored.
    shared_known: usize,
    purposes: Vec<Purpose>,
    items: Vec<ItemState>,
    /// Number of prompts.
    count: usize,
    /// Number of prompts without scores, and the number of those that are open.
    unscored: usize,
    unfinished: usize,
    /// Whether keys and values are kept for later requests.
    keeps: bool,
    progress: Progress,
}

impl ScoreTask {
    pub(crate) fn new(job: ScoreJob, reply: Answer<ScoreOutcome>) -> Self {
        let prompts: VecDeque<usize> = job.items().collect();
        let ids: Vec<&PromptIds> = prompts.iter().filter_map(|&item| job.ids(item)).collect();
        let shared = match ids.first() {
            Some(first) => first.to_vec()[..shared_prefix(&ids)].to_vec(),
            None => Vec::new(),
        };
        Self {
            logits: LabelLogits::of(&job),
            items: job.prompts.iter().map(|_| ItemState::default()).collect(),
            count: prompts.len(),
            unscored: prompts.len(),
            shared_ready: shared.is_empty(),
            job,
            reply,
            prompts,
            continuations: BTreeSet::new(),
            shared,
            shared_known: 0,
            purposes: Vec::new(),
            unfinished: 0,
            keeps: false,
            progress: Progress::default(),
        }
    }

    fn set(&self, item: usize) -> &LabelSet {
        &self.logits.sets[self.job.labels.of(item)]
    }

    fn open_prompt(&mut self, item: usize) -> Opening {
        self.items[item].index = self.purposes.len() as u32;
        self.purposes.push(Purpose::Prompt(item));
        let tokens = self.job.tokens(item);
        let parent = (!self.shared.is_empty()).then_some((0, self.shared.len()));
        let (wanted, rank) = (tokens.len() - 1, rank(item));
        Opening { wanted, tokens, rank, parent, shares: self.keeps, ..Opening::default() }
    }

    fn open_label(&mut self, item: usize, label: usize) -> Opening {
        self.purposes.push(Purpose::Label { item, label });
        let mut tokens = self.job.tokens(item);
        let prompt = tokens.len();
        let label = self.set(item).tokens(label);
        tokens.extend_from_slice(&label[..label.len() - 1]);
        // A label has a lower rank than later prompts, so that prompts that wait for their labels cannot keep it out.
        let (rank, parent) = (rank(item), Some((self.items[item].index, prompt)));
        Opening { tokens, wanted: prompt, rank, parent, ..Opening::default() }
    }

    /// What to do with the sequence of a prompt that has been run to its end.
    fn after_prompt(&mut self, item: usize, done: &Done) -> Next {
        if self.items[item].waiting.is_none() {
            self.items[item].cached = match done.origin {
                Origin::Parent => self.shared_known,
                Origin::Running => done.reused,
                // The tokens may have been kept by this request itself.
                Origin::Kept => done.reused.min(self.items[item].known.max(self.shared_known)),
            };
            let long: Vec<usize> = self.set(item).long().collect();
            self.items[item].waiting = Some(long.len());
            self.continuations.extend(long.into_iter().map(|label| (item, label)));
        }
        if self.items[item].waiting.is_some_and(|waiting| waiting > 0) {
            Next::Hold
        } else {
            self.scored(item)
        }
    }

    /// Called when a prompt and all its labels have been run.
    fn scored(&mut self, item: usize) -> Next {
        if self.set(item).is_long() {
            let sums = std::mem::take(&mut self.items[item].sums);
            let most_probable = self.items[item].most_probable;
            self.items[item].row = self.set(item).long_row(&sums, most_probable, &self.job);
        }
        self.unscored -= 1;
        self.unfinished -= 1;
        self.progress.items += 1;
        self.progress.prompt_tokens += self.job.length(item);
        self.progress.cached_tokens += self.items[item].cached;
        // The few tokens of a short item are not worth a page.
        let alone = self.count == 1;
        if alone || self.job.length(item) >= self.shared.len() + PAGE_TOKENS {
            Next::Store
        } else {
            Next::Drop
        }
    }

    /// Use of the prefix cache, if it is known.
    fn prefix_cache(&self) -> Option<PrefixCacheCounts> {
        let mut sum = self.keeps.then(PrefixCacheCounts::default)?;
        for (item, state) in self.items.iter().enumerate() {
            if self.job.prompts[item].is_ok() {
                sum.count(state.cached);
            }
        }
        Some(sum)
    }
}

impl Task for ScoreTask {
    fn salt(&self) -> String {
        self.job.cache_salt.clone()
    }

    fn longest(&self) -> usize {
        self.job.longest()
    }

    fn labels(&self) -> Option<&[u32]> {
        self.logits.labels()
    }

    fn output(&self) -> RowOutput<()> {
        self.logits.output()
    }

    fn normalises(&self) -> bool {
        self.logits.whole_vocabulary
    }

    fn prompts(&self, most: usize) -> Vec<Vec<u32>> {
        self.job.items().take(most).map(|item| self.job.tokens(item)).collect()
    }

    fn start(&mut self, cached: Cached<'_>) {
        // Queried before anything is computed, so that keys and values of this request do not count.
        let salt = &self.job.cache_salt;
        self.keeps = cached(salt, &[]).is_some();
        if self.keeps {
            for item in 0..self.items.len() {
                let tokens = self.job.tokens(item);
                let known = cached(&self.job.cache_salt, &tokens[..tokens.len().saturating_sub(1)]);
                self.items[item].known = known.unwrap_or(0);
            }
        }
    }

    fn next_rank(&self) -> Option<u32> {
        self.continuations.first().map(|(item, _)| rank(*item))
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
        if let Some((item, label)) = self.continuations.pop_first() {
            return Some(self.open_label(item, label));
        }
        if self.logits.long && self.unfinished == CONTINUED {
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
                Purpose::Prompt(item) if self.set(item).is_long() => {
                    self.items[item].sums = self.set(item).first_logprobs(&row);
                    self.items[item].most_probable =
                        self.job.return_reading.then(|| most_probable(row.logits));
                }
                Purpose::Prompt(item) => {
                    self.items[item].row = self.set(item).row(&row, self.logits.labels(), &self.job);
                }
                Purpose::Label { item, label } => {
                    // The row of the label's token n predicts its token n + 1.
                    let next = place.position - self.job.length(item) + 1;
                    let id = self.set(item).tokens(label)[next];
                    self.items[item].sums[label] += f64::from(row.logits[id as usize]) - row.log_sum_exp;
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
                        (self.shared_ready, self.shared_known) = (true, done.reused);
                    }
                    updates.push((index, Next::HoldAndStore));
                }
                Purpose::Prompt(item) => updates.push((index, self.after_prompt(item, done))),
                Purpose::Label { item, .. } => {
                    updates.push((index, Next::Drop));
                    let waiting = self.items[item].waiting.map_or(0, |waiting| waiting - 1);
                    self.items[item].waiting = Some(waiting);
                    if waiting == 0 {
                        updates.push((self.items[item].index, self.scored(item)));
                    }
                }
            }
        }
        Ok(updates)
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn finished(&self) -> bool {
        self.unscored == 0
    }

    fn answer(self: Box<Self>, outcome: Result<Ran, EngineError>) {
        let shared = Shared { tokens: self.shared.len(), cached: self.prefix_cache() };
        let Self { job, items, reply, .. } = *self;
        let rows = items.into_iter().map(|item| item.row).collect();
        reply(outcome.and_then(|ran| job.outcome(rows, shared, ran)));
    }
}

/// The rank of an item's sequences. The shared prefix has rank 0.
fn rank(item: usize) -> u32 {
    1 + item as u32
}

/// Length of the longest common token prefix that leaves every prompt at least one token of its own; 0 for a single prompt.
fn shared_prefix(prompts: &[&PromptIds]) -> usize {
    if prompts.len() < 2 {
        return 0;
    }
    prompts.iter().map(|p| p.common().min(p.len() - 1)).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::score::prompts::LabelLists;

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

    /// A request with twice as many items as may be open, each with a label of two tokens.
    fn continued() -> ScoreTask {
        let mut stem = None;
        let prompts = (0..2 * CONTINUED as u32).map(|item| {
            let ids = PromptIds::new(&mut stem, vec![item, 1]);
            Ok(crate::mode::score::prompts::Tokens { ids, truncated: false, boundary_mismatch: None })
        });
        let job = ScoreJob {
            prompts: prompts.collect(),
            labels: LabelLists {
                lists: vec![vec![vec![5], vec![6, 7]]],
                divisors: vec![vec![1.0, 1.0]],
                end_tokens: 0,
                of_item: None,
            },
            softmax: false,
            full_logprobs: false,
            return_token_ids: false,
            return_reading: false,
            item_errors: false,
            cache_salt: String::new(),
            kernel_path: String::new(),
        };
        ScoreTask::new(job, Box::new(|_| ()))
    }

    fn all_open(task: &mut ScoreTask) -> Vec<Opening> {
        std::iter::from_fn(|| task.open()).collect()
    }

    fn done(index: u32) -> Done {
        Done { index, reused: 0, origin: Origin::Parent }
    }

    #[test]
    fn a_bounded_number_of_prompts_is_open_while_labels_follow() {
        let mut task = continued();
        assert_eq!(all_open(&mut task).len(), CONTINUED);
        // A prompt that has been run is held, so no other prompt takes its place, but its label is opened.
        assert_eq!(task.advance(&[done(0)], 0.0).unwrap(), [(0, Next::Hold)]);
        let opened = all_open(&mut task);
        assert_eq!((opened.len(), opened[0].parent), (1, Some((0, 2))));
        // When its label has been run, the prompt ends, and another one is opened.
        task.items[0].sums = vec![-1.0, -2.0];
        let ends = [(CONTINUED as u32, Next::Drop), (0, Next::Drop)];
        assert_eq!(task.advance(&[done(CONTINUED as u32)], 0.0).unwrap(), ends);
        assert_eq!(all_open(&mut task).len(), 1);
    }

    #[test]
    fn labels_of_earlier_items_are_opened_first() {
        let mut task = continued();
        all_open(&mut task);
        assert_eq!(task.next_rank(), None);
        task.advance(&[done(7), done(3), done(5)], 0.0).unwrap();
        let ranks: Vec<(Option<u32>, u32)> =
            (0..3).map(|_| (task.next_rank(), task.open().unwrap().rank)).collect();
        assert_eq!(ranks, [(Some(4), 4), (Some(6), 6), (Some(8), 8)]);
        assert_eq!(task.next_rank(), None);
    }
}
