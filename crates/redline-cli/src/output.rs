//! Standard output: JSON documents, and streamed text.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use redline_system::start::stdout_was_open;
use redline_weights::write_file;
use serde::Serialize;

use crate::message::Failure;

/// Serializes a document on one line, without a line end.
pub(crate) fn json(document: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(document).map_err(|error| {
        Failure::failed(
            error.to_string(),
            Some("the model's numbers overflow: are its weights damaged?".to_owned()),
        )
    })
}

/// Writes a line to standard output.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    piece(text)?;
    piece("\n")
}

/// Writes the text of a verdict and returns its exit code, also if standard output is closed: a closed pipe must
/// not turn a failure into a success.
pub(crate) fn verdict(text: &str, code: u8) -> Result<ExitCode, Failure> {
    match piece(text) {
        Ok(()) | Err(Failure::Closed) => Ok(ExitCode::from(code)),
        Err(error) => Err(error),
    }
}

/// Token ids as `1,2,3`, the form in which flags take them.
pub(crate) fn ids(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// Writes to standard output and flushes it.
pub(crate) fn piece(text: &str) -> Result<(), Failure> {
    if !stdout_was_open() {
        let hint = "give it a file or a pipe, or `>/dev/null` to discard it".to_owned();
        return Err(Failure::failed("standard output is closed", Some(hint)));
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| Failure::writing(&error))
}

/// Writes a file atomically. `flag` names the flag that gave the path.
pub(crate) fn file(path: &Path, flag: &str, text: &str) -> Result<(), Failure> {
    write_file(path, text.as_bytes())
        .map_err(|error| Failure::writing_file(path, &error, &format!("`{flag}` names")))
}

/// A text that is being streamed. Stores the first error, so that a callback need not return one.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    failure: Option<Failure>,
}

impl Stream {
    /// Writes a piece unless an earlier one failed. Returns whether it was written.
    pub(crate) fn push(&mut self, text: &str) -> bool {
        if self.failure.is_none() {
            self.failure = piece(text).err();
        }
        self.failure.is_none()
    }

    /// Ends the text with a newline.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        self.failure.map_or_else(|| piece("\n"), Err)
    }
}
