//! What scores took.

use serde::{Deserialize, Serialize};

use crate::{Finite, PrefixCacheUse};

/// What a request for scores took: part of the `meta` of every answer that rests on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Took {
    /// Plans that were not there for passes it took part in.
    pub cache_miss_count: u64,
    /// Tokens run through the model (the shared prefix once).
    pub computed_tokens: usize,
    /// Length of the longest token prefix common to all prompts.
    pub shared_prefix_tokens: usize,
    /// What came from the prefix cache; `null` where it is off.
    pub prefix_cache: Option<PrefixCacheUse>,
    /// Seconds from the request reaching the engine to its first pass.
    pub queue_s: Finite<f64>,
    /// Seconds from the request reaching the engine to the last row.
    pub compute_s: Finite<f64>,
    /// Most bytes that the process had allocated while the request ran, weights included; `null` if they are not counted, or
    /// if another request ran meanwhile.
    pub peak_memory_bytes: Option<u64>,
    /// The tier and formats that ran.
    pub kernel_path: String,
    /// Threads of the engine.
    pub threads: usize,
}
