//! Passes whose activations are reported to an observer, one step after another.

use std::sync::mpsc::Sender;

use redline_kernels::op::kv::AttentionMask;
use redline_models::adapter::Adapters;
use redline_models::kv::SeqId;
use redline_models::spec::Output;
use redline_system::memory::PeakMeter;

use super::Core;
use crate::error::EngineError;
use crate::heartbeat::machine::{Machine as _, ModelMachine};
use crate::options::ActivationLog;
use crate::task::RowOutput;

/// Steps to be run, and the observer of their activations.
pub(crate) struct ObserveJob {
    /// Tokens of each step. Steps continue one sequence, or, in a bidirectional model, each step is a sequence of its own.
    pub(crate) steps: Vec<Vec<u32>>,
    /// Maximum number of tokens in a pass.
    pub(crate) chunk: usize,
    pub(crate) log: ActivationLog,
    pub(crate) reply: Sender<Result<(), EngineError>>,
}

impl Core<ModelMachine> {
    /// Runs the steps in a separate sequence, with the logits of every row. Requests wait meanwhile.
    pub(crate) fn observe(&mut self, job: ObserveJob) {
        let ObserveJob { steps, chunk, log, reply } = job;
        // While this meter is active, waiting requests report no peak memory, since it would include the memory used here.
        let meter = PeakMeter::begin();
        let sequence = self.cache.kv.create();
        let ran = self.observe_in(sequence, &steps, chunk, &log);
        self.machine.observer = None;
        self.cache.kv.release(sequence);
        drop(meter);
        // The send fails if the caller is gone, which is no error.
        let _ = reply.send(ran);
    }

    fn observe_in(
        &mut self,
        sequence: SeqId,
        steps: &[Vec<u32>],
        chunk: usize,
        log: &ActivationLog,
    ) -> Result<(), EngineError> {
        let objective = self.machine.model.facts().objective;
        let whole = !objective.is_causal();
        let output = match objective.output {
            Output::States => RowOutput::State,
            Output::Tokens => RowOutput::Vocabulary,
        };
        let longest = steps.iter().map(Vec::len).max().unwrap_or(0);
        let positions = if whole { longest } else { steps.iter().map(Vec::len).sum() };
        self.machine.reserve(positions, if whole { longest } else { 0 })?;
        for (step, tokens) in steps.iter().enumerate() {
            self.machine.observer = Some((log.clone(), step));
            if whole {
                self.cache.kv.truncate(sequence, 0);
            }
            let all = tokens.len();
            let (chunk, attention) =
                if whole { (all, AttentionMask::Bidirectional(all)) } else { (chunk, AttentionMask::Causal) };
            for tokens in tokens.chunks(chunk.max(1)) {
                self.cache.reserve(sequence, tokens.len())?;
                self.batch.clear();
                self.batch.push(
                    sequence,
                    self.cache.kv.tokens(sequence),
                    tokens,
                    attention,
                    Adapters::default(),
                );
                let rows: Vec<usize> = (0..tokens.len()).collect();
                self.run_pass(&rows, (output, false), &mut |_, _| ())?;
            }
        }
        Ok(())
    }
}
