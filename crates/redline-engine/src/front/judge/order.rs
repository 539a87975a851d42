//! The order of ranked documents.

use crate::answer::outcome::{ItemError, Ranked, RequestCost, RerankOutcome};
use crate::receipt::Receipt;

/// The most relevant documents first, then those that failed.
pub(super) fn in_order(
    mut ranked: Vec<Ranked>,
    failed: Vec<Result<Ranked, ItemError>>,
    top_n: usize,
    threshold: f32,
) -> Vec<Result<Ranked, ItemError>> {
    ranked.retain(|document| document.relevance >= threshold);
    // The sort is stable: equals stay in the order of their indices. The log-odds tell apart what both round to 1.
    let order = |a: &Ranked, b: &Ranked| {
        b.relevance.total_cmp(&a.relevance).then_with(|| b.log_odds.total_cmp(&a.log_odds))
    };
    ranked.sort_by(order);
    ranked.truncate(top_n);
    ranked.into_iter().map(Ok).chain(failed).collect()
}

/// The outcome of a model that compares no labels.
pub(super) fn without_labels(
    results: Vec<Result<Ranked, ItemError>>,
    cost: RequestCost,
    receipt: Option<Box<Receipt>>,
) -> RerankOutcome {
    let (label_token_ids, end_token_ids, prefix_label) = (Vec::new(), Vec::new(), None);
    RerankOutcome { results, label_token_ids, end_token_ids, prefix_label, cost, receipt }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_are_told_apart_by_what_both_round_to() {
        let document = |index, log_odds: f32| Ranked {
            index,
            relevance: if log_odds > 20.0 { 1.0 } else { 0.25 },
            log_odds,
            prompt_tokens: 1,
            truncated: false,
        };
        let all = || vec![document(0, 30.0), document(1, -1.0), document(2, 40.0), document(3, 30.0)];
        let order = |ranked: Vec<Result<Ranked, ItemError>>| {
            ranked
                .into_iter()
                .map(|document| document.map_or_else(|error| error.index, |it| it.index))
                .collect::<Vec<_>>()
        };
        let failed = || vec![Err(ItemError { index: 9, message: String::new() })];
        assert_eq!(order(in_order(all(), failed(), usize::MAX, 0.0)), [2, 0, 3, 1, 9]);
        assert_eq!(order(in_order(all(), failed(), 1, 0.5)), [2, 9]);
        assert_eq!(order(in_order(all(), Vec::new(), usize::MAX, 0.5)), [2, 0, 3]);
    }
}
