//! Generation for several prompts at once.

use super::{Engine, some_tokens};
use crate::answer::outcome::BatchOutcome;
use crate::answer::ticket::{BatchTicket, Ticket};
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::mode::autoregressive::{BatchJob, BatchTask};
use crate::plan::OUTPUT_ROWS;
use crate::request::{BatchRequest, Queueing};

impl Engine {
    /// Continues several prompts greedily, with one pass per token for all of them. Each prompt gets the same ids as if it ran
    /// alone.
    pub fn generate_batch(
        &self,
        request: &BatchRequest,
        cancel: &Cancel,
    ) -> Result<BatchOutcome, EngineError> {
        self.submit_batch(request, cancel)?.wait()
    }

    /// Starts to continue several prompts. Other requests may be submitted before this one is finished.
    pub fn submit_batch(&self, request: &BatchRequest, cancel: &Cancel) -> Result<BatchTicket, EngineError> {
        self.check_predicts_next()?;
        some_tokens(request.max_new_tokens)?;
        let batch = request.prompts.len();
        if !(1..=OUTPUT_ROWS).contains(&batch) {
            let hint = format!("give from 1 to {OUTPUT_ROWS}");
            return Err(EngineError::request(format!("a batch of {batch} prompts"), hint));
        }
        let limits = self.limits();
        let prompts = request.prompts.iter().map(|prompt| limits.prompt(prompt, request.max_new_tokens));
        let prompts = prompts.collect::<Result<Vec<_>, _>>()?;
        let resident =
            |prompt: &Vec<u32>| self.resident(prompt.len(), prompt.len() + request.max_new_tokens, false);
        let residents: Vec<usize> = prompts.iter().map(resident).collect();
        self.check_room(format_args!("the prompts and their continuations"), &residents, 0)?;
        let job = BatchJob {
            prompts,
            max_new_tokens: request.max_new_tokens,
            end_ids: if request.ignore_eos { Vec::new() } else { self.end_ids.clone() },
            kernel_path: self.info.kernel_path.clone(),
        };
        Ticket::begin(cancel, |reply, cancels| {
            self.run(BatchTask::new(job, reply), cancels, None, Queueing::default(), &request.adapters, None)
        })
    }
}
