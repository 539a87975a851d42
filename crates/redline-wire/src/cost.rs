//! The cost of a scoring request.

use serde::{Deserialize, Serialize};

use crate::{Finite, PrefixCacheUse};

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
