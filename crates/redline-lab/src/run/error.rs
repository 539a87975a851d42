//! Why a run cannot be read or written.

use std::io;

use super::SCHEMA;

/// Why a run cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(io::Error),
    /// A file or the directory cannot be written.
    #[error("{0}")]
    Write(io::Error),
    /// The directory already contains a run.
    #[error("there is a run already")]
    Occupied,
    /// The text is not JSON, or a field is missing or of the wrong type.
    #[error("{0}")]
    Json(serde_json::Error),
    /// The document names no schema.
    #[error("no field `schema`, so this is no run")]
    NoSchema,
    /// The document has another schema.
    #[error("`schema` is {0}, but this build reads \"{SCHEMA}\"")]
    Schema(String),
}

impl RunError {
    /// Advice for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read(_) => "a run is a `run.json`, or the directory that `redline bench LANE -o DIR` wrote",
            Self::Write(_) => "choose a directory that may be written",
            Self::Occupied => "samples are not overwritten: choose another directory, or remove it",
            Self::Json(e) if e.is_data() => {
                "needed are `schema`, `engine.name`, `lane`, and of each row `case` and \
                 `metrics` with `unit`, `direction` (lower, higher or info) and `samples`"
            }
            Self::Json(_) => {
                "is the file whole? JSON knows neither NaN nor infinities: leave such samples out"
            }
            Self::NoSchema => "`redline bench LANE -o DIR` writes runs; the document of `--json` is none",
            Self::Schema(_) => "compare with the version of redline that wrote it",
        }
    }
}
