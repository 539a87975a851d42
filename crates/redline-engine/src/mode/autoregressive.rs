//! Generation, one token after the other.

use redline_kernels::OutOfMemory;
use redline_models::kv::SeqId;

use crate::cancel::Cancel;
use crate::core::{CHUNK_TOKENS, Core, LogitsRow};
use crate::error::EngineError;
use crate::request::Sampling;
use crate::sampler::Sampler;

/// A checked request.
pub(crate) struct GenerateJob {
    pub(crate) prompt: Vec<u32>,
    pub(crate) max_new_tokens: usize,
    pub(crate) sampling: Sampling,
    pub(crate) end_ids: Vec<u32>,
    pub(crate) logprobs: Option<usize>,
    pub(crate) kv_cache: bool,
    pub(crate) cancel: Cancel,
}

/// A new token.
#[derive(Clone, Debug)]
pub(crate) struct NewToken {
    pub(crate) id: u32,
    pub(crate) ends: bool,
    /// Its own log-probability, then those of the most probable tokens.
    pub(crate) logprobs: Option<(f32, Vec<(u32, f32)>)>,
}

/// Durations and counts of a finished run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timing {
    pub(crate) prefill_s: f64,
    pub(crate) decode_s: f64,
    pub(crate) peak_memory_bytes: Option<u64>,
}

impl Core {
    /// Generates until the end, calling `emit` for every token; `emit` returns whether to go on.
    pub(crate) fn generate(
        &mut self,
        job: &GenerateJob,
        mut emit: impl FnMut(NewToken) -> bool,
    ) -> Result<Timing, EngineError> {
        redline_kernels::memory::reset_peak();
        let start = (self.clock)();
        let mut timing = Timing::default();
        let mut sampler = Sampler::default();
        let mut tokens = job.prompt.clone();
        let sequence = self.kv.create();
        let outcome = self.reserve(sequence, tokens.len() + job.max_new_tokens).map_err(EngineError::from);
        let outcome = outcome.and_then(|()| {
            for index in 0..job.max_new_tokens {
                if job.cancel.is_cancelled() {
                    break;
                }
                let Some(token) = self.next(job, sequence, &tokens, &mut sampler)? else { break };
                if index == 0 {
                    timing.prefill_s = self.seconds_since(start);
                }
                tokens.push(token.id);
                let ends = token.ends;
                if !emit(token) || ends {
                    break;
                }
            }
            Ok(())
        });
        self.kv.release(sequence);
        timing.decode_s = (self.seconds_since(start) - timing.prefill_s).max(0.0);
        timing.peak_memory_bytes = redline_kernels::memory::peak_bytes();
        outcome.map(|()| timing)
    }

    /// Runs what the sequence lacks of `tokens` and chooses the token after them; `None` when cancelled meanwhile.
    fn next(
        &mut self,
        job: &GenerateJob,
        sequence: SeqId,
        tokens: &[u32],
        sampler: &mut Sampler,
    ) -> Result<Option<NewToken>, EngineError> {
        if !job.kv_cache {
            self.kv.truncate(sequence, 0);
        }
        let stored = self.kv.tokens(sequence);
        let last = stored + (tokens.len() - stored - 1) / CHUNK_TOKENS * CHUNK_TOKENS;
        self.fill(sequence, &tokens[stored..last], &job.cancel)?;
        if self.kv.tokens(sequence) < last {
            return Ok(None);
        }
        let token = self.last_piece(job, sequence, &tokens[last..], tokens.len(), sampler)?;
        token.map(Some).ok_or_else(|| EngineError::NonFinite(format!("position {}", tokens.len())))
    }

    fn last_piece(
        &mut self,
        job: &GenerateJob,
        sequence: SeqId,
        piece: &[u32],
        position: usize,
        sampler: &mut Sampler,
    ) -> Result<Option<NewToken>, OutOfMemory> {
        self.batch.clear();
        self.push(sequence, piece)?;
        let (simd, mut chosen) = (self.simd, None);
        self.run(&[piece.len() - 1], None, job.logprobs.is_some(), |_, row| {
            chosen = sampler.choose(simd, row.logits, &job.sampling, position).map(|id| NewToken {
                id,
                ends: job.end_ids.contains(&id),
                logprobs: job.logprobs.map(|n| logprobs(&row, id, n)),
            });
        });
        Ok(chosen)
    }
}

/// The chosen token's log-probability and the `n` highest, ties by lower id.
fn logprobs(row: &LogitsRow<'_>, id: u32, n: usize) -> (f32, Vec<(u32, f32)>) {
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
