//! Reads a text from a file or standard input: unchanged, or as lines.

use std::io::Read as _;
use std::path::Path;

use crate::jsonl;
use crate::message::{self, Failure};

/// Bytes of the longest text.
const LONGEST: u64 = 1 << 30;

/// Reads the whole file, at most 1 GiB, without the byte order mark that some programs write at its start. Invalid UTF-8 is an error that
/// names its offset.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    read_at_most(LONGEST, path)
}

/// As [`read`], with another limit in bytes. A device may have no end.
pub(crate) fn read_at_most(longest: u64, path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let input = jsonl::open(path)?;
    input.take(longest + 1).read_to_end(&mut bytes).map_err(|error| Failure::reading(path, &error))?;
    if bytes.len() as u64 > longest {
        let fact = format!("it is longer than {} MiB\n  in {}", longest >> 20, message::place(path));
        return Err(Failure::failed(
            fact,
            Some("check that it is the right file; cut a long text into parts".to_owned()),
        ));
    }
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
