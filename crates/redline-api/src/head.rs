//! Metadata of an answer.

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
