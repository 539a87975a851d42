//! What the engine's thread owns: the model, its cache, its memory, its threads.

use redline_kernels::op::softmax::log_sum_exp;
use redline_kernels::{Exec, Matrix, OutOfMemory, Simd, Team};
use redline_models::Model;
use redline_models::kv::{KvCache, SeqId};
use redline_models::model::Batch;
use redline_models::step::Arena;

use crate::cancel::Cancel;
use crate::options::Clock;

/// Most rows whose logits are evaluated in one pass.
pub(crate) const OUTPUT_ROWS: usize = 64;
/// Most tokens of one pass; longer inputs are run in pieces of this size.
pub(crate) const CHUNK_TOKENS: usize = 512;

pub(crate) struct Core {
    pub(crate) model: Model,
    pub(crate) kv: KvCache,
    pub(crate) arena: Arena,
    pub(crate) team: Team,
    pub(crate) simd: Simd,
    pub(crate) clock: Clock,
    pub(crate) batch: Batch,
}

/// Logits of one row, over the whole vocabulary or over labels.
pub(crate) struct LogitsRow<'a> {
    pub(crate) logits: &'a [f32],
    /// `ln(sum e^logit)`; 0 where it was not asked for.
    pub(crate) log_sum_exp: f64,
}

impl Core {
    /// Seconds since `start` on the engine's clock.
    pub(crate) fn seconds_since(&self, start: u64) -> f64 {
        ((self.clock)().saturating_sub(start)) as f64 * 1e-9
    }

    /// Makes room for `more` tokens of a sequence.
    pub(crate) fn reserve(&mut self, sequence: SeqId, more: usize) -> Result<(), OutOfMemory> {
        let end = self.kv.tokens(sequence) + more;
        self.model.reserve_positions(end)?;
        self.kv.reserve(sequence, more)
    }

    /// Runs `tokens` of one sequence without asking for logits; stops early between pieces when `cancel` says so.
    pub(crate) fn fill(
        &mut self,
        sequence: SeqId,
        tokens: &[u32],
        cancel: &Cancel,
    ) -> Result<(), OutOfMemory> {
        for piece in tokens.chunks(CHUNK_TOKENS) {
            if cancel.is_cancelled() {
                break;
            }
            self.batch.clear();
            self.push(sequence, piece)?;
            let exec = Exec { simd: self.simd, team: &self.team };
            self.model.run(exec, &mut self.arena, &mut self.kv, &self.batch, |_, _, _| ());
        }
        Ok(())
    }

    /// Adds tokens of a sequence to the next pass.
    pub(crate) fn push(&mut self, sequence: SeqId, tokens: &[u32]) -> Result<(), OutOfMemory> {
        self.reserve(sequence, tokens.len())?;
        self.batch.push(sequence, self.kv.tokens(sequence), tokens);
        Ok(())
    }

    /// Runs the batch and hands `read` the logits of `rows` (at most [`OUTPUT_ROWS`]), one by one, over `labels` or over
    /// the whole vocabulary.
    pub(crate) fn run(
        &mut self,
        rows: &[usize],
        labels: Option<&Matrix>,
        normalise: bool,
        mut read: impl FnMut(usize, LogitsRow<'_>),
    ) {
        let exec = Exec { simd: self.simd, team: &self.team };
        self.model.run(exec, &mut self.arena, &mut self.kv, &self.batch, |model, x, step| {
            let logits = model.logits(x, rows, labels.unwrap_or_else(|| model.head()), step);
            let values = step.read(logits);
            let mut sums = [0f64; OUTPUT_ROWS];
            if normalise {
                log_sum_exp(exec, values, &mut sums);
            }
            for (r, &log_sum_exp) in sums[..rows.len()].iter().enumerate() {
                read(r, LogitsRow { logits: values.row(r), log_sum_exp });
            }
        });
    }
}
