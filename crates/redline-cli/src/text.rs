//! Reads a text from a file or standard input: unchanged, or as lines.

use std::io::Read as _;
use std::path::Path;

use crate::jsonl;
use crate::message::{self, Failure};

/// Reads the whole file, without the byte order mark that some programs write at its start. Invalid UTF-8 is an error that names its
/// offset.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    jsonl::open(path)?.read_to_end(&mut bytes).map_err(|error| Failure::reading(path, &error))?;
    if bytes.starts_with(jsonl::BYTE_ORDER_MARK) {
        bytes.drain(..jsonl::BYTE_ORDER_MARK.len());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].split(|&byte| byte == b'\n').count();
        let fact = format!(
            "byte {at} is {:#04x}, which is not UTF-8 there\n  in {}, line {line}",
            error.as_bytes()[at],
            message::place(path)
        );
        Failure::failed(
            fact,
            Some("convert the file, for example with `iconv -t utf-8`; binary files are no text".to_owned()),
        )
    })
}

/// Reads the lines of a file. A final line end does not begin another line; an empty line is an empty text.
pub(crate) fn read_lines(path: &Path) -> Result<Vec<String>, Failure> {
    Ok(read(path)?.lines().map(str::to_owned).collect())
}
