//! The error type of lanes.

use redline_engine::EngineError;
use redline_engine::settings::Hint;
use redline_kernels::OutOfMemory;
use redline_tokenizer::TokenizerError;

use crate::limits::LimitError;
use crate::stats::NotFinite;

/// A value, or why a lane could not measure.
pub(crate) type Result<T, E = LaneError> = std::result::Result<T, E>;

/// Why a lane could not measure.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// A flag has an invalid value; caller error.
    #[error("{0}")]
    Usage(String),
    /// The engine rejected a request or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A limit could not be measured.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The system did not provide the memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// A measurement is not finite.
    #[error(transparent)]
    Samples(#[from] NotFinite),
    /// A tokenizer cannot be read, or a text cannot be encoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A file cannot be used: reason and place.
    #[error("{0}")]
    Input(String),
    /// The outputs are wrong, so their timing is meaningless.
    #[error("{0}")]
    Incorrect(String),
    /// A finished case could not be recorded: reason and place.
    #[error("{0}")]
    Record(String),
}

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

/// Returns an error about flags unless `valid`.
pub(crate) fn require(valid: bool, fact: impl FnOnce() -> String) -> Result<()> {
    if valid { Ok(()) } else { Err(LaneError::Usage(fact())) }
}

/// Returns an error about wrong outputs unless `correct`.
pub(crate) fn verify(correct: bool, fact: impl FnOnce() -> String) -> Result<()> {
    if correct { Ok(()) } else { Err(LaneError::Incorrect(fact())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_of_engine_and_tokenizer_is_passed_on() {
        let tokenizer = || TokenizerError::NotUtf8 { place: "a".to_owned(), offset: 3 };
        let advice = tokenizer().hint().map(Hint::from);
        assert!(advice.is_some());
        assert_eq!(LaneError::from(tokenizer()).hint(), advice);
        let memory = || EngineError::from(OutOfMemory { bytes: 7 });
        assert!(memory().hint().is_some());
        assert_eq!(LaneError::from(memory()).hint(), memory().hint());
        assert_eq!(LaneError::Usage("a".to_owned()).hint(), None);
    }
}
