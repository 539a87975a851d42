//! Resource use of a request: converts the engine's figures to JSON, and to a line for people.

use redline_engine as engine;
use redline_wire::{Finite, LabelIds, PrefixCacheUse, Took, Usage};

use crate::figure;
use crate::model::Loaded;

/// Converts token counts.
pub(super) fn tokens(from: engine::Usage) -> Usage {
    Usage::new(from.prompt_tokens, from.completion_tokens, from.cached_tokens)
}

/// Converts prefix-cache counts.
pub(super) fn prefix_cache(from: engine::PrefixCacheUse) -> PrefixCacheUse {
    PrefixCacheUse { hits: from.hits, misses: from.misses, cached_tokens: from.cached_tokens }
}

/// Converts the cost of a scoring request.
pub(super) fn took(loaded: &Loaded, from: engine::Taken) -> Took {
    Took {
        cache_miss_count: from.plan_misses,
        computed_tokens: from.computed_tokens,
        shared_prefix_tokens: from.shared_prefix_tokens,
        prefix_cache: from.prefix_cache.map(prefix_cache),
        queue_s: Finite(from.queue_s),
        compute_s: Finite(from.compute_s),
        peak_memory_bytes: from.peak_memory_bytes,
        kernel_path: from.kernel_path,
        threads: loaded.engine.info().threads,
    }
}

/// Converts the token ids of labels.
pub(super) fn label_ids(labels: Vec<Vec<u32>>) -> Vec<LabelIds> {
    let label = |ids: Vec<u32>| LabelIds(ids.into_iter().map(i64::from).collect());
    labels.into_iter().map(label).collect()
}

/// The cost of a scoring request as text. `all` is the number of items that `noun` names. `prompts` yields, for each item that is
/// shown, its token count and whether it was truncated; `None` if it failed.
pub(super) fn summary(
    loaded: &Loaded,
    taken: &engine::Taken,
    (all, noun): (usize, &str),
    prompts: impl Iterator<Item = Option<(usize, bool)>> + Clone,
) -> String {
    let mut text = format!(
        "{} prompt tokens, {} computed, {} shared by all {noun}; {}",
        taken.usage.prompt_tokens,
        taken.computed_tokens,
        taken.shared_prefix_tokens,
        figure::seconds(taken.compute_s),
    );
    let threads = loaded.engine.info().threads;
    text.push_str(&figure::ran(taken.peak_memory_bytes, &taken.kernel_path, threads));
    if let Some((tokens, _)) = prompts.clone().flatten().find(|(_, truncated)| *truncated) {
        text.push_str(&format!("note: prompts were cut to fit the context (to {tokens} tokens)\n"));
    }
    let failed = prompts.filter(Option::is_none).count();
    if failed > 0 {
        text.push_str(&format!("note: {failed} of {all} {noun} failed\n"));
    }
    text
}
