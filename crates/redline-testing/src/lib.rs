//! What the tests of several crates share: files and servers that are made up, and the record of skipped tests.
#![forbid(unsafe_code)]
// Fields and methods are named after what they set.
#![allow(missing_docs)]

pub mod gguf;
pub mod hub;
pub mod mock;
mod skip;

pub use skip::{SKIPPED, skip};
