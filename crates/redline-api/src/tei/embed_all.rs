//! `/embed_all`: a vector of each token of each text, in the form of Text Embeddings Inference.

use redline_engine::{EmbedRequest, EncodeOutcome, Prompt};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::ApiError;
use crate::json::fields::refused;
use crate::json::finite::Finite;
use crate::json::input::Prompts;
use crate::json::limits::MAX_TEXTS;
use crate::json::shape;
use crate::tei::truncation::{TruncationDirection, end_of};

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
    if body.inputs.0.is_empty() {
        return Err(refused("inputs", "`inputs` has 0 texts", "give at least one"));
    }
    Ok(EmbedRequest {
        per_token: true,
        prompt_name: body.prompt_name,
        truncate: (body.truncate == Some(true)).then(|| end_of(body.truncation_direction)),
        ..EmbedRequest::new(body.inputs.0.into_iter().map(Prompt::from).collect())
    })
}

/// Builds the answer: for each text, the vectors of its tokens, special ones included.
pub fn answer(outcome: EncodeOutcome) -> Vec<Vec<Vec<Finite<f32>>>> {
    let of_text = |text: redline_engine::Encoded| {
        let width = text.values.len() / text.prompt_tokens.max(1);
        let rows = text.values.chunks_exact(width.max(1));
        rows.map(|row| row.iter().copied().map(Finite).collect()).collect()
    };
    outcome.texts.into_iter().map(of_text).collect()
}
