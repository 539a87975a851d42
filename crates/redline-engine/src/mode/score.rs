//! Scoring: prefill only.
//!
//! The longest token prefix that all prompts share is computed once; each prompt continues from it. The head is evaluated at
//! the last row of each prompt only, and only over the labels where the softmax is over labels: the normaliser over the
//! vocabulary cancels there.

use redline_kernels::{Matrix, OutOfMemory};
use redline_models::kv::SeqId;

use crate::cancel::Cancel;
use crate::core::{CHUNK_TOKENS, Core, LogitsRow, OUTPUT_ROWS};
use crate::error::EngineError;
use crate::outcome::{ItemError, ItemScore, ScoreOutcome, Usage};
use crate::prompt::Tokens;

/// A checked request.
pub(crate) struct ScoreJob {
    pub(crate) prompts: Vec<Result<Tokens, ItemError>>,
    pub(crate) labels: Vec<u32>,
    pub(crate) softmax: bool,
    pub(crate) full_logprobs: bool,
    pub(crate) return_token_ids: bool,
    pub(crate) item_errors: bool,
}

/// What logits are evaluated over.
struct Head<'a> {
    /// The distinct labels' rows of the head; `None`: all of it.
    labels: Option<&'a Matrix>,
    /// Where each label of the request stands in a row of logits.
    columns: &'a [usize],
    /// The labels' ids, ascending, each once.
    distinct: &'a [u32],
}

/// Scores and log-probabilities of one prompt.
struct Row {
    scores: Vec<f32>,
    logprobs: Vec<f32>,
    label_mass: Option<f32>,
}

impl Core {
    pub(crate) fn score(&mut self, job: ScoreJob, kernel_path: &str) -> Result<ScoreOutcome, EngineError> {
        redline_kernels::memory::reset_peak();
        let start = (self.clock)();
        let prompts: Vec<&[u32]> = job.prompts.iter().flatten().map(|p| &p.ids[..]).collect();
        let shared = shared_prefix(&prompts);
        let whole_vocabulary = !job.softmax || job.full_logprobs;
        // Each label is evaluated once, however often it stands in the request.
        let mut distinct = job.labels.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let column = |id: &u32| {
            if whole_vocabulary { *id as usize } else { distinct.partition_point(|other| other < id) }
        };
        let columns: Vec<usize> = job.labels.iter().map(column).collect();
        let labels = if whole_vocabulary { None } else { Some(self.model.head().gather(&distinct)?) };
        let head = Head { labels: labels.as_ref(), columns: &columns, distinct: &distinct };
        let rows = self.rows(&prompts, shared, &head, &job)?;
        let prompt_tokens = prompts.iter().map(|p| p.len()).sum();
        let computed = prompts.iter().map(|p| p.len() - shared).sum::<usize>() + shared;
        let mut rows = rows.into_iter();
        let mut items = Vec::with_capacity(job.prompts.len());
        for (index, prompt) in job.prompts.into_iter().enumerate() {
            let item = match prompt {
                Err(error) => Err(error),
                Ok(prompt) => match rows.next().flatten() {
                    Some(row) => Ok(item_score(row, prompt, job.return_token_ids)),
                    None if job.item_errors => {
                        let message = EngineError::NonFinite(format!("item {index}")).to_string();
                        Err(ItemError { index, message })
                    }
                    None => return Err(EngineError::NonFinite(format!("item {index}"))),
                },
            };
            items.push(item);
        }
        Ok(ScoreOutcome {
            items,
            label_token_ids: job.labels,
            usage: Usage { prompt_tokens, completion_tokens: 0, cached_tokens: 0 },
            computed_tokens: computed,
            shared_prefix_tokens: shared,
            compute_s: self.seconds_since(start),
            peak_memory_bytes: redline_kernels::memory::peak_bytes(),
            kernel_path: kernel_path.to_owned(),
        })
    }

    /// One row per prompt, in order; `None` where the model's output is not a number.
    fn rows(
        &mut self,
        prompts: &[&[u32]],
        shared: usize,
        head: &Head<'_>,
        job: &ScoreJob,
    ) -> Result<Vec<Option<Row>>, OutOfMemory> {
        let mut rows = Vec::with_capacity(prompts.len());
        let Some(first) = prompts.first() else { return Ok(rows) };
        let prefix = self.kv.create();
        let outcome = self.fill(prefix, &first[..shared], &Cancel::new()).and_then(|()| {
            let mut rest = prompts;
            while !rest.is_empty() {
                let count = self.group(prefix, rest, shared, head, job, &mut rows)?;
                rest = &rest[count..];
            }
            Ok(())
        });
        self.kv.release(prefix);
        outcome.map(|()| rows)
    }

    /// Scores as many of the next prompts as fit into one pass; returns how many.
    fn group(
        &mut self,
        prefix: SeqId,
        prompts: &[&[u32]],
        shared: usize,
        head: &Head<'_>,
        job: &ScoreJob,
        rows: &mut Vec<Option<Row>>,
    ) -> Result<usize, OutOfMemory> {
        let mut sequences = Vec::new();
        let outcome = self.pass(prefix, prompts, shared, &mut sequences, |core, outputs| {
            let over_labels = head.labels.is_some();
            core.run(outputs, head.labels, !over_labels, |_, row| rows.push(evaluate(&row, head, job)));
        });
        for &sequence in &sequences {
            self.kv.release(sequence);
        }
        outcome.map(|()| sequences.len())
    }

    /// Fills the batch with continuations of `prefix` and runs it.
    fn pass(
        &mut self,
        prefix: SeqId,
        prompts: &[&[u32]],
        shared: usize,
        sequences: &mut Vec<SeqId>,
        run: impl FnOnce(&mut Self, &[usize]),
    ) -> Result<(), OutOfMemory> {
        // A continuation longer than a pass is run up to its last piece first, alone.
        let piece = |prompt: &[u32]| (prompt.len() - shared - 1) / CHUNK_TOKENS * CHUNK_TOKENS;
        let mut outputs = Vec::new();
        let (mut tokens, mut long) = (0, false);
        let mut pieces = Vec::new();
        for prompt in prompts {
            let early = shared + piece(prompt);
            tokens += prompt.len() - early;
            let full = tokens > CHUNK_TOKENS || sequences.len() == OUTPUT_ROWS;
            if !sequences.is_empty() && (full || early > shared || long) {
                break;
            }
            long = early > shared;
            let sequence = self.kv.fork(prefix, shared);
            sequences.push(sequence);
            self.fill(sequence, &prompt[shared..early], &Cancel::new())?;
            pieces.push(&prompt[early..]);
        }
        self.batch.clear();
        for (&sequence, piece) in sequences.iter().zip(pieces) {
            self.push(sequence, piece)?;
            outputs.push(self.batch.rows() - 1);
        }
        run(self, &outputs);
        Ok(())
    }
}

/// Length of the longest common token prefix, leaving every prompt at least one token of its own; 0 for a single prompt.
fn shared_prefix(prompts: &[&[u32]]) -> usize {
    let [first, rest @ ..] = prompts else { return 0 };
    if rest.is_empty() {
        return 0;
    }
    let longest = prompts.iter().map(|p| p.len() - 1).min().unwrap_or(0);
    rest.iter().fold(longest, |n, p| first[..n].iter().zip(*p).take_while(|(a, b)| a == b).count())
}

/// Scores of one row of logits, over the labels or over the vocabulary.
fn evaluate(row: &LogitsRow<'_>, head: &Head<'_>, job: &ScoreJob) -> Option<Row> {
    let over_labels = head.labels.is_some();
    let logits: Vec<f64> = head.columns.iter().map(|&column| f64::from(row.logits[column])).collect();
    let over = log_softmax(&logits);
    if !logits.iter().all(|x| x.is_finite()) || !row.log_sum_exp.is_finite() {
        return None;
    }
    let full: Vec<f64> = logits.iter().map(|x| x - row.log_sum_exp).collect();
    let exp = |values: &[f64]| values.iter().map(|&x| libm::exp(x) as f32).collect();
    let single = |values: &[f64]| values.iter().map(|&x| x as f32).collect();
    let scores = if job.softmax { exp(&over) } else { exp(&full) };
    if over_labels {
        return Some(Row { scores, logprobs: single(&over), label_mass: None });
    }
    let probability = |id: &u32| libm::exp(f64::from(row.logits[*id as usize]) - row.log_sum_exp);
    let mass: f64 = head.distinct.iter().map(probability).sum();
    Some(Row { scores, logprobs: single(&full), label_mass: Some(mass as f32) })
}

fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|x| libm::exp(x - max)).sum();
    let log_sum = max + libm::log(sum);
    logits.iter().map(|x| x - log_sum).collect()
}

fn item_score(row: Row, prompt: Tokens, return_token_ids: bool) -> ItemScore {
    ItemScore {
        scores: row.scores,
        logprobs: row.logprobs,
        label_mass: row.label_mass,
        prompt_tokens: prompt.ids.len(),
        truncated: prompt.truncated,
        boundary_mismatch: prompt.boundary_mismatch,
        token_ids: return_token_ids.then_some(prompt.ids),
    }
}

#[cfg(test)]
mod tests {
    use super::shared_prefix;

    #[test]
    fn the_shared_prefix_leaves_each_prompt_a_token() {
        assert_eq!(shared_prefix(&[]), 0);
        assert_eq!(shared_prefix(&[&[1, 2, 3]]), 0);
        assert_eq!(shared_prefix(&[&[1, 2, 3], &[1, 2, 3]]), 2);
        assert_eq!(shared_prefix(&[&[1, 2, 3], &[1, 2, 4, 5]]), 2);
        assert_eq!(shared_prefix(&[&[1, 2, 3], &[1, 2]]), 1);
        assert_eq!(shared_prefix(&[&[1, 2, 3, 4], &[9, 2], &[1, 2, 3, 4]]), 0);
        assert_eq!(shared_prefix(&[&[1], &[1]]), 0);
    }
}
