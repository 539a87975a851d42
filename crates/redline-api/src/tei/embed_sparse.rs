//! `/embed_sparse`: weights of tokens for each text, in the form of Text Embeddings Inference.

use redline_engine::{EmbedRequest, EncodeOutcome, Encoded, VectorForm};
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::ApiError;
use crate::json::finite::Finite;
use crate::tei::embed_all::{self, EmbedAllBody};

/// The weight of a token of the vocabulary.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TokenWeight {
    /// The id of the token.
    pub index: u32,
    /// Its weight.
    pub value: Finite<f32>,
}

/// Builds the engine's request, of the same fields as that for the vectors of all tokens.
pub fn request(body: EmbedAllBody) -> Result<EmbedRequest, ApiError> {
    Ok(EmbedRequest { form: VectorForm::Sparse, ..embed_all::request(body)? })
}

/// Builds the answer: for each text, the weights that are not zero.
pub fn answer(outcome: EncodeOutcome) -> Vec<Vec<TokenWeight>> {
    let of_text = |Encoded { indices, values, .. }: Encoded| {
        let weights = indices.into_iter().zip(values);
        weights.map(|(index, value)| TokenWeight { index, value: Finite(value) }).collect()
    };
    outcome.texts.into_iter().map(of_text).collect()
}
