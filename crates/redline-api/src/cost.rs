//! Token counts and the cost of a request.

use redline_engine::{PrefixCacheCounts, RequestCost, TokenCounts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::finite::Finite;
use crate::json::input::LabelIds;
use crate::model::LoadedModel;

/// The cost of a scoring request: part of `meta` in the answers of `score`, `classify` and `rerank`; `meta` in those of `embed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostMeta {
    /// Number of plan lookups that found no plan, in the passes of this request.
    pub cache_miss_count: u64,
    /// Tokens computed by the model; a shared prefix counts once.
    pub computed_tokens: usize,
    /// Length of the longest token prefix common to all prompts.
    pub shared_prefix_tokens: usize,
    /// Use of the prefix cache; `null` if it is off.
    pub prefix_cache: Option<PrefixCacheUse>,
    /// Seconds from the request reaching the engine to its first pass.
    pub queue_s: Finite<f64>,
    /// Seconds from the request reaching the engine to the last row.
    pub compute_s: Finite<f64>,
    /// Peak of the bytes allocated by the process while the request ran, including weights; `null` if allocations are not
    /// counted, or if another request ran at the same time.
    pub peak_memory_bytes: Option<u64>,
    /// The tier and formats that were used.
    pub kernel_path: String,
    /// Threads of the engine.
    pub threads: usize,
}

/// Token counts of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Prompt tokens; for `score` the sum over items of query plus item.
    pub prompt_tokens: usize,
    /// Generated tokens; 0 for `score`.
    pub completion_tokens: usize,
    /// The sum of both.
    pub total_tokens: usize,
    /// Details of the prompt tokens.
    pub prompt_tokens_details: PromptTokensDetails,
    /// Details of the generated tokens, of an answer with reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens_details: Option<CompletionTokensDetails>,
}

/// What generated tokens are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CompletionTokensDetails {
    /// Tokens of reasoning, with the mark of its end.
    pub reasoning_tokens: usize,
}

/// Where prompt tokens came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromptTokensDetails {
    /// Prompt tokens taken from a cache filled by an earlier request.
    pub cached_tokens: usize,
}

/// Use of the prefix cache by a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixCacheUse {
    /// Prompts that share a prefix with an earlier request.
    pub hits: usize,
    /// Prompts without a cached prefix.
    pub misses: usize,
    /// Prompt tokens taken from the cache.
    pub cached_tokens: usize,
}

impl Usage {
    /// Creates the counts, with their sum.
    pub fn new(prompt_tokens: usize, completion_tokens: usize, cached_tokens: usize) -> Self {
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptTokensDetails { cached_tokens },
            completion_tokens_details: None,
        }
    }

    /// The same counts of an answer with this number of tokens of reasoning.
    #[must_use]
    pub fn reasoned(self, reasoning_tokens: usize) -> Self {
        let details = (reasoning_tokens > 0).then_some(CompletionTokensDetails { reasoning_tokens });
        Self { completion_tokens_details: details, ..self }
    }
}

/// Converts token counts.
pub(crate) fn usage(from: TokenCounts) -> Usage {
    Usage::new(from.prompt_tokens, from.completion_tokens, from.cached_tokens)
}

/// Converts prefix-cache counts.
pub(crate) fn prefix_cache(from: PrefixCacheCounts) -> PrefixCacheUse {
    PrefixCacheUse { hits: from.hits, misses: from.misses, cached_tokens: from.cached_tokens }
}

/// Converts the cost of a scoring request.
pub(crate) fn cost(model: &LoadedModel, from: RequestCost) -> CostMeta {
    CostMeta {
        cache_miss_count: from.plan_misses,
        computed_tokens: from.computed_tokens,
        shared_prefix_tokens: from.shared_prefix_tokens,
        prefix_cache: from.prefix_cache.map(prefix_cache),
        queue_s: Finite(from.queue_s),
        compute_s: Finite(from.compute_s),
        peak_memory_bytes: from.peak_memory_bytes,
        kernel_path: from.kernel_path,
        threads: model.threads(),
    }
}

/// Converts the token ids of labels.
pub(crate) fn label_ids(labels: Vec<Vec<u32>>) -> Vec<LabelIds> {
    let label = |ids: Vec<u32>| LabelIds(ids.into_iter().map(i64::from).collect());
    labels.into_iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_is_fixed() {
        let usage = Usage::new(12, 3, 4);
        let json = serde_json::to_string(&usage).unwrap();
        assert_eq!(
            json,
            r#"{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4}}"#
        );
        assert_eq!(serde_json::from_str::<Usage>(&json).unwrap(), usage);
    }
}
