//! What a request took, from the engine's words to JSON.

use redline_engine as engine;
use redline_wire::{PrefixCacheUse, Usage};

/// Token counts.
pub(super) fn tokens(from: engine::Usage) -> Usage {
    Usage::new(from.prompt_tokens, from.completion_tokens, from.cached_tokens)
}

/// What came from the prefix cache.
pub(super) fn prefix_cache(from: engine::PrefixCacheUse) -> PrefixCacheUse {
    PrefixCacheUse { hits: from.hits, misses: from.misses, cached_tokens: from.cached_tokens }
}
