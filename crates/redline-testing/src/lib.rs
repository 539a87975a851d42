//! Shared test code: a writer of GGUF files, a hub, a model server with scripted answers, machines as file trees, and the record of
//! skipped tests.
#![forbid(unsafe_code)]
// Fields and methods are named after what they set.
#![allow(missing_docs)]

pub mod gguf;
pub mod hub;
pub mod mock;
mod skip;
pub mod trees;

pub use skip::skip;
