//! Looking at the activations of a model: what parity with another implementation is judged by.

use std::sync::mpsc::channel;

use redline_models::activation::ActivationId;

use super::Engine;
use crate::core::ObserveJob;
use crate::error::EngineError;
use crate::options::ActivationLog;
use crate::runner::Job;

impl Engine {
    /// Every activation of a pass with the width of its rows, in the order in which [`Engine::observe`] shows them.
    pub fn activations(&self) -> &[(ActivationId, usize)] {
        &self.activations
    }

    /// Runs steps of tokens one after the other in one sequence, each in passes of at most the engine's largest, and shows every
    /// activation of every row to `log`. Requests wait meanwhile; plans, memory and bits are those of a request.
    pub fn observe(&self, steps: Vec<Vec<u32>>, log: ActivationLog) -> Result<(), EngineError> {
        let total = steps.iter().map(Vec::len).sum::<usize>();
        if let Some(empty) = steps.iter().position(Vec::is_empty) {
            return Err(EngineError::request(
                format!("step {empty} has no tokens"),
                "give each at least one",
            ));
        }
        if total == 0 || total > self.info.context {
            let fact =
                format!("{total} tokens in {} steps, for a context of {}", steps.len(), self.info.context);
            return Err(EngineError::request(fact, "give at least one token, and no more than the context"));
        }
        let vocab = self.info.vocab;
        let unknown = steps.iter().flatten().find(|&&id| id as usize >= vocab);
        if let Some(id) = unknown {
            let fact = format!("token id {id} exceeds the vocabulary of {vocab} entries");
            return Err(EngineError::request(fact, format!("ids run from 0 to {}", vocab - 1)));
        }
        self.check_room(format_args!("the steps"), &[total], 0)?;
        let (reply, answer) = channel();
        let job = ObserveJob { steps, chunk: self.info.max_chunk, log, reply };
        self.inbox()?.send(Job::Observe(job))?;
        answer.recv().map_err(|_| EngineError::Stopped)?
    }
}
