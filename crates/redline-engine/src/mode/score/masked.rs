//! Scoring with models that fill masks: labels after the prompt, partly masked.
//!
//! Each item is run once for each way to mask tokens of its labels ([`super::maskings`]), as a canvas of the prompt and the
//! partly masked label. All rows see each other, so prompts share nothing. The results of the canvases are added in the order
//! of a label's maskings, whenever they were run, so a score has the same bits whatever runs beside it.

use std::collections::VecDeque;

use super::labels::{LabelSet, Row};
use super::maskings::Maskings;
use super::{LabelLogits, ScoreJob, Shared};
use crate::answer::outcome::{MaskSamples, ScoreOutcome};
use crate::answer::ticket::Answer;
use crate::error::EngineError;
use crate::gauges::Progress;
use crate::task::logits::Logits;
use crate::task::sequence::{Done, Next, Opening};
use crate::task::{Ran, RowOutput, RowPlace, Task};

/// The mask token, and how maskings are sampled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Masks {
    /// Id of the mask token.
    pub(crate) id: u32,
    /// Whether row j predicts token j + 1.
    pub(crate) shifted: bool,
    /// Maximum number of maskings per label; at least 1.
    pub(crate) samples: usize,
    pub(crate) seed: u64,
}

/// State of an item.
#[derive(Default)]
struct ItemState {
    row: Option<Row>,
    /// For each canvas, in order, its contributions to the labels that it covers.
    sums: Vec<Vec<f64>>,
    /// Number of canvases that have not been run yet.
    left: usize,
}

/// A score request for a model that fills masks.
pub(crate) struct MaskedScoreTask {
    job: ScoreJob,
    reply: Answer<ScoreOutcome>,
    logits: LabelLogits,
    masks: Masks,
    /// The maskings of each list of labels.
    maskings: Vec<Maskings>,
    /// Items with canvases that are not open yet; `next` is the next masking of the first.
    waiting: VecDeque<usize>,
    next: usize,
    /// Item and masking of every sequence.
    opened: Vec<(usize, usize)>,
    items: Vec<ItemState>,
    unscored: usize,
    progress: Progress,
}

impl MaskedScoreTask {
    pub(crate) fn new(job: ScoreJob, masks: Masks, reply: Answer<ScoreOutcome>) -> Self {
        let logits = LabelLogits::of(&job);
        let of = |set: &LabelSet| Maskings::of(set.distinct(), masks.samples, masks.seed);
        let waiting: VecDeque<usize> = job.items().collect();
        Self {
            maskings: logits.sets.iter().map(of).collect(),
            items: job.prompts.iter().map(|_| ItemState::default()).collect(),
            unscored: waiting.len(),
            job,
            reply,
            logits,
            masks,
            waiting,
            next: 0,
            opened: Vec::new(),
            progress: Progress::default(),
        }
    }

    /// The row that predicts the token at a position.
    fn row(&self, position: usize) -> usize {
        // A prompt has at least one token.
        if self.masks.shifted { position - 1 } else { position }
    }

    /// Called when all canvases of an item have been run.
    fn scored(&mut self, item: usize) {
        let set = self.job.labels.of(item);
        let sums = std::mem::take(&mut self.items[item].sums);
        if self.logits.sets[set].is_long() {
            let part = |&(masking, tell): &(usize, usize)| sums[masking][tell];
            let of_label = |parts: &Vec<(usize, usize)>| parts.iter().map(part).sum();
            let of_labels: Vec<f64> = self.maskings[set].labels.iter().map(of_label).collect();
            self.items[item].row = self.logits.sets[set].long_row(&of_labels, None, &self.job);
        }
        self.unscored -= 1;
        self.progress.items += 1;
        self.progress.prompt_tokens += self.job.length(item);
    }
}

impl Task for MaskedScoreTask {
    fn longest(&self) -> usize {
        self.job.longest()
    }

    fn has_canvases(&self) -> bool {
        true
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

    fn open(&mut self) -> Option<Opening> {
        let item = *self.waiting.front()?;
        let maskings = &self.maskings[self.job.labels.of(item)].all;
        if self.next == 0 {
            self.items[item].sums = maskings.iter().map(|masking| vec![0.0; masking.labels.len()]).collect();
            self.items[item].left = maskings.len();
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
            let set = self.job.labels.of(item);
            if !self.logits.sets[set].is_long() {
                self.items[item].row = self.logits.sets[set].row(&row, self.logits.labels(), &self.job);
                continue;
            }
            let at = place.position - self.row(self.job.length(item));
            let sums = &mut self.items[item].sums[masking];
            for ((label, weight), sum) in self.maskings[set].all[masking].labels.iter().zip(sums) {
                let id = self.logits.sets[set].tokens(*label)[at];
                *sum += weight * (f64::from(row.logits[id as usize]) - row.log_sum_exp);
            }
        }
    }

    fn advance(&mut self, done: &[Done], _elapsed: f64) -> Result<Vec<(u32, Next)>, EngineError> {
        for done in done {
            let (item, _) = self.opened[done.index as usize];
            self.items[item].left -= 1;
            if self.items[item].left == 0 {
                self.scored(item);
            }
        }
        Ok(done.iter().map(|done| (done.index, Next::Drop)).collect())
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn finished(&self) -> bool {
        self.unscored == 0
    }

    fn answer(self: Box<Self>, outcome: Result<Ran, EngineError>) {
        let Self { job, items, maskings, masks, reply, .. } = *self;
        let rows = items.into_iter().map(|item| item.row).collect();
        let sampled_labels = maskings.iter().map(|maskings| maskings.sampled).sum();
        let Masks { samples, seed, .. } = masks;
        let monte_carlo = Some(MaskSamples { samples, seed, sampled_labels });
        let outcome = outcome.and_then(|ran| job.outcome(rows, Shared::default(), ran));
        reply(outcome.map(|outcome| ScoreOutcome { monte_carlo, ..outcome }));
    }
}
