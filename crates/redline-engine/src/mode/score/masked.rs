//! Labels as masks behind the prompt, for models that fill masks.
//!
//! Each item is run once for each way to cover tokens of its labels ([`super::maskings`]): a canvas of the prompt and of the label,
//! some of it masks. Rows all see each other, so that prompts share nothing. What each canvas says is added up in the order of
//! the maskings of a label, whenever it was run: a score has the same bits whatever runs beside it.

use std::collections::VecDeque;

use super::labels::{LabelSet, Row};
use super::maskings::Maskings;
use super::{Asked, ScoreJob, Shared};
use crate::error::EngineError;
use crate::machine::Logits;
use crate::outcome::{MonteCarlo, ScoreOutcome};
use crate::scheduler::{Done, Next, Opening};
use crate::task::{Head, Ran, RowPlace, Task};
use crate::ticket::Answer;

/// How masks stand for tokens, and how many samples are drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Masks {
    /// The id that stands for a mask.
    pub(crate) id: u32,
    /// Whether row j is about token j + 1.
    pub(crate) shifted: bool,
    /// Most ways to cover the tokens of a label; at least 1.
    pub(crate) samples: usize,
    pub(crate) seed: u64,
}

/// What is known of an item.
#[derive(Default)]
struct Found {
    row: Option<Row>,
    /// What each canvas says of each label that it tells of, the canvases in their order.
    sums: Vec<Vec<f64>>,
    /// Canvases that have not been run.
    left: usize,
}

/// See the module.
pub(crate) struct MaskedScoreTask {
    job: ScoreJob,
    reply: Answer<ScoreOutcome>,
    asked: Asked,
    masks: Masks,
    /// Of each list of labels.
    maskings: Vec<Maskings>,
    /// Items of which something is to be opened, and the next masking of the first.
    waiting: VecDeque<usize>,
    next: usize,
    /// Item and masking of every sequence.
    opened: Vec<(usize, usize)>,
    found: Vec<Found>,
    unscored: usize,
}

impl MaskedScoreTask {
    pub(crate) fn new(job: ScoreJob, masks: Masks, reply: Answer<ScoreOutcome>) -> Self {
        let asked = Asked::of(&job);
        let of = |set: &LabelSet| Maskings::of(set.distinct(), masks.samples, masks.seed);
        let waiting: VecDeque<usize> = job.items().collect();
        Self {
            maskings: asked.sets.iter().map(of).collect(),
            found: job.prompts.iter().map(|_| Found::default()).collect(),
            unscored: waiting.len(),
            job,
            reply,
            asked,
            masks,
            waiting,
            next: 0,
            opened: Vec::new(),
        }
    }

    /// The row that tells of the token at a position.
    fn row(&self, position: usize) -> usize {
        // A prompt has a token at least.
        if self.masks.shifted { position - 1 } else { position }
    }

    /// All canvases of an item have been run.
    fn scored(&mut self, item: usize) {
        let set = self.job.labels_of(item);
        let sums = std::mem::take(&mut self.found[item].sums);
        if self.asked.long {
            let part = |&(masking, tell): &(usize, usize)| sums[masking][tell];
            let of_label = |parts: &Vec<(usize, usize)>| parts.iter().map(part).sum();
            let of_labels: Vec<f64> = self.maskings[set].labels.iter().map(of_label).collect();
            self.found[item].row = self.asked.sets[set].long_row(&of_labels, &self.job);
        }
        self.unscored -= 1;
    }
}

impl Task for MaskedScoreTask {
    fn longest(&self) -> usize {
        self.job.longest()
    }

    fn draws(&self) -> bool {
        true
    }

    fn labels(&self) -> Option<&[u32]> {
        self.asked.labels()
    }

    fn head(&self) -> Head {
        self.asked.head()
    }

    fn open(&mut self) -> Option<Opening> {
        let item = *self.waiting.front()?;
        let maskings = &self.maskings[self.job.labels_of(item)].all;
        if self.next == 0 {
            self.found[item].sums = maskings.iter().map(|masking| vec![0.0; masking.tells.len()]).collect();
            self.found[item].left = maskings.len();
        }
        let masking = &maskings[self.next];
        let mut tokens = self.job.tokens(item);
        let prompt = tokens.len();
        let covered = (0..masking.tokens.len()).filter(|&at| masking.tokens[at].is_none());
        let wanted = covered.map(|at| self.row(prompt + at)).collect();
        tokens.extend(masking.tokens.iter().map(|token| token.unwrap_or(self.masks.id)));
        self.opened.push((item, self.next));
        self.next += 1;
        if self.next == maskings.len() {
            self.next = 0;
            self.waiting.pop_front();
        }
        Some(Opening { tokens, rank: item as u32, canvas: Some(wanted), ..Opening::default() })
    }

    fn read(&mut self, places: &[RowPlace], logits: Logits<'_>) {
        for (r, place) in places.iter().enumerate() {
            let row = logits.row(r);
            let (item, masking) = self.opened[place.index as usize];
            let set = self.job.labels_of(item);
            if !self.asked.long {
                self.found[item].row = self.asked.sets[set].row(&row, &self.asked.over(), &self.job);
                continue;
            }
            let at = place.position - self.row(self.job.length(item));
            let sums = &mut self.found[item].sums[masking];
            for ((label, weight), sum) in self.maskings[set].all[masking].tells.iter().zip(sums) {
                let id = self.asked.sets[set].tokens(*label)[at];
                *sum += weight * (f64::from(row.logits[id as usize]) - row.log_sum_exp);
            }
        }
    }

    fn advance(&mut self, done: &[Done], _elapsed: f64) -> Result<Vec<(u32, Next)>, EngineError> {
        for done in done {
            let (item, _) = self.opened[done.index as usize];
            self.found[item].left -= 1;
            if self.found[item].left == 0 {
                self.scored(item);
            }
        }
        Ok(done.iter().map(|done| (done.index, Next::Drop)).collect())
    }

    fn finished(&self) -> bool {
        self.unscored == 0
    }

    fn answer(self: Box<Self>, outcome: Result<Ran, EngineError>) {
        let Self { job, found, maskings, masks, reply, .. } = *self;
        let rows = found.into_iter().map(|found| found.row).collect();
        let sampled_labels = maskings.iter().map(|maskings| maskings.sampled).sum();
        let Masks { samples, seed, .. } = masks;
        let monte_carlo = Some(MonteCarlo { samples, seed, sampled_labels });
        let outcome = outcome.and_then(|ran| job.outcome(rows, Shared::default(), ran));
        reply(outcome.map(|outcome| ScoreOutcome { monte_carlo, ..outcome }));
    }
}
