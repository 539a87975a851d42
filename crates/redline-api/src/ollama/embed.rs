//! `/api/embed`, and the older `/api/embeddings`.

use std::collections::BTreeMap;

use redline_engine::{EmbedRequest, EncodeOutcome, Prompt, Truncate};
use redline_settings::Pooling;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::json::fields::count;
use crate::json::finite::Finite;
use crate::json::input::Strings;
use crate::json::limits::MAX_TEXTS;
use crate::json::named::ByName;
use crate::json::parts::{part, with_parts};
use crate::json::shape;
use crate::json::text::JsonText;

use crate::json::vector::dense;
use crate::ollama::{KeepAlive, check_kept, nanoseconds};

part! {
    /// What the requests for vectors have in common, beside the texts.
    pub struct OllamaEmbedFields {
        /// The model's name.
        pub model: String,
        /// How the states of a text become one vector; `null`: as the model says.
        pub pooling: ByName<Pooling>,
        /// Accepted and not used.
        #[schemars(with = "Option<shape::AnyObject>")]
        pub options: BTreeMap<String, JsonText>,
        /// Accepted and not used: the server says how long models stay in memory.
        #[schemars(with = "Option<KeepAlive>")]
        pub keep_alive: JsonText,
    }
}

/// Asks for a vector of each text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "OllamaEmbedBody")]
pub struct OllamaEmbedBody {
    /// A text, or texts.
    #[schemars(with = "shape::Texts<1, MAX_TEXTS>")]
    pub input: Strings,
    /// Whether texts that are too long are cut, which is `true` unless it is given.
    pub truncate: Option<bool>,
    /// Number of values of a vector, if it is to be less than the model's own.
    #[schemars(range(min = 1))]
    pub dimensions: Option<usize>,
    /// What these routes have in common.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub fields: OllamaEmbedFields,
}

/// Asks for the vector of a text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "OllamaEmbeddingsBody")]
pub struct OllamaEmbeddingsBody {
    /// The text.
    pub prompt: String,
    /// What these routes have in common.
    #[serde(skip)]
    #[schemars(!skip, flatten)]
    pub fields: OllamaEmbedFields,
}

with_parts! {
    OllamaEmbedBody { fields: OllamaEmbedFields }
    OllamaEmbeddingsBody { fields: OllamaEmbedFields }
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
    /// Always 0: the model is loaded before the request reaches the engine.
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

/// Builds the engine's request for the vectors of texts.
fn embedding(texts: Vec<String>, fields: OllamaEmbedFields) -> Result<EmbedRequest, ApiError> {
    check_kept(fields.keep_alive.as_ref())?;
    let texts = texts.into_iter().map(Prompt::Text).collect();
    Ok(EmbedRequest { pooling: fields.pooling.map(|pooling| pooling.0), ..EmbedRequest::new(texts) })
}

/// Builds the engine's request.
pub fn request(body: OllamaEmbedBody) -> Result<EmbedRequest, ApiError> {
    let texts = body.input.0;
    count("input", texts.len(), 1..=MAX_TEXTS)?;
    Ok(EmbedRequest {
        normalise: Some(true),
        dimensions: body.dimensions,
        truncate: body.truncate.unwrap_or(true).then_some(Truncate::Right),
        ..embedding(texts, body.fields)?
    })
}

/// Builds the answer.
pub fn answer(model: String, outcome: EncodeOutcome) -> OllamaEmbeddings {
    OllamaEmbeddings {
        model,
        total_duration: nanoseconds(outcome.cost.queue_s + outcome.cost.compute_s),
        load_duration: 0,
        prompt_eval_count: outcome.texts.iter().map(|text| text.prompt_tokens).sum(),
        embeddings: outcome.texts.into_iter().map(dense).collect(),
    }
}

/// Builds the engine's request of the older route.
pub fn older_request(body: OllamaEmbeddingsBody) -> Result<EmbedRequest, ApiError> {
    let truncate = Some(Truncate::Right);
    Ok(EmbedRequest { normalise: Some(false), truncate, ..embedding(vec![body.prompt], body.fields)? })
}

/// Builds the answer of the older route.
pub fn older_answer(mut outcome: EncodeOutcome) -> OllamaEmbedding {
    OllamaEmbedding { embedding: outcome.texts.pop().map(dense).unwrap_or_default() }
}
