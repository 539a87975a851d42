//! The native module of the Python package `redline`: an engine that takes requests as JSON, in the form of the lines that the
//! command line reads, and gives answers as Python objects. The package beside it (`python/redline`) has the functions that
//! people call, with their types and documentation.

mod batch;
mod engine;
mod error;
mod options;
mod request;
mod ticket;
mod tokenizer;

use pyo3::prelude::*;

/// The module `redline._redline`.
#[pymodule]
mod _redline {
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::ticket::Ticket;
    #[pymodule_export]
    use crate::tokenizer::Tokenizer;
}
