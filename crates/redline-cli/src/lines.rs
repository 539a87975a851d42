//! Texts from a file or standard input, one per line.

use std::io::Read as _;
use std::path::Path;

use crate::jsonl;
use crate::report::Failure;

/// Reads the lines of a file. A final line end does not begin another line; an empty line is an empty text.
pub(crate) fn read(path: &Path) -> Result<Vec<String>, Failure> {
    let mut input = jsonl::open(path)?;
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(|error| Failure::reading(path, &error))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.split(|byte| *byte == b'\n').count();
        let fact = format!("line {line} is not UTF-8\n  in `{}`", path.display());
        Failure::failed(fact, Some("convert the file, for example with `iconv -t utf-8`".to_owned()))
    })?;
    Ok(text.lines().map(str::to_owned).collect())
}
