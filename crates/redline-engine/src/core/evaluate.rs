//! Passes over the windows of a text whose likelihood is computed; one runs beside every pass of the requests.
//!
//! A window holds its keys and values between two passes, but yields to requests: if there is no room for its next pass, it
//! releases them, waits, and is later run again from its first token. So no request waits for a waiting window, and no window
//! for another.

use std::sync::mpsc::SendError;

use redline_kernels::op::kv::AttentionMask;
use redline_models::kv::SeqId;

use super::{Core, seconds_between};
use crate::error::EngineError;
use crate::machine::{Logits, Machine, OUTPUT_ROWS, Outputs};
use crate::mode::perplexity::{EvaluateJob, Evaluated, Reader};

impl<M: Machine> Core<M> {
    /// Queues the next pass of a window.
    pub(crate) fn evaluate(&mut self, job: EvaluateJob) {
        // Until the job is answered, it owns the keys and values of the window.
        self.windows -= usize::from(job.sequence.is_some());
        self.evaluations.push_back(job);
    }

    /// Releases the sequence of a window whose caller is gone.
    pub(crate) fn release(&mut self, sequence: SeqId) {
        self.windows -= 1;
        self.cache.kv.release(sequence);
    }

    /// Runs the first waiting pass if there is room for it. Returns whether anything was done.
    pub(super) fn evaluate_next(&mut self) -> bool {
        let Some(mut job) = self.evaluations.pop_front() else { return false };
        let sequence = job.sequence.take().unwrap_or_else(|| self.cache.kv.create());
        let missing = job.tokens.len() - self.cache.kv.tokens(sequence);
        let evaluated = match self.cache.reserve(sequence, missing) {
            Err(_) if !self.tasks.is_empty() || self.windows > 0 => {
                self.cache.kv.release(sequence);
                self.evaluations.push_back(job);
                return false;
            }
            Err(full) => Err(full.into()),
            Ok(()) => self.evaluate_in(sequence, &job.tokens, Reader::new(job.next, job.wanted)),
        };
        match &evaluated {
            Ok(_) => self.windows += 1,
            Err(_) => self.cache.kv.release(sequence),
        }
        // The caller may be gone.
        if let Err(SendError(Ok(unheard))) = job.reply.send(evaluated) {
            self.release(unheard.sequence);
        }
        true
    }

    /// Runs the tokens of the window that are not stored yet; there is room for them.
    fn evaluate_in(
        &mut self,
        sequence: SeqId,
        tokens: &[u32],
        mut reader: Reader,
    ) -> Result<Evaluated, EngineError> {
        let start = (self.clock)();
        self.machine.reserve(tokens.len(), 0)?;
        let read_from = tokens.len() - reader.rows();
        let chunk = self.scheduler.rows();
        for first in (self.cache.kv.tokens(sequence)..tokens.len()).step_by(chunk) {
            let end = tokens.len().min(first + chunk);
            self.batch.clear();
            self.batch.push(sequence, first, &tokens[first..end], AttentionMask::Causal);
            let rows: Vec<usize> = (read_from.clamp(first, end) - first..end - first).collect();
            let groups = rows.chunks(OUTPUT_ROWS);
            let outputs = groups.map(|rows| Outputs { rows: rows.to_vec(), labels: None, normalise: true });
            self.run_pass(&outputs.collect::<Vec<_>>(), &mut |logits, rows| reader.read(logits, rows))?;
        }
        let seconds = seconds_between(start, (self.clock)());
        Ok(Evaluated { sequence, readings: reader.into_readings(), seconds })
    }

    /// Prepares and runs the batch on its own, with logits over the vocabulary. `read` receives the logits of each of `outputs`
    /// and their number of rows.
    pub(super) fn run_pass(
        &mut self,
        outputs: &[Outputs<'_, M::Labels>],
        read: &mut dyn FnMut(Logits<'_>, usize),
    ) -> Result<(), EngineError> {
        let sizes: Vec<usize> = outputs.iter().map(|output| output.rows.len()).collect();
        self.machine.prepare(self.batch.rows(), &sizes)?;
        let ran = self.run_guarded(outputs, &mut |group, logits| read(logits, sizes[group]));
        ran.map_err(EngineError::Panicked)
    }
}
