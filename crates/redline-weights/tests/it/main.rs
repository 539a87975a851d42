//! Tests of the public API: hostile files, damaged files, round trips, and error messages.

mod adapter;
mod adapter_attacks;
mod attacks;
mod checkpoint;
mod config;
mod damage;
#[cfg(unix)]
mod disk;
mod gguf;
mod half;
mod hub;
mod infq;
mod pytorch;
mod rewrite;
mod round_trip;
mod signed;
mod write;

use std::fmt::Debug;
use std::path::Path;

use redline_weights::{Result, WeightsError};

/// Compares the message of an error, and its hint after an empty line, with `expect`, in which `DIR` stands for
/// `dir`.
fn check<T: Debug>(result: Result<T>, dir: &Path, expect: &str) {
    let error: WeightsError = result.expect_err(expect);
    let hint = error.hint().map(|hint| format!("\n\n{hint}")).unwrap_or_default();
    assert_eq!(format!("{error}{hint}").replace(&dir.display().to_string(), "DIR"), expect);
}

/// Builds a safetensors file of this header and data.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}
