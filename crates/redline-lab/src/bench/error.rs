//! The error type of lanes.

use std::fmt;

use redline_engine::EngineError;
use redline_engine::settings::Hint;
use redline_kernels::OutOfMemory;
use redline_tokenizer::TokenizerError;

use crate::limits::LimitError;
use crate::stats::NotFinite;

/// Why a lane could not measure.
#[derive(Debug)]
pub enum LaneError {
    /// A flag has an invalid value; caller error.
    Usage(String),
    /// The engine rejected a request or failed.
    Engine(EngineError),
    /// A limit could not be measured.
    Limit(LimitError),
    /// The system did not provide the memory.
    Memory(OutOfMemory),
    /// A measurement is not finite.
    Samples(NotFinite),
    /// A tokenizer cannot be read, or a text cannot be encoded.
    Tokenizer(TokenizerError),
    /// A file cannot be used: reason and place.
    Input(String),
    /// The outputs are wrong, so their timing is meaningless.
    Incorrect(String),
    /// A finished case could not be recorded: reason and place.
    Record(String),
}

impl fmt::Display for LaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(fact) | Self::Incorrect(fact) | Self::Input(fact) | Self::Record(fact) => {
                f.write_str(fact)
            }
            Self::Engine(e) => e.fmt(f),
            Self::Limit(e) => e.fmt(f),
            Self::Memory(e) => e.fmt(f),
            Self::Samples(e) => e.fmt(f),
            Self::Tokenizer(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for LaneError {}

impl LaneError {
    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<Hint> {
        match self {
            Self::Engine(e) => e.hint(),
            Self::Tokenizer(e) => e.hint().map(Hint::from),
            _ => None,
        }
    }
}

impl From<EngineError> for LaneError {
    fn from(e: EngineError) -> Self {
        Self::Engine(e)
    }
}

impl From<LimitError> for LaneError {
    fn from(e: LimitError) -> Self {
        Self::Limit(e)
    }
}

impl From<OutOfMemory> for LaneError {
    fn from(e: OutOfMemory) -> Self {
        Self::Memory(e)
    }
}

impl From<TokenizerError> for LaneError {
    fn from(e: TokenizerError) -> Self {
        Self::Tokenizer(e)
    }
}

impl From<NotFinite> for LaneError {
    fn from(e: NotFinite) -> Self {
        Self::Samples(e)
    }
}
