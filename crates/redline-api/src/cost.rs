//! The cost of requests: converts the engine's counts and times to their JSON types.

use redline_engine::{PrefixCacheCounts, RequestCost, TokenCounts};
use redline_wire::{CostMeta, Finite, LabelIds, PrefixCacheUse, Usage};

use crate::LoadedModel;

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
