//! The list of models, as OpenAI's API has it.

use schemars::JsonSchema;
use serde::Serialize;

/// Answer to `GET /v1/models`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ModelList {
    /// Always `list`.
    pub object: &'static str,
    /// The models, by every name under which requests may ask for them.
    pub data: Vec<ModelEntry>,
}

/// A model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ModelEntry {
    /// The name for the key `model` of requests.
    pub id: String,
    /// Always `model`.
    pub object: &'static str,
    /// When it was loaded, in seconds since 1970.
    pub created: u64,
    /// Always `redline`.
    pub owned_by: &'static str,
    /// The name of the model behind an alias or an adapter.
    pub root: String,
    /// For an adapter, the name of the model that it changes.
    pub parent: Option<String>,
    /// Longest sequence in tokens.
    pub max_model_len: usize,
    /// How text is generated: `autoregressive` or `diffusion`; `null`: the model generates none.
    pub generation: Option<&'static str>,
    /// What it can do: `generate`, `score`, `embed`, `rerank`, `classify`.
    pub abilities: Vec<&'static str>,
    /// Whether it is in memory. Another one is loaded for its first request.
    pub loaded: bool,
}
