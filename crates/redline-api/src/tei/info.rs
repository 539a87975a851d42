//! `/info`, as Text Embeddings Inference has it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::json::entries::Entries;

/// What the server runs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TeiInfo {
    /// The model's name.
    pub model_id: String,
    /// The revision of the model; not known.
    pub model_sha: Option<String>,
    /// Tier and formats in short.
    pub model_dtype: String,
    /// What the model is used for.
    pub model_type: TeiModelType,
    /// Maximum number of prompts that wait or run.
    pub max_concurrent_requests: usize,
    /// Longest sequence in tokens.
    pub max_input_length: usize,
    /// Maximum number of tokens in a pass.
    pub max_batch_tokens: usize,
    /// Maximum number of texts in a request.
    pub max_client_batch_size: usize,
    /// Maximum number of requests in a pass: there is none.
    pub max_batch_requests: Option<usize>,
    /// Number of threads that tokenise.
    pub tokenization_workers: usize,
    /// Whether texts that are too long are cut without being asked: they are not.
    pub auto_truncate: bool,
    /// How text is generated: `autoregressive` or `diffusion`; `null`: the model generates none.
    pub generation: Option<&'static str>,
    /// The same as `max_input_length` less one new token, as Text Generation Inference says it.
    pub max_input_tokens: usize,
    /// Longest prompt with its continuation, in tokens.
    pub max_total_tokens: usize,
    /// Highest `best_of`.
    pub max_best_of: usize,
    /// Maximum number of stop texts.
    pub max_stop_sequences: usize,
    /// The name of the server.
    pub router: &'static str,
    /// The version of the server.
    pub version: &'static str,
    /// The commit of the server; not known.
    pub sha: Option<String>,
    /// The label of its container; not known.
    pub docker_label: Option<String>,
}

/// What a model is used for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TeiModelType {
    /// It classifies.
    Classifier(TeiClasses),
    /// It ranks documents.
    Reranker(TeiClasses),
    /// It embeds texts.
    Embedding(TeiEmbedding),
}

/// How a model embeds texts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TeiEmbedding {
    /// How the states of a text become one vector.
    pub pooling: TeiPooling,
}

/// How the states of a text become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TeiPooling {
    /// The state of the first token.
    Cls,
    /// The mean of all states.
    Mean,
    /// The state of the last token.
    LastToken,
    /// None: a text becomes weights of tokens of the vocabulary.
    Splade,
}

/// The classes of a model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TeiClasses {
    /// The class of each index.
    pub id2label: Entries<String>,
    /// The index of each class.
    pub label2id: Entries<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poolings_have_the_names_of_tei() {
        let pooling = |of: TeiPooling| serde_json::to_string(&of).unwrap();
        assert_eq!(
            [TeiPooling::Cls, TeiPooling::LastToken, TeiPooling::Splade].map(pooling),
            [r#""cls""#, r#""last_token""#, r#""splade""#]
        );
    }
}
