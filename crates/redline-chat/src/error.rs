//! Why a format cannot do what is asked of it.

use redline_grammar::GrammarError;
use thiserror::Error;

/// Why a format cannot do what is asked of it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{fact}")]
pub struct ChatFormatError {
    /// What is wrong.
    pub fact: String,
    /// What it concerns.
    pub subject: Subject,
    /// What to do about it.
    pub hint: &'static str,
}

/// What an error concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The tool with this index.
    Tool(usize),
    /// All tools together.
    Tools,
    /// That calls are demanded.
    Demand,
    /// The grammar of a text.
    Text,
    /// The limit of the tokens of reasoning.
    Reasoning,
}

impl ChatFormatError {
    /// The error of a grammar.
    pub(crate) fn of_grammar(error: GrammarError, subject: Subject) -> Self {
        Self { fact: error.fact, subject, hint: error.hint }
    }
}
