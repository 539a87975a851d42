//! Scoring: the probability of each label after each prompt.
//!
//! An autoregressive model gives these probabilities at the last row of the prompt ([`ScoreTask`]). For a model that fills
//! masks, the label stands in its place with some of its tokens masked ([`MaskedScoreTask`]). If the softmax is over labels of
//! one token each, the head is evaluated over the labels only, because the normaliser over the vocabulary cancels.

mod labels;
mod masked;
mod maskings;
mod next;
pub(crate) mod prompts;

use self::labels::{LabelSet, Row};
pub(crate) use self::masked::{MaskedScoreTask, Masks};
pub(crate) use self::maskings::Maskings;
pub(crate) use self::next::ScoreTask;
use crate::answer::outcome::{
    ItemError, ItemScore, PrefixCacheCounts, RequestCost, ScoreOutcome, TokenCounts,
};
use crate::error::EngineError;
use crate::mode::score::prompts::{LabelLists, PromptIds, Tokens};
use crate::task::{Ended, Ran, RowOutput};

/// A checked request.
pub(crate) struct ScoreJob {
    pub(crate) prompts: Vec<Result<Tokens, ItemError>>,
    pub(crate) labels: LabelLists,
    pub(crate) softmax: bool,
    pub(crate) full_logprobs: bool,
    pub(crate) return_token_ids: bool,
    pub(crate) return_reading: bool,
    pub(crate) item_errors: bool,
    pub(crate) cache_salt: String,
    pub(crate) kernel_path: String,
}

/// Tokens that the prompts share with each other and with earlier requests.
#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    /// Length of the longest prefix common to all prompts.
    tokens: usize,
    /// Use of the prefix cache; `None` if it is off.
    cached: Option<PrefixCacheCounts>,
}

impl ScoreJob {
    /// The items that have a valid prompt.
    fn items(&self) -> impl Iterator<Item = usize> {
        (0..self.prompts.len()).filter(|&item| self.prompts[item].is_ok())
    }

    /// The prompt ids of an item, if its prompt is valid.
    fn ids(&self, item: usize) -> Option<&PromptIds> {
        self.prompts[item].as_ref().ok().map(|tokens| &tokens.ids)
    }

    /// The tokens of a prompt.
    fn tokens(&self, item: usize) -> Vec<u32> {
        self.ids(item).map(PromptIds::to_vec).unwrap_or_default()
    }

    fn length(&self, item: usize) -> usize {
        self.ids(item).map_or(0, PromptIds::len)
    }

    /// Length of the longest prompt plus that of the longest label.
    fn longest(&self) -> usize {
        (0..self.prompts.len()).map(|item| self.length(item)).max().unwrap_or(0) + self.labels.longest()
    }

    /// Builds the outcome from the row of each item; `None` if an item has none or the model's output was not a number.
    fn outcome(
        mut self,
        rows: Vec<Option<Row>>,
        shared: Shared,
        ran: Ran,
    ) -> Result<ScoreOutcome, EngineError> {
        match ran.ended {
            Some(Ended::Cancelled) => return Err(EngineError::Cancelled),
            Some(Ended::Late) => return Err(EngineError::Late { seconds: ran.seconds, tokens: None }),
            None => {}
        }
        let prompt_tokens = (0..self.prompts.len()).map(|item| self.length(item)).sum();
        let mut items = Vec::with_capacity(rows.len());
        for (index, (prompt, row)) in std::mem::take(&mut self.prompts).into_iter().zip(rows).enumerate() {
            items.push(match (prompt, row) {
                (Err(error), _) => Err(error),
                (Ok(prompt), Some(row)) => Ok(item_score(row, prompt, self.return_token_ids)),
                (Ok(_), None) => {
                    let error = EngineError::NonFinite(format!("item {index}"));
                    if !self.item_errors {
                        return Err(error);
                    }
                    Err(ItemError { index, message: error.to_string() })
                }
            });
        }
        let list_of = |of: &Vec<usize>| of.iter().map(|&list| self.labels.without_end(list)).collect();
        let item_label_token_ids: Option<Vec<_>> = self.labels.of_item.as_ref().map(list_of);
        Ok(ScoreOutcome {
            items,
            label_token_ids: match item_label_token_ids {
                Some(_) => Vec::new(),
                None => self.labels.without_end(0),
            },
            item_label_token_ids,
            end_token_ids: self.labels.end().to_vec(),
            monte_carlo: None,
            cost: RequestCost {
                usage: TokenCounts {
                    prompt_tokens,
                    completion_tokens: 0,
                    cached_tokens: shared.cached.map_or(0, |sum| sum.cached_tokens),
                },
                computed_tokens: ran.computed_tokens,
                plan_misses: ran.plan_misses,
                shared_prefix_tokens: shared.tokens,
                prefix_cache: shared.cached,
                queue_s: ran.queue_s,
                compute_s: ran.seconds,
                peak_memory_bytes: ran.peak_memory_bytes,
                kernel_path: self.kernel_path,
            },
            receipt: None,
        })
    }
}

/// The labels of a request, and the logits that they need.
struct LabelLogits {
    /// One set for each list.
    sets: Vec<LabelSet>,
    /// The distinct first tokens of all labels, ascending.
    ids: Vec<u32>,
    /// Whether logits over the whole vocabulary are needed.
    whole_vocabulary: bool,
    /// Whether some labels have several tokens, or log-probabilities that are divided.
    long: bool,
}

impl LabelLogits {
    fn of(job: &ScoreJob) -> Self {
        let LabelLists { lists, divisors, .. } = &job.labels;
        let sets: Vec<LabelSet> =
            lists.iter().zip(divisors).map(|(labels, divisors)| LabelSet::new(labels, divisors)).collect();
        let mut ids: Vec<u32> = sets.iter().flat_map(LabelSet::first_tokens).copied().collect();
        ids.sort_unstable();
        ids.dedup();
        let long = sets.iter().any(LabelSet::is_long);
        Self {
            whole_vocabulary: !job.softmax || job.full_logprobs || job.return_reading || long,
            sets,
            ids,
            long,
        }
    }

    /// The ids of the logits; `None`: the whole vocabulary.
    fn labels(&self) -> Option<&[u32]> {
        (!self.whole_vocabulary).then_some(&self.ids[..])
    }

    fn output(&self) -> RowOutput<()> {
        if self.whole_vocabulary { RowOutput::Vocabulary } else { RowOutput::Labels(()) }
    }
}

fn item_score(row: Row, prompt: Tokens, return_token_ids: bool) -> ItemScore {
    ItemScore {
        scores: row.scores,
        logprobs: row.logprobs,
        label_mass: row.label_mass,
        prompt_tokens: prompt.ids.len(),
        truncated: prompt.truncated,
        boundary_mismatch: prompt.boundary_mismatch,
        token_ids: return_token_ids.then(|| prompt.ids.to_vec()),
        reading: row.reading,
    }
}
