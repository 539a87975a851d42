//! Requests and answers in the shapes of other servers.
//!
//! `request` of each module converts the JSON type to the engine's request and refuses values out of range by the name of their field.
//! `answer` converts the outcome.

pub mod classify;
pub mod completion;
mod decision;
pub mod decisions;
mod fields;
pub mod pairs;
pub mod predict;
pub mod rerank;
pub mod score;
pub mod systemone;

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
