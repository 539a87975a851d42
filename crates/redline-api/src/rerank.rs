//! `rerank`: documents in the order of their relevance to a query.

use redline_engine::{ItemError, Ranked, RerankOutcome};
use redline_wire::{Finite, JudgeMeta, RerankResult, Reranking, SchemaVersion};

use crate::{LoadedModel, cost};

/// Builds the JSON document of the answer.
pub fn answer(model: &LoadedModel, outcome: RerankOutcome) -> Reranking {
    let result = |result| match result {
        Ok(Ranked { index, relevance, prompt_tokens, truncated }) => RerankResult {
            index,
            relevance: Some(Finite(relevance)),
            prompt_tokens: Some(prompt_tokens),
            truncated: Some(truncated),
            error: None,
        },
        Err(ItemError { index, message }) => {
            RerankResult { index, error: Some(message), ..RerankResult::default() }
        }
    };
    Reranking {
        object: "rerank".to_owned(),
        schema: SchemaVersion,
        model: model.name.clone(),
        results: outcome.results.into_iter().map(result).collect(),
        usage: cost::usage(outcome.cost.usage),
        meta: JudgeMeta {
            label_token_ids: cost::label_ids(outcome.label_token_ids),
            cost: cost::cost(model, outcome.cost),
        },
    }
}
