//! Requests and answers in the shapes of other servers.
//!
//! `request` of each module converts the JSON type to the engine's request and refuses values out of range by the name of their field.
//! `answer` converts the outcome.

mod canvas;
pub mod chat;
pub mod classify;
pub mod completion;
mod decision;
pub mod decisions;
pub mod embed;
pub mod embeddings;
mod fields;
mod generation;
mod mode;
pub mod pairs;
pub mod predict;
pub mod rerank;
pub mod responses;
pub mod score;
mod stream;
pub mod systemone;

pub use generation::StreamForm;
pub use mode::{
    CanvasPiece, GeneratedChoice, GenerationEvent, GenerationMode, GenerationOutcome, GenerationPiece,
    GenerationRequest, GenerationTicket, PromptEnd, SharedFields,
};
pub use stream::StreamedAnswer;

use redline_engine::AdapterChoice;
use redline_settings::LARGEST_ADAPTER_SCALE;
use redline_wire::AdapterNames;

use self::fields::refused;
use crate::ApiError;

/// The adapters that a request names.
pub fn adapters(named: &AdapterNames) -> Result<Vec<AdapterChoice>, ApiError> {
    let fits = |scale: f32| scale.abs() <= LARGEST_ADAPTER_SCALE;
    if let Some(at) = named.0.iter().position(|one| !fits(one.scale)) {
        let param = format!("adapter[{at}].scale");
        let fact = format!("`{param}` is {:e}", named.0[at].scale);
        let hint = format!(
            "give a number from -{LARGEST_ADAPTER_SCALE} to {LARGEST_ADAPTER_SCALE}; 1 is the adapter as it was trained"
        );
        return Err(refused(&param, fact, hint));
    }
    Ok(crate::adapter::adapters(Some(named.clone()), &[]))
}

/// What an answer says about itself.
#[derive(Clone, Debug)]
pub struct AnswerHead {
    /// Identifies the answer.
    pub id: String,
    /// When the request came, in seconds since 1970.
    pub created: u64,
    /// The name under which the request asked for the model.
    pub model: String,
}
