//! Passes over the windows of a text whose likelihood is computed; one runs beside every pass of the requests.
//!
//! Between two passes, the cache holds the keys and values of a window only as long as nothing else needs their room. A window
//! without them is run again from its first token. So neither requests nor windows wait for a window that does not run.

use std::ops::Range;

use redline_kernels::op::kv::AttentionMask;
use redline_models::adapter::Adapters;
use redline_models::kv::SeqId;

use super::{Core, seconds_between};
use crate::error::EngineError;
use crate::gauges::PassKind;
use crate::heartbeat::machine::{Machine, Outputs};
use crate::memory::cache::WindowId;
use crate::mode::perplexity::{EvaluateJob, Evaluated, Reader};
use crate::plan::OUTPUT_ROWS;
use crate::task::RowOutput;
use crate::task::logits::Logits;

impl<M: Machine> Core<M> {
    /// Queues the next pass of a window.
    pub(crate) fn evaluate(&mut self, job: EvaluateJob) {
        self.evaluations.push_back(job);
    }

    /// Releases the keys and values of a window, if it still has any.
    pub(crate) fn release(&mut self, window: WindowId) {
        if let Some(sequence) = self.cache.take_window(window) {
            self.cache.kv.release(sequence);
        }
    }

    /// Runs the first waiting pass if there is room for it.
    pub(super) fn evaluate_next(&mut self) {
        let Some(job) = self.evaluations.pop_front() else { return };
        let held = job.window.and_then(|window| self.cache.take_window(window));
        let sequence = held.unwrap_or_else(|| self.cache.kv.create());
        let missing = job.tokens.len() - self.cache.kv.tokens(sequence);
        let evaluated = match self.cache.reserve(sequence, missing) {
            Err(_) if !self.tasks.is_empty() => {
                self.cache.kv.release(sequence);
                self.evaluations.push_back(job);
                return;
            }
            Err(full) => Err(full.into()),
            Ok(()) => {
                self.evaluate_in(sequence, &job.tokens, &job.adapters, Reader::new(job.next, job.wanted))
            }
        };
        if evaluated.is_err() {
            self.cache.kv.release(sequence);
        }
        // The send fails if the caller is gone, which is no error: what needs the window's room releases it.
        let _ = job.reply.send(evaluated);
    }

    /// Runs the tokens of the window that are not stored yet; there is room for them.
    fn evaluate_in(
        &mut self,
        sequence: SeqId,
        tokens: &[u32],
        adapters: &Adapters,
        mut reader: Reader,
    ) -> Result<Evaluated, EngineError> {
        let start = (self.clock)();
        self.machine.reserve(tokens.len(), 0)?;
        let (stored, read_from) = (self.cache.kv.tokens(sequence), tokens.len() - reader.rows());
        let chunk = self.scheduler.rows();
        for first in (stored..tokens.len()).step_by(chunk) {
            let end = tokens.len().min(first + chunk);
            self.batch.clear();
            self.batch.push(sequence, first, &tokens[first..end], AttentionMask::Causal, adapters.clone());
            let rows: Vec<usize> = (read_from.clamp(first, end) - first..end - first).collect();
            self.run_pass(&rows, (RowOutput::Vocabulary, true), &mut |logits, rows| {
                reader.read(logits, rows);
            })?;
        }
        let end = (self.clock)();
        let seconds = seconds_between(start, end);
        self.gauges.passed(PassKind::Window, tokens.len() - stored, end.saturating_sub(start));
        let window = self.cache.leave_window(sequence);
        Ok(Evaluated { window, readings: reader.into_readings(), seconds })
    }

    /// Runs the batch as a pass of its own, and makes `output` of `rows`, if `normalise` with their log-sum-exp. `read` receives the values
    /// of at most [`OUTPUT_ROWS`] rows at a time, and the number of these rows.
    pub(super) fn run_pass(
        &mut self,
        rows: &[usize],
        (output, normalise): (RowOutput<&M::Labels>, bool),
        read: &mut dyn FnMut(Logits<'_>, usize),
    ) -> Result<(), EngineError> {
        let groups =
            (0..rows.len()).step_by(OUTPUT_ROWS).map(|first| first..rows.len().min(first + OUTPUT_ROWS));
        let of = |rows: Range<usize>| Outputs { rows: rows.collect(), output, normalise };
        let outputs: Vec<_> = groups.map(of).collect();
        let sizes: Vec<usize> = outputs.iter().map(|output| output.rows.len()).collect();
        let planned = if matches!(output, RowOutput::Vocabulary) { &sizes[..] } else { &[] };
        let prepared = self.machine.prepare(self.batch.rows(), planned);
        let ran = prepared
            .map(|_| self.run_guarded(rows, &outputs, None, &mut |group, logits| read(logits, sizes[group])));
        if matches!(ran, Ok(Ok(()))) {
            self.log_pass(&[], rows.len());
        }
        // Adapters that end now leave memory.
        self.batch.clear();
        ran?.map_err(EngineError::Panicked)
    }
}
