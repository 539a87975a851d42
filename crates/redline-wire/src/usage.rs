//! Token counts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
        }
    }
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
