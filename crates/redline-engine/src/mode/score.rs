//! Scoring: prefill only.
//!
//! The longest token prefix that all prompts share is computed once, or taken from what an earlier request left; each prompt
//! continues from it, or from a longer beginning that was kept. The head is evaluated at the last row of each prompt only,
//! and only over the labels where the softmax is over labels: the normaliser over the vocabulary cancels there. Labels of several
//! tokens continue each prompt once more (`long.rs`).

mod long;

use redline_kernels::Matrix;
use redline_kernels::op::kv::PAGE_TOKENS;
use redline_models::kv::SeqId;

use self::long::LongLabels;
use crate::cancel::Cancel;
use crate::core::{CHUNK_TOKENS, Core, LogitsRow, OUTPUT_ROWS};
use crate::error::EngineError;
use crate::outcome::{ItemError, ItemScore, PrefixCacheUse, ScoreOutcome, Usage};
use crate::prompt::Tokens;

/// A checked request.
pub(crate) struct ScoreJob {
    pub(crate) prompts: Vec<Result<Tokens, ItemError>>,
    /// The tokens of each label, at least one.
    pub(crate) labels: Vec<Vec<u32>>,
    /// Divide the log-probability of a label by the number of its tokens.
    pub(crate) mean: bool,
    pub(crate) softmax: bool,
    pub(crate) full_logprobs: bool,
    pub(crate) return_token_ids: bool,
    pub(crate) item_errors: bool,
    pub(crate) cache_salt: String,
}

/// What logits are evaluated over.
struct Head<'a> {
    /// The distinct labels' rows of the head; `None`: all of it.
    labels: Option<&'a Matrix>,
    /// Where each label of the request stands in a row of logits.
    columns: &'a [usize],
    /// The labels' ids, ascending, each once.
    distinct: &'a [u32],
    /// Where labels have several tokens.
    long: Option<&'a LongLabels<'a>>,
}

/// The prompts of a request and how to read them.
#[derive(Clone, Copy)]
struct Task<'a> {
    prompts: &'a [&'a [u32]],
    /// Tokens that all prompts share.
    shared: usize,
    head: &'a Head<'a>,
    job: &'a ScoreJob,
}

/// What was done of it, prompt by prompt.
#[derive(Default)]
struct Done {
    /// `None` where the model's output is not a number.
    rows: Vec<Option<Row>>,
    /// Tokens of each prompt that were stored before its own pass.
    stored: Vec<usize>,
    /// Tokens run through the model.
    computed: usize,
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
        let long = LongLabels::of(&job);
        let whole_vocabulary = !job.softmax || job.full_logprobs || long.is_some();
        // Each label is evaluated once, however often it stands in the request.
        let mut distinct: Vec<u32> = job.labels.iter().map(|label| label[0]).collect();
        distinct.sort_unstable();
        distinct.dedup();
        let column = |label: &Vec<u32>| {
            let id = label[0];
            if whole_vocabulary { id as usize } else { distinct.partition_point(|&other| other < id) }
        };
        let columns: Vec<usize> = job.labels.iter().map(column).collect();
        let labels = if whole_vocabulary { None } else { Some(self.model.head().gather(&distinct)?) };
        let head =
            Head { labels: labels.as_ref(), columns: &columns, distinct: &distinct, long: long.as_ref() };
        // Asked before anything is computed: what this request leaves does not count as cached.
        let known: Vec<Option<usize>> =
            prompts.iter().map(|p| self.cached(&job.cache_salt, &p[..p.len() - 1])).collect();
        let done = self.score_prompts(Task { prompts: &prompts, shared, head: &head, job: &job })?;
        let mut prefix_cache = self.prefixes.is_some().then(PrefixCacheUse::default);
        for (known, &stored) in known.into_iter().zip(&done.stored) {
            if let (Some(known), Some(sum)) = (known, &mut prefix_cache) {
                sum.count(known.min(stored));
            }
        }
        let prompt_tokens = prompts.iter().map(|p| p.len()).sum();
        let mut rows = done.rows.into_iter();
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
            usage: Usage {
                prompt_tokens,
                completion_tokens: 0,
                cached_tokens: prefix_cache.map_or(0, |sum| sum.cached_tokens),
            },
            computed_tokens: done.computed,
            shared_prefix_tokens: shared,
            prefix_cache,
            compute_s: self.seconds_since(start),
            peak_memory_bytes: redline_kernels::memory::peak_bytes(),
            kernel_path: kernel_path.to_owned(),
        })
    }

    /// Scores all prompts, in order.
    fn score_prompts(&mut self, task: Task<'_>) -> Result<Done, EngineError> {
        let mut done = Done::default();
        let Some(first) = task.prompts.first() else { return Ok(done) };
        let (salt, shared) = (&task.job.cache_salt, &first[..task.shared]);
        let prefix = self.begin(salt, shared);
        let stored = self.kv.tokens(prefix);
        done.computed = shared.len() - stored;
        let outcome = self.fill(prefix, &shared[stored..], &Cancel::new()).and_then(|()| {
            self.keep(salt, shared, prefix);
            while done.rows.len() < task.prompts.len() {
                self.group(prefix, task, &mut done)?;
            }
            Ok(())
        });
        self.kv.release(prefix);
        outcome.map(|()| done)
    }

    /// Scores as many of the next prompts as fit into one pass.
    fn group(&mut self, prefix: SeqId, task: Task<'_>, done: &mut Done) -> Result<(), EngineError> {
        let mut sequences = Vec::new();
        let outcome = self.pass(prefix, task, done, &mut sequences);
        for &(sequence, prompt) in &sequences {
            // A page for the few tokens of a short item is better left to others.
            if outcome.is_ok() && (task.prompts.len() == 1 || prompt.len() >= task.shared + PAGE_TOKENS) {
                self.keep(&task.job.cache_salt, prompt, sequence);
            }
            self.kv.release(sequence);
        }
        outcome
    }

    /// Begins a sequence for each of the next prompts that one pass takes, and runs them.
    fn pass<'a>(
        &mut self,
        prefix: SeqId,
        task: Task<'a>,
        done: &mut Done,
        sequences: &mut Vec<(SeqId, &'a [u32])>,
    ) -> Result<(), EngineError> {
        let Task { shared, head, job, .. } = task;
        let (mut tokens, mut long) = (0, false);
        let mut pieces = Vec::new();
        for &prompt in &task.prompts[done.rows.len()..] {
            // All but the last token may have been kept: its logits are wanted.
            let body = &prompt[..prompt.len() - 1];
            let stored = self.cached(&job.cache_salt, body).unwrap_or(0).max(shared);
            // What exceeds a pass is run up to its last piece first, alone.
            let early = stored + (body.len() - stored) / CHUNK_TOKENS * CHUNK_TOKENS;
            tokens += prompt.len() - early;
            let full = tokens > CHUNK_TOKENS || sequences.len() == OUTPUT_ROWS;
            if !sequences.is_empty() && (full || early > stored || long) {
                break;
            }
            long = early > stored;
            let sequence = if stored > shared {
                self.begin(&job.cache_salt, body)
            } else {
                self.kv.fork(prefix, shared)
            };
            sequences.push((sequence, prompt));
            let reserved = self.reserve(sequence, prompt.len() - stored);
            let alone = sequences.len() == 1;
            if alone && reserved.is_err() && stored > shared {
                // What was kept stands beside what all share: by now nothing is kept, so the next try begins there.
                sequences.pop();
                self.kv.release(sequence);
                return Ok(());
            }
            if alone {
                reserved?;
            } else if reserved.is_err() || !self.make_room(head.long.map_or(0, LongLabels::pages)) {
                // The others go first and make room.
                sequences.pop();
                self.kv.release(sequence);
                break;
            }
            self.fill(sequence, &prompt[stored..early], &Cancel::new())?;
            pieces.push(&prompt[early..]);
            done.stored.push(stored);
            done.computed += prompt.len() - stored;
        }
        self.batch.clear();
        let mut outputs = Vec::new();
        for (&(sequence, _), piece) in sequences.iter().zip(pieces) {
            self.push(sequence, piece)?;
            outputs.push(self.batch.rows() - 1);
        }
        if let Some(long) = head.long {
            let mut sums = Vec::new();
            self.run(&outputs, None, true, |_, row| sums.push(long.first(&row)));
            done.computed += self.continue_labels(sequences, long, &mut sums)?;
            done.rows.extend(sums.iter().map(|sums| long.row(sums, job)));
            return Ok(());
        }
        let over_labels = head.labels.is_some();
        self.run(&outputs, head.labels, !over_labels, |_, row| done.rows.push(evaluate(&row, head, job)));
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
