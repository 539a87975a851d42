//! Passes whose activations somebody looks at, one step after the other.

use std::sync::mpsc::Sender;

use redline_kernels::memory::PeakMeter;
use redline_kernels::op::kv::Sight;
use redline_models::kv::SeqId;
use redline_models::model::Batch;
use redline_models::spec::Objective;

use super::Core;
use crate::error::EngineError;
use crate::machine::{Machine as _, ModelMachine, OUTPUT_ROWS, Outputs};
use crate::options::ActivationLog;

/// What is to be run and who looks.
pub(crate) struct ObserveJob {
    /// Tokens of each step: they follow each other in one sequence, or, where tokens see those after them, each is one.
    pub(crate) steps: Vec<Vec<u32>>,
    /// Tokens of a pass at most.
    pub(crate) chunk: usize,
    pub(crate) log: ActivationLog,
    pub(crate) reply: Sender<Result<(), EngineError>>,
}

impl Core<ModelMachine> {
    /// Runs the steps in a sequence of their own, with the logits of every row. Requests wait meanwhile.
    pub(crate) fn observe(&mut self, job: ObserveJob) {
        let ObserveJob { steps, chunk, log, reply } = job;
        // Requests that wait cannot tell its memory from theirs.
        let meter = PeakMeter::begin();
        let sequence = self.cache.kv.create();
        let ran = self.observe_in(sequence, &steps, chunk, &log);
        self.machine.observer = None;
        self.cache.kv.release(sequence);
        drop(meter);
        // A caller that is gone hears nothing.
        let _ = reply.send(ran);
    }

    fn observe_in(
        &mut self,
        sequence: SeqId,
        steps: &[Vec<u32>],
        chunk: usize,
        log: &ActivationLog,
    ) -> Result<(), EngineError> {
        let whole = self.machine.model.facts().objective != Objective::Next;
        let longest = steps.iter().map(Vec::len).max().unwrap_or(0);
        let positions = if whole { longest } else { steps.iter().map(Vec::len).sum() };
        self.machine.reserve(positions, if whole { longest } else { 0 })?;
        let mut batch = Batch::default();
        for (step, tokens) in steps.iter().enumerate() {
            self.machine.observer = Some((log.clone(), step));
            if whole {
                self.cache.kv.truncate(sequence, 0);
            }
            let all = tokens.len();
            let (chunk, sight) = if whole { (all, Sight::All(all)) } else { (chunk, Sight::Before) };
            for tokens in tokens.chunks(chunk.max(1)) {
                self.cache.reserve(sequence, tokens.len())?;
                batch.clear();
                batch.push(sequence, self.cache.kv.tokens(sequence), tokens, sight);
                let rows: Vec<usize> = (0..tokens.len()).collect();
                let outputs = rows.chunks(OUTPUT_ROWS);
                let outputs =
                    outputs.map(|rows| Outputs { rows: rows.to_vec(), labels: None, normalise: false });
                let outputs: Vec<_> = outputs.collect();
                let sizes: Vec<usize> = outputs.iter().map(|some| some.rows.len()).collect();
                self.machine.prepare(tokens.len(), &sizes)?;
                self.machine.run(&mut self.cache.kv, &batch, &outputs, &mut |_, _| ());
            }
        }
        Ok(())
    }
}
