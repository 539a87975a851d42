//! Passes over the windows of a text whose likelihood is computed; one runs beside every pass of the requests.
//!
//! A window holds its keys and values between two passes, but yields to requests: if there is no room for its next pass, it
//! releases them, waits, and is later run again from its first token. So no request waits for a waiting window, and no window
//! for another.

use redline_kernels::op::kv::AttentionMask;
use redline_models::kv::{KvError, SeqId};

use super::{Core, seconds_between};
use crate::error::EngineError;
use crate::machine::{Machine, OUTPUT_ROWS, Outputs};
use crate::mode::perplexity::{EvaluateJob, Evaluated, Reader, Wanted};

/// Why a pass was not run.
enum NotRun {
    /// There is no room for the window's keys and values.
    NoRoom(KvError),
    /// The pass failed.
    Failed(EngineError),
}

impl<E: Into<EngineError>> From<E> for NotRun {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

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
        let start = (self.clock)();
        let sequence = job.sequence.take().unwrap_or_else(|| self.cache.kv.create());
        let answer = match self.evaluate_in(sequence, &mut job) {
            Ok(reader) => {
                let seconds = seconds_between(start, (self.clock)());
                Ok(Evaluated { sequence, readings: reader.into_readings(), seconds })
            }
            Err(not_run) => {
                self.cache.kv.release(sequence);
                match not_run {
                    NotRun::NoRoom(_) if !self.tasks.is_empty() || self.windows > 0 => {
                        self.evaluations.push_back(job);
                        return false;
                    }
                    NotRun::NoRoom(error) => Err(error.into()),
                    NotRun::Failed(error) => Err(error),
                }
            }
        };
        self.windows += usize::from(answer.is_ok());
        if let Err(unheard) = job.reply.send(answer)
            && let Ok(Evaluated { sequence, .. }) = unheard.0
        {
            self.release(sequence);
        }
        true
    }

    /// Runs the tokens of the window that are not stored yet.
    fn evaluate_in(&mut self, sequence: SeqId, job: &mut EvaluateJob) -> Result<Reader, NotRun> {
        let (stored, end) = (self.cache.kv.tokens(sequence), job.tokens.len());
        self.machine.reserve(end, 0)?;
        self.cache.reserve(sequence, end - stored).map_err(NotRun::NoRoom)?;
        let wanted = end - job.next.len();
        let mut reader =
            Reader::new(std::mem::take(&mut job.next), std::mem::replace(&mut job.wanted, Wanted::Nothing));
        for start in (stored..end).step_by(self.scheduler.rows()) {
            let tokens = &job.tokens[start..end.min(start + self.scheduler.rows())];
            self.batch.clear();
            self.batch.push(sequence, start, tokens, AttentionMask::Causal);
            let rows: Vec<usize> =
                (wanted.max(start).min(start + tokens.len()) - start..tokens.len()).collect();
            let groups: Vec<&[usize]> = rows.chunks(OUTPUT_ROWS).collect();
            let sizes: Vec<usize> = groups.iter().map(|group| group.len()).collect();
            self.machine.prepare(tokens.len(), &sizes)?;
            let output = |rows: &&[usize]| Outputs { rows: rows.to_vec(), labels: None, normalise: true };
            let outputs: Vec<_> = groups.iter().map(output).collect();
            let ran = self.run_guarded(&outputs, &mut |group, logits| reader.read(logits, sizes[group]));
            ran.map_err(EngineError::Panicked)?;
        }
        Ok(reader)
    }
}
