//! Access to the activations of a model, for comparison with another implementation.

use std::sync::mpsc::channel;

use redline_models::activation::ActivationId;

use super::Engine;
use crate::error::EngineError;
use crate::heartbeat::core::ObserveJob;
use crate::heartbeat::runner::Job;
use crate::options::ActivationLog;

impl Engine {
    /// Every activation of a pass with the width of its rows, in the order in which [`Engine::observe`] reports them.
    pub fn activations(&self) -> &[(ActivationId, usize)] {
        &self.activations
    }

    /// Runs steps of tokens one after another in one sequence, in passes no larger than `max_chunk`, and passes every row of
    /// every activation to `log`. Requests wait meanwhile. Plans, memory and bits are those of an ordinary request.
    pub fn observe(&self, steps: Vec<Vec<u32>>, log: ActivationLog) -> Result<(), EngineError> {
        // Each step of a model whose rows see later rows is a canvas of its own.
        let canvases = !self.info.objective.is_causal();
        let lengths = || steps.iter().map(Vec::len);
        let total = if canvases { lengths().max().unwrap_or(0) } else { lengths().sum() };
        if let Some(empty) = steps.iter().position(Vec::is_empty) {
            return Err(EngineError::request(
                format!("step {empty} has no tokens"),
                "give each at least one",
            ));
        }
        if total == 0 || total > self.info.context {
            let what = if canvases { "the longest of" } else { "in" };
            let fact = format!(
                "{total} tokens {what} {} steps, for a context of {}",
                steps.len(),
                self.info.context
            );
            return Err(EngineError::request(fact, "give at least one token, and no more than the context"));
        }
        let vocab = self.info.vocab;
        let unknown = steps.iter().flatten().find(|&&id| id as usize >= vocab);
        if let Some(id) = unknown {
            let fact = format!("token id {id} exceeds the vocabulary of {vocab} entries");
            return Err(EngineError::request(fact, format!("ids run from 0 to {}", vocab - 1)));
        }
        if canvases {
            self.check_canvas(format_args!("the longest step"), total, 1, 0)?;
        } else {
            self.check_room(format_args!("the steps"), &[total], 0)?;
        }
        let (reply, answer) = channel();
        let job = ObserveJob { steps, chunk: self.info.max_chunk, log, reply };
        self.inbox()?.send(Job::Observe(job))?;
        answer.recv().map_err(|_| EngineError::Stopped)?
    }
}
