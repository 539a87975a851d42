//! Several prompts, continued in lockstep: one pass per token for all of them.

use super::Timing;
use crate::answer::outcome::{BatchOutcome, TokenCounts};
use crate::answer::ticket::Reply;
use crate::error::EngineError;
use crate::gauges::Progress;
use crate::mode::sampler;
use crate::task::logits::Logits;
use crate::task::sequence::{Done, Next, Opening};
use crate::task::{Ran, RowOutput, RowPlace, Task};

/// Checked prompts that are continued together, greedily.
pub(crate) struct BatchJob {
    pub(crate) prompts: Vec<Vec<u32>>,
    pub(crate) max_new_tokens: usize,
    pub(crate) end_ids: Vec<u32>,
    pub(crate) kernel_path: String,
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
        Ok(if more { Next::Extend { token: id, drafts: Vec::new() } } else { Next::Drop })
    }
}

impl Task for BatchTask {
    fn longest(&self) -> usize {
        self.job.prompts.iter().map(Vec::len).max().unwrap_or(0) + self.job.max_new_tokens
    }

    fn output(&self) -> RowOutput<()> {
        RowOutput::Vocabulary
    }

    fn open(&mut self) -> Option<Opening> {
        let prompt = self.job.prompts.get(self.opened)?;
        self.opened += 1;
        Some(Opening { wanted: prompt.len() - 1, tokens: prompt.clone(), ..Opening::default() })
    }

    fn read(&mut self, places: &[RowPlace], logits: Logits<'_>) {
        let mut chosen = vec![None; places.len()];
        logits.divide(chosen.iter_mut().enumerate(), |_, logits, (r, chosen)| {
            *chosen = sampler::greedy(logits.row(r).logits);
        });
        for (place, chosen) in places.iter().zip(chosen) {
            self.chosen[place.index as usize] = chosen;
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

    fn progress(&self) -> Progress {
        let read = self.job.prompts.iter().zip(&self.filled).filter(|(_, filled)| **filled);
        Progress {
            prompt_tokens: read.map(|(prompt, _)| prompt.len()).sum(),
            generated_tokens: self.new.iter().map(Vec::len).sum(),
            ..Progress::default()
        }
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
