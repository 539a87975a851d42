//! The scored requests, and the minimum work of answering them.

use redline_engine::{Label, ModelInfo, Prompt, RequestCost, ScoreRequest};

use crate::bench::requests::ids;
use crate::lanes::prelude::*;
use crate::roofline::keys_seen;

/// Tokens of a query and of an item, if only the other is given.
const LENGTHS: (usize, usize) = (40, 4);

/// Whether the query is in the prefix cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefix {
    Cold,
    Warm,
}

impl Prefix {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }
}

pub(super) struct Workload {
    /// Tokens of the query and of an item; `None` for texts as in the seed's benchmark.
    pub(super) lengths: Option<(usize, usize)>,
    pub(super) items: usize,
    /// Labels, each one token.
    pub(super) labels: Vec<i64>,
}

/// Tokens of the query and of an item; `None` for texts.
pub(super) fn lengths(query: Option<usize>, item: Option<usize>) -> Option<(usize, usize)> {
    query.or(item).map(|_| (query.unwrap_or(LENGTHS.0), item.unwrap_or(LENGTHS.1)))
}

impl Workload {
    /// The request of one run. Each run has different items; a cold query has its own salt.
    pub(super) fn request(&self, arm: Prefix, run: usize, vocab: usize) -> ScoreRequest {
        let (items, labels) = (self.items, self.labels.len());
        let cache_salt = match arm {
            Prefix::Cold => format!("cold {items} {labels} {run}"),
            Prefix::Warm => format!("warm {items} {labels}"),
        };
        let query = match self.lengths {
            None => Prompt::Text("Benchmark query: ".repeat(10)),
            Some((query, _)) => Prompt::Ids(ids(query, 0, vocab)),
        };
        let items = (run * items..(run + 1) * items).map(|index| self.item(index, vocab)).collect();
        let labels = self.labels.iter().map(|&id| Label::Ids(vec![id])).collect();
        ScoreRequest { softmax: true, cache_salt, ..ScoreRequest::new(query, items, labels) }
    }

    /// Item `index`; neighbouring items begin differently.
    fn item(&self, index: usize, vocab: usize) -> Prompt {
        let Some((_, tokens)) = self.lengths else { return Prompt::Text(format!(" item {index}")) };
        Prompt::Ids((0..tokens).map(|i| ((i * 104_729 + index + 5) % vocab) as i64).collect())
    }
}

/// Distinct ids of the vocabulary, one per label.
pub(super) fn label_ids(labels: usize, info: &ModelInfo) -> Result<Vec<i64>> {
    require(labels <= info.vocab, || {
        let fact = format!("`--num-labels` is {labels}, but the vocabulary has {} tokens", info.vocab);
        format!("{fact}\n  in `{}`", info.name)
    })?;
    Ok((0..labels).map(|i| (i * (info.vocab / labels)) as i64).collect())
}

/// The minimum work of a request for the tokens that were computed. Weights are read once. Because the softmax is over the
/// labels, the head needs only their rows, for the last token of every item. A shared prefix was computed once or came from the
/// cache.
pub(super) fn least(info: &ModelInfo, workload: &Workload, cost: &RequestCost) -> Work {
    let (shared, items) = (cost.shared_prefix_tokens, workload.items as f64);
    // The cached tokens of one item, which all items share.
    let known = cost.usage.cached_tokens / workload.items;
    let prefix = shared.saturating_sub(known);
    let tails = cost.computed_tokens.saturating_sub(prefix);
    let tail = tails as f64 / items;
    let keys =
        keys_seen(shared - prefix, prefix) + items * (tail * shared as f64 + tail * (tail + 1.0) / 2.0);
    let pass = Work::of_pass(info, cost.computed_tokens as f64, keys, items);
    let labels = workload.labels.len() as f64;
    Work {
        bytes: pass.bytes - info.head_bytes as f64,
        operations: pass.operations + items * 2.0 * info.hidden as f64 * (labels - info.vocab as f64),
        ..pass
    }
}

#[cfg(test)]
pub(super) mod tests {
    use redline_engine::TokenCounts;

    use super::*;
    use crate::lanes::tests::info;

    pub(in super::super) fn cost(cached: usize, computed: usize) -> RequestCost {
        RequestCost {
            usage: TokenCounts { prompt_tokens: 24, completion_tokens: 0, cached_tokens: 2 * cached },
            computed_tokens: computed,
            shared_prefix_tokens: 10,
            prefix_cache: None,
            plan_misses: 0,
            queue_s: 0.0,
            compute_s: 0.0,
            peak_memory_bytes: None,
            kernel_path: String::new(),
        }
    }

    #[test]
    fn work_counts_the_prefix_once_and_label_rows_only() {
        // Ten tokens of prefix, two items of two tokens more.
        let workload = Workload { lengths: None, items: 2, labels: vec![1, 2, 3] };
        let cold = least(&info(), &workload, &cost(0, 14));
        assert_eq!(cold.bytes, 1000.0 - 100.0);
        // For the last row of each item, the head computes three labels instead of the vocabulary of 10.
        assert_eq!(cold.operations, 14.0 * 100.0 + 2.0 * (50.0 - 2.0 * 4.0 * (10.0 - 3.0)));
        assert_eq!(cold.attention, 3.0 * (55.0 + 2.0 * (11.0 + 12.0)));
        let warm = least(&info(), &workload, &cost(10, 4));
        assert_eq!(warm.attention, 3.0 * 2.0 * (11.0 + 12.0));
    }

    #[test]
    fn runs_differ_in_their_items_and_cold_ones_in_their_salt() {
        let workload = Workload { lengths: Some((3, 2)), items: 2, labels: vec![1, 2] };
        let of = |arm, run| workload.request(arm, run, 10);
        let (a, b) = (of(Prefix::Cold, 0), of(Prefix::Cold, 1));
        assert!(a.query == b.query && a.items != b.items && a.cache_salt != b.cache_salt);
        let (c, d) = (of(Prefix::Warm, 0), of(Prefix::Warm, 1));
        assert!(c.items == a.items && d.items == b.items && c.cache_salt == d.cache_salt);
        let Prompt::Ids(ids) = &a.query else { panic!() };
        assert_eq!(ids.len(), 3);
    }

    #[test]
    fn labels_are_different_tokens_of_the_vocabulary() {
        let ids = label_ids(10, &info()).unwrap();
        let different: std::collections::BTreeSet<_> = ids.iter().collect();
        assert!(different.len() == 10 && ids.iter().all(|&id| (0..10).contains(&id)));
        assert!(matches!(label_ids(11, &info()), Err(LaneError::Usage(fact)) if fact.contains("11")));
    }

    #[test]
    fn a_length_that_is_not_given_has_a_default_beside_the_other() {
        assert_eq!(lengths(None, None), None);
        assert_eq!((lengths(Some(7), None), lengths(None, Some(3))), (Some((7, 4)), Some((40, 3))));
    }
}
