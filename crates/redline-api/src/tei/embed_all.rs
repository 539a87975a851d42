//! `/embed_all`: a vector of each token of each text, in the form of Text Embeddings Inference.

use redline_engine::{EmbedRequest, EncodeOutcome, VectorForm};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;
use crate::json::finite::Finite;
use crate::json::input::Prompts;
use crate::json::limits::MAX_TEXTS;
use crate::json::shape;
use crate::json::vector::several;
use crate::tei::embed::{self, EmbedBody};
use crate::tei::truncation::TruncationDirection;

/// Asks for a vector of each token.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbedAllBody {
    /// A text, texts, the token ids of one text, or those of several.
    #[schemars(with = "shape::PromptsUpTo<MAX_TEXTS>")]
    pub inputs: Prompts,
    /// Whether texts that are too long are cut.
    pub truncate: Option<bool>,
    /// The end at which they are cut; the right one if absent.
    pub truncation_direction: Option<TruncationDirection>,
    /// The name of the task whose prompt is put before every text.
    pub prompt_name: Option<String>,
}

/// Builds the engine's request.
pub fn request(body: EmbedAllBody) -> Result<EmbedRequest, ApiError> {
    let EmbedAllBody { inputs, truncate, truncation_direction, prompt_name } = body;
    let (normalize, dimensions, pooling) = (Some(false), None, None);
    let body =
        EmbedBody { inputs, normalize, truncate, truncation_direction, prompt_name, dimensions, pooling };
    Ok(EmbedRequest { form: VectorForm::States, ..embed::request(body)? })
}

/// Builds the answer: for each text, the vectors of its tokens, special ones included.
pub fn answer(outcome: &EncodeOutcome) -> Vec<Vec<Vec<Finite<f32>>>> {
    outcome.texts.iter().map(several).collect()
}
