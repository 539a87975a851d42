//! Why a format cannot do what is asked of it.

use thiserror::Error;

/// Why a format cannot do what is asked of it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{fact}")]
pub struct ChatFormatError {
    /// What is wrong.
    pub fact: String,
    /// The tool that it concerns, as an index.
    pub tool: Option<usize>,
    /// What to do about it.
    pub hint: &'static str,
}
