//! Routes of OpenAI's API.

pub mod chat_completions;
pub mod completions;
pub mod decisions;
pub mod embeddings;
pub mod models;
pub mod responses;

use crate::json::parts::part;

part! {
    /// Fields that choose among the services of OpenAI. They are accepted and not used.
    pub struct IgnoredFields {
        /// Accepted and not used.
        pub service_tier: String,
        /// Accepted and not used.
        pub prompt_cache_key: String,
        /// Accepted and not used.
        pub prompt_cache_retention: String,
        /// Accepted and not used.
        pub safety_identifier: String,
    }
}
