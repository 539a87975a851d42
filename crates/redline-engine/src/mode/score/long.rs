//! Labels of several tokens: each continues every prompt, and its log-probability is the sum over its tokens, each given those
//! before it.

use redline_kernels::op::kv::PAGE_TOKENS;
use redline_models::kv::SeqId;

use super::{Row, ScoreJob, log_softmax};
use crate::core::{Core, LogitsRow, OUTPUT_ROWS};
use crate::error::EngineError;

/// The distinct labels of a request of which some have several tokens.
pub(super) struct LongLabels<'a> {
    /// Ascending, each once.
    distinct: Vec<&'a [u32]>,
    /// Where each label of the request stands in `distinct`.
    columns: Vec<usize>,
}

/// A label to be run behind a prompt.
#[derive(Clone, Copy)]
struct Continuation {
    prompt: usize,
    label: usize,
}

impl<'a> LongLabels<'a> {
    /// `None` where every label is one token.
    pub(super) fn of(job: &'a ScoreJob) -> Option<Self> {
        if job.labels.iter().all(|label| label.len() == 1) {
            return None;
        }
        let mut distinct: Vec<&[u32]> = job.labels.iter().map(Vec::as_slice).collect();
        distinct.sort_unstable();
        distinct.dedup();
        let column = |label: &Vec<u32>| distinct.partition_point(|other| *other < label.as_slice());
        let columns = job.labels.iter().map(column).collect();
        Some(Self { distinct, columns })
    }

    /// Pages that running the longest label behind a prompt takes: where it parts from the prompt it has a page of its own.
    pub(super) fn pages(&self) -> usize {
        self.distinct.iter().map(|label| label.len()).max().unwrap_or(0).div_ceil(PAGE_TOKENS) + 1
    }

    /// Log-probability of the first token of each distinct label.
    pub(super) fn first(&self, row: &LogitsRow<'_>) -> Vec<f64> {
        self.distinct.iter().map(|label| f64::from(row.logits[label[0] as usize]) - row.log_sum_exp).collect()
    }

    /// The row of a prompt from the sums of its labels; `None` where the model's output is not a number.
    pub(super) fn row(&self, sums: &[f64], job: &ScoreJob) -> Option<Row> {
        let label = |&column: &usize| {
            let tokens = if job.mean { self.distinct[column].len() as f64 } else { 1.0 };
            sums[column] / tokens
        };
        let logprobs: Vec<f64> = self.columns.iter().map(label).collect();
        if !logprobs.iter().all(|x| x.is_finite()) {
            return None;
        }
        let over = if job.softmax { log_softmax(&logprobs) } else { logprobs.clone() };
        let told = if job.full_logprobs { &logprobs } else { &over };
        Some(Row {
            scores: over.iter().map(|&x| libm::exp(x) as f32).collect(),
            logprobs: told.iter().map(|&x| x as f32).collect(),
            // A label may begin another: their probabilities do not add up.
            label_mass: None,
        })
    }
}

impl Core {
    /// Adds to the `sums` of each prompt (`[prompts][distinct labels]`, the first tokens' log-probabilities so far) those of the
    /// further tokens. Returns how many tokens were run.
    pub(super) fn continue_labels(
        &mut self,
        prompts: &[(SeqId, &[u32])],
        labels: &LongLabels<'_>,
        sums: &mut [Vec<f64>],
    ) -> Result<usize, EngineError> {
        let long = |label: &usize| labels.distinct[*label].len() > 1;
        let of_prompt =
            |prompt| (0..labels.distinct.len()).filter(long).map(move |label| Continuation { prompt, label });
        let all: Vec<Continuation> = (0..prompts.len()).flat_map(of_prompt).collect();
        let mut rest = &all[..];
        let mut computed = 0;
        while !rest.is_empty() {
            let mut forks = Vec::new();
            let outcome = self.label_pass(prompts, labels, rest, &mut forks, sums);
            for &fork in &forks {
                self.kv.release(fork);
            }
            computed += outcome?;
            rest = &rest[forks.len()..];
        }
        Ok(computed)
    }

    /// Runs as many of the continuations as one pass takes, each in a fork of its prompt.
    fn label_pass(
        &mut self,
        prompts: &[(SeqId, &[u32])],
        labels: &LongLabels<'_>,
        continuations: &[Continuation],
        forks: &mut Vec<SeqId>,
        sums: &mut [Vec<f64>],
    ) -> Result<usize, EngineError> {
        // Which sum, and which token of the vocabulary, belongs to each row.
        let mut rows = Vec::new();
        self.batch.clear();
        for &Continuation { prompt, label } in continuations {
            let tokens = labels.distinct[label];
            let more = tokens.len() - 1;
            if !forks.is_empty() && rows.len() + more > OUTPUT_ROWS {
                break;
            }
            let (sequence, ids) = prompts[prompt];
            let fork = self.kv.fork(sequence, ids.len());
            if let Err(error) = self.push(fork, &tokens[..more]) {
                self.kv.release(fork);
                if forks.is_empty() {
                    return Err(error);
                }
                // The others go first and make room.
                break;
            }
            forks.push(fork);
            rows.extend(tokens[1..].iter().map(|&next| (prompt, label, next as usize)));
        }
        let outputs: Vec<usize> = (0..rows.len()).collect();
        self.run(&outputs, None, true, |r, row| {
            let (prompt, label, next) = rows[r];
            sums[prompt][label] += f64::from(row.logits[next]) - row.log_sum_exp;
        });
        Ok(rows.len())
    }
}
