//! Several prompts continued together.

use std::sync::mpsc::channel;

use super::{Engine, some_tokens};
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::machine::OUTPUT_ROWS;
use crate::mode::autoregressive::{BatchJob, BatchTask, Continued};
use crate::outcome::{BatchOutcome, Usage};
use crate::request::BatchRequest;

impl Engine {
    /// Continues several prompts greedily, in one pass per token for all of them. Each gets the same ids as alone.
    pub fn generate_batch(
        &self,
        request: &BatchRequest,
        cancel: &Cancel,
    ) -> Result<BatchOutcome, EngineError> {
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
        let totals: Vec<usize> = prompts.iter().map(|prompt| prompt.len() + request.max_new_tokens).collect();
        self.check_room(format_args!("the prompts and their continuations"), &totals, 0)?;
        let prompt_tokens = prompts.iter().map(Vec::len).sum();
        let job = BatchJob {
            prompts,
            max_new_tokens: request.max_new_tokens,
            end_ids: if request.ignore_eos { Vec::new() } else { self.end_ids.clone() },
        };
        let (reply, answer) = channel();
        let _unheard = self.run(BatchTask::new(job, reply), cancel, None)?;
        let Continued { new: token_ids, timing } = answer.recv().map_err(|_| EngineError::Stopped)??;
        let completion_tokens = token_ids.iter().map(Vec::len).sum();
        let decoded: usize = token_ids.iter().map(|ids| ids.len().saturating_sub(1)).sum();
        Ok(BatchOutcome {
            token_ids,
            usage: Usage { prompt_tokens, completion_tokens, cached_tokens: 0 },
            prefill_s: timing.prefill_s,
            decode_s: timing.decode_s,
            decode_tokens_per_s: timing.rate(decoded),
            peak_memory_bytes: timing.peak_memory_bytes,
            kernel_path: self.info.kernel_path.clone(),
        })
    }
}
