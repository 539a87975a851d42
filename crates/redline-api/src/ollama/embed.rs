//! `/api/embed`, and the older `/api/embeddings`.

use std::collections::BTreeMap;

use redline_engine::{EmbedRequest, EncodeOutcome, Prompt, Truncate};
use redline_settings::Pooling;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::json::fields::refused;
use crate::json::finite::Finite;
use crate::json::input::Strings;
use crate::json::limits::MAX_TEXTS;
use crate::json::text::JsonText;
use crate::json::{named, shape};
use crate::jsonl::embed::vector;
use crate::ollama::{KeepAlive, check_kept};

/// Asks for a vector of each text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OllamaEmbedBody {
    /// The model's name.
    pub model: Option<String>,
    /// A text, or texts.
    #[schemars(with = "shape::Texts<1, MAX_TEXTS>")]
    pub input: Strings,
    /// Whether texts that are too long are cut, which is `true` unless it is given.
    pub truncate: Option<bool>,
    /// Number of values of a vector, if it is to be less than the model's own.
    #[schemars(range(min = 1))]
    pub dimensions: Option<usize>,
    /// How the states of a text become one vector; `null`: as the model says.
    #[serde(default, with = "named::optional")]
    #[schemars(with = "Option<named::OneOf<Pooling>>")]
    pub pooling: Option<Pooling>,
    /// Accepted and not used.
    #[schemars(with = "Option<shape::AnyObject>")]
    pub options: Option<BTreeMap<String, JsonText>>,
    /// Accepted and not used: the model stays loaded.
    #[schemars(with = "Option<KeepAlive>")]
    pub keep_alive: Option<JsonText>,
}

/// Asks for the vector of a text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OllamaEmbeddingsBody {
    /// The model's name.
    pub model: Option<String>,
    /// The text.
    pub prompt: String,
    /// How the states of a text become one vector; `null`: as the model says.
    #[serde(default, with = "named::optional")]
    #[schemars(with = "Option<named::OneOf<Pooling>>")]
    pub pooling: Option<Pooling>,
    /// Accepted and not used.
    #[schemars(with = "Option<shape::AnyObject>")]
    pub options: Option<BTreeMap<String, JsonText>>,
    /// Accepted and not used: the model stays loaded.
    #[schemars(with = "Option<KeepAlive>")]
    pub keep_alive: Option<JsonText>,
}

/// The vectors of texts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OllamaEmbeddings {
    /// The model's name.
    pub model: String,
    /// The vectors, of length 1.
    pub embeddings: Vec<Vec<Finite<f32>>>,
    /// From the request reaching the engine to its end, in nanoseconds.
    pub total_duration: u64,
    /// Always 0: the model was loaded before.
    pub load_duration: u64,
    /// Number of tokens of the texts.
    pub prompt_eval_count: usize,
}

/// The vector of a text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OllamaEmbedding {
    /// The vector, as the model makes it.
    pub embedding: Vec<Finite<f32>>,
}

/// Builds the engine's request.
pub fn request(body: OllamaEmbedBody) -> Result<EmbedRequest, ApiError> {
    check_kept(body.keep_alive.as_ref())?;
    let texts = body.input.0;
    if texts.is_empty() || texts.len() > MAX_TEXTS {
        let fact = format!("`input` has {} texts", texts.len());
        return Err(refused("input", fact, format!("give 1 to {MAX_TEXTS}")));
    }
    Ok(EmbedRequest {
        pooling: body.pooling,
        normalise: Some(true),
        dimensions: body.dimensions,
        truncate: body.truncate.unwrap_or(true).then_some(Truncate::Right),
        ..EmbedRequest::new(texts.into_iter().map(Prompt::Text).collect())
    })
}

/// Builds the answer.
pub fn answer(model: String, outcome: EncodeOutcome) -> OllamaEmbeddings {
    OllamaEmbeddings {
        model,
        total_duration: ((outcome.cost.queue_s + outcome.cost.compute_s) * 1e9) as u64,
        load_duration: 0,
        prompt_eval_count: outcome.texts.iter().map(|text| text.prompt_tokens).sum(),
        embeddings: outcome.texts.into_iter().map(vector).collect(),
    }
}

/// Builds the engine's request of the older route.
pub fn older_request(body: OllamaEmbeddingsBody) -> Result<EmbedRequest, ApiError> {
    check_kept(body.keep_alive.as_ref())?;
    Ok(EmbedRequest {
        pooling: body.pooling,
        normalise: Some(false),
        truncate: Some(Truncate::Right),
        ..EmbedRequest::new(vec![Prompt::Text(body.prompt)])
    })
}

/// Builds the answer of the older route.
pub fn older_answer(mut outcome: EncodeOutcome) -> OllamaEmbedding {
    OllamaEmbedding { embedding: outcome.texts.pop().map(vector).unwrap_or_default() }
}
