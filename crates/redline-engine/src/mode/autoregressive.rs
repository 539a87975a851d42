//! Generation, one token after the other.

use redline_kernels::Exec;
use redline_models::kv::SeqId;

use crate::cancel::Cancel;
use crate::core::{CHUNK_TOKENS, Core, LogitsRow};
use crate::error::EngineError;
use crate::request::Sampling;
use crate::sampler::{self, Sampler};

/// A checked request.
pub(crate) struct GenerateJob {
    pub(crate) prompt: Vec<u32>,
    pub(crate) max_new_tokens: usize,
    pub(crate) sampling: Sampling,
    pub(crate) end_ids: Vec<u32>,
    pub(crate) logprobs: Option<usize>,
    pub(crate) kv_cache: bool,
    pub(crate) cache_salt: String,
    pub(crate) cancel: Cancel,
}

/// Checked prompts that are continued together, greedily; at most [`OUTPUT_ROWS`](crate::core::OUTPUT_ROWS) of them.
pub(crate) struct BatchJob {
    pub(crate) prompts: Vec<Vec<u32>>,
    pub(crate) max_new_tokens: usize,
    pub(crate) end_ids: Vec<u32>,
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
    /// Prompt tokens taken from the prefix cache; `None` where it was not asked.
    pub(crate) cached_tokens: Option<usize>,
}

impl Timing {
    /// Tokens after the first ones, per second.
    pub(crate) fn rate(&self, decoded: usize) -> Option<f64> {
        (decoded > 0 && self.decode_s > 0.0).then(|| decoded as f64 / self.decode_s)
    }
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
        let sequence = if job.kv_cache {
            // The last token is run in any case: its logits are wanted.
            self.begin(&job.cache_salt, &tokens[..tokens.len() - 1])
        } else {
            self.kv.create()
        };
        let stored = self.kv.tokens(sequence);
        timing.cached_tokens = self.prefixes.is_some().then_some(stored).filter(|_| job.kv_cache);
        let outcome = self.reserve(sequence, tokens.len() + job.max_new_tokens - stored);
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
        if job.kv_cache {
            self.keep(&job.cache_salt, &tokens, sequence);
        }
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
    ) -> Result<Option<NewToken>, EngineError> {
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

/// What became of a batch.
pub(crate) struct Continued {
    /// The new ids of each prompt.
    pub(crate) new: Vec<Vec<u32>>,
    pub(crate) timing: Timing,
}

impl Core {
    /// Continues all prompts, one pass per token.
    pub(crate) fn generate_batch(&mut self, job: &BatchJob) -> Result<Continued, EngineError> {
        redline_kernels::memory::reset_peak();
        let start = (self.clock)();
        let sequences: Vec<SeqId> = job.prompts.iter().map(|_| self.kv.create()).collect();
        let outcome = self.lockstep(job, &sequences, start);
        for sequence in sequences {
            self.kv.release(sequence);
        }
        let (new, prefill_s) = outcome?;
        let decode_s = (self.seconds_since(start) - prefill_s).max(0.0);
        let peak_memory_bytes = redline_kernels::memory::peak_bytes();
        Ok(Continued { new, timing: Timing { prefill_s, decode_s, peak_memory_bytes, cached_tokens: None } })
    }

    /// The new ids of each sequence, and the seconds until each had its first. A sequence that ends leaves the batch.
    fn lockstep(
        &mut self,
        job: &BatchJob,
        sequences: &[SeqId],
        start: u64,
    ) -> Result<(Vec<Vec<u32>>, f64), EngineError> {
        for (&sequence, prompt) in sequences.iter().zip(&job.prompts) {
            self.reserve(sequence, prompt.len() + job.max_new_tokens)?;
        }
        self.fill_all(job, sequences)?;
        let mut all = job.prompts.clone();
        let mut open: Vec<usize> = (0..all.len()).collect();
        let mut prefill_s = 0.0;
        for index in 0..job.max_new_tokens {
            if open.is_empty() || job.cancel.is_cancelled() {
                break;
            }
            self.batch.clear();
            for &i in &open {
                self.push(sequences[i], &all[i][all[i].len() - 1..])?;
            }
            let rows: Vec<usize> = (0..open.len()).collect();
            let mut chosen = vec![None; open.len()];
            self.run(&rows, None, false, |r, row| chosen[r] = sampler::greedy(row.logits));
            for (&i, id) in open.iter().zip(chosen) {
                let place = || format!("position {} of sequence {i}", all[i].len());
                let id = id.ok_or_else(|| EngineError::NonFinite(place()))?;
                all[i].push(id);
            }
            if index == 0 {
                prefill_s = self.seconds_since(start);
            }
            open.retain(|&i| !all[i].last().is_some_and(|id| job.end_ids.contains(id)));
        }
        let new = all.iter().zip(&job.prompts).map(|(all, prompt)| all[prompt.len()..].to_vec()).collect();
        Ok((new, prefill_s))
    }

    /// Runs all prompts but their last tokens, as many together as a pass takes.
    fn fill_all(&mut self, job: &BatchJob, sequences: &[SeqId]) -> Result<(), EngineError> {
        self.batch.clear();
        for (&sequence, prompt) in sequences.iter().zip(&job.prompts) {
            let mut rest = &prompt[..prompt.len() - 1];
            while !rest.is_empty() && !job.cancel.is_cancelled() {
                let piece = rest.len().min(CHUNK_TOKENS - self.batch.rows());
                self.push(sequence, &rest[..piece])?;
                rest = &rest[piece..];
                if self.batch.rows() == CHUNK_TOKENS {
                    self.run_batch();
                }
            }
        }
        if self.batch.rows() > 0 {
            self.run_batch();
        }
        Ok(())
    }

    /// Runs the batch without asking for logits, and empties it.
    fn run_batch(&mut self) {
        let exec = Exec { simd: self.simd, team: &self.team };
        self.model.run(exec, &mut self.arena, &mut self.kv, &self.batch, |_, _, _| ());
        self.batch.clear();
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
