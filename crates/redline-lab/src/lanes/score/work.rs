//! The scored texts, and the minimum work of scoring them.

use redline_engine::{ModelInfo, Prompt, ScoreOutcome};

use crate::bench::{LaneError, asked};
use crate::roofline::{Work, keys_seen};

/// Tokens of an item if the query is given by its number of tokens.
const ITEM_TOKENS: usize = 4;

/// Query and items of every request: texts as in the seed's benchmark, or ids of a given number.
pub(super) struct Workload {
    pub(super) query_tokens: Option<usize>,
    pub(super) item_tokens: Option<usize>,
}

impl Workload {
    /// Whether the workload consists of texts.
    fn is_text(&self) -> bool {
        self.query_tokens.is_none() && self.item_tokens.is_none()
    }

    /// Tokens of a query and an item, if they are given; else 1.
    pub(super) fn most_tokens(&self) -> usize {
        if self.is_text() { 1 } else { self.query_length().saturating_add(self.item_length()) }
    }

    fn query_length(&self) -> usize {
        self.query_tokens.unwrap_or(40)
    }

    fn item_length(&self) -> usize {
        self.item_tokens.unwrap_or(ITEM_TOKENS)
    }

    /// The common query.
    pub(super) fn query(&self, vocab: usize) -> Prompt {
        if self.is_text() {
            return Prompt::Text("Benchmark query: ".repeat(10));
        }
        Prompt::Ids(asked::ids(self.query_length(), 0, vocab))
    }

    /// Item `index`; neighbouring items begin differently.
    pub(super) fn item(&self, index: usize, vocab: usize) -> Prompt {
        if self.is_text() {
            return Prompt::Text(format!(" item {index}"));
        }
        Prompt::Ids((0..self.item_length()).map(|i| ((i * 104_729 + index + 5) % vocab) as i64).collect())
    }
}

/// Distinct ids of the vocabulary, one per label.
pub(super) fn label_ids(labels: usize, info: &ModelInfo) -> Result<Vec<i64>, LaneError> {
    if labels > info.vocab {
        let fact = format!("`--num-labels` is {labels}, but the vocabulary has {} tokens", info.vocab);
        return Err(LaneError::Usage(format!("{fact}\n  in `{}`", info.name)));
    }
    Ok((0..labels).map(|i| (i * (info.vocab / labels)) as i64).collect())
}

/// The minimum work of a request for the tokens that were computed. Weights are read once. Because the softmax is over the
/// labels, the head needs only their rows, for the last token of every item. A shared prefix was computed once or came from the
/// cache.
pub(super) fn of(info: &ModelInfo, outcome: &ScoreOutcome, labels: usize) -> Work {
    let (shared, items) = (outcome.taken.shared_prefix_tokens, outcome.items.len() as f64);
    // The cached tokens of one item, which all items share.
    let known = outcome.taken.usage.cached_tokens / outcome.items.len().max(1);
    let prefix = shared.saturating_sub(known);
    let tails = outcome.taken.computed_tokens.saturating_sub(prefix);
    let tail = tails as f64 / items.max(1.0);
    let keys =
        keys_seen(shared - prefix, prefix) + items * (tail * shared as f64 + tail * (tail + 1.0) / 2.0);
    let pass = Work::of_pass(info, outcome.taken.computed_tokens as f64, keys, items);
    Work {
        bytes: pass.bytes - info.head_bytes as f64,
        operations: pass.operations + items * 2.0 * info.hidden as f64 * (labels as f64 - info.vocab as f64),
        ..pass
    }
}

#[cfg(test)]
mod tests {
    use redline_engine::{ItemScore, Taken, Usage};

    use super::*;
    use crate::lanes::tests::info;

    fn outcome(cached: usize, computed: usize) -> ScoreOutcome {
        let item = ItemScore {
            scores: vec![1.0],
            logprobs: vec![0.0],
            label_mass: None,
            prompt_tokens: 12,
            truncated: false,
            boundary_mismatch: None,
            token_ids: None,
        };
        ScoreOutcome {
            items: vec![Ok(item.clone()), Ok(item)],
            label_token_ids: Vec::new(),
            item_label_token_ids: None,
            monte_carlo: None,
            taken: Taken {
                usage: Usage { prompt_tokens: 24, completion_tokens: 0, cached_tokens: 2 * cached },
                computed_tokens: computed,
                shared_prefix_tokens: 10,
                prefix_cache: None,
                plan_misses: 0,
                queue_s: 0.0,
                compute_s: 0.0,
                peak_memory_bytes: None,
                kernel_path: String::new(),
            },
        }
    }

    #[test]
    fn work_counts_the_prefix_once_and_label_rows_only() {
        // Ten tokens of prefix, two items of two tokens more.
        let cold = of(&info(), &outcome(0, 14), 3);
        assert_eq!(cold.bytes, 1000.0 - 100.0);
        // For the last row of each item, the head computes three labels instead of the vocabulary of 10.
        assert_eq!(cold.operations, 14.0 * 100.0 + 2.0 * (50.0 - 2.0 * 4.0 * (10.0 - 3.0)));
        assert_eq!(cold.attention, 3.0 * (55.0 + 2.0 * (11.0 + 12.0)));
        let warm = of(&info(), &outcome(10, 4), 3);
        assert_eq!(warm.attention, 3.0 * 2.0 * (11.0 + 12.0));
    }

    #[test]
    fn labels_are_different_tokens_of_the_vocabulary() {
        let ids = label_ids(10, &info()).unwrap();
        let different: std::collections::BTreeSet<_> = ids.iter().collect();
        assert!(different.len() == 10 && ids.iter().all(|&id| (0..10).contains(&id)));
        assert!(matches!(label_ids(11, &info()), Err(LaneError::Usage(fact)) if fact.contains("11")));
    }
}
