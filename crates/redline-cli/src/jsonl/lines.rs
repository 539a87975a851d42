//! The lines of the input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use redline_system::Machine;

use crate::message::{self, Failure};

/// Maximum length of a line in bytes, if the machine has enough memory. It is also the length of the pending lines, taken together,
/// above which no further line is read.
const LONGEST_LINE: u64 = 64 << 20;
/// The part of the memory that a line may have: two bytes, such as a digit and a comma, may be a label of about 72 bytes.
const MEMORY_PER_LINE: u64 = 128;
/// The UTF-8 byte order mark, which some programs write at the start of a file.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A file or standard input.
pub(crate) type Input = Box<dyn BufRead + Send>;

/// Opens a file, or standard input for `-`.
pub(crate) fn open(path: &Path) -> Result<Input, Failure> {
    if message::is_stdin(path) {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).map_err(|error| Failure::reading(path, &error))?;
    Ok(Box::new(BufReader::new(file)))
}

/// A line that is not blank.
pub(crate) struct Line {
    /// Its number, from 1 on.
    pub(super) number: u64,
    /// Its bytes.
    pub(super) bytes: Result<Vec<u8>, TooLong>,
}

/// A line beyond the limit.
#[derive(Debug)]
pub(super) struct TooLong {
    /// The limit in bytes.
    longest: usize,
}

impl From<TooLong> for Failure {
    fn from(TooLong { longest }: TooLong) -> Self {
        let hint = "give its items in several requests, one on each line; a line may have 64 MiB, with less than 8 GiB of memory \
                    1/128 of it";
        Self::failed(format!("the line is longer than {} MiB", longest >> 20), Some(hint.to_owned()))
    }
}

/// The limit of lines on a machine with so much memory for this process, in bytes.
fn longest_line(memory: Option<u64>) -> usize {
    memory.map_or(LONGEST_LINE, |memory| (memory / MEMORY_PER_LINE).clamp(1 << 20, LONGEST_LINE)) as usize
}

/// Reads lines of limited length.
pub(crate) struct Lines {
    /// The name of the file, for messages; `-` is standard input.
    pub(super) path: PathBuf,
    input: Input,
    /// Maximum length of a line in bytes, without its end.
    pub(super) longest: usize,
    /// Number of lines begun so far.
    number: u64,
    /// Number of bytes read so far.
    pub(super) bytes: u64,
    /// Size of the file in bytes, if it is one.
    pub(super) size: Option<u64>,
    /// Whether the rest of the last line is still to be skipped.
    is_cut: bool,
}

impl Lines {
    /// Opens a file, or standard input for `-`.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let file = (!message::is_stdin(path)).then(|| path.metadata().ok()).flatten();
        let size = file.filter(std::fs::Metadata::is_file).map(|file| file.len());
        Ok(Self { size, ..Self::new(path.to_owned(), open(path)?) })
    }

    /// Lines of an input of unknown size.
    pub(super) fn new(path: PathBuf, input: Input) -> Self {
        let longest = longest_line(Machine::memory_limit(Path::new("/")));
        Self { path, input, longest, number: 0, bytes: 0, size: None, is_cut: false }
    }

    /// The next line that is not blank; `None` at the end. A line is returned as soon as it is known to be too long; the next call
    /// skips the rest of it.
    pub(super) fn next(&mut self) -> io::Result<Option<Line>> {
        if std::mem::take(&mut self.is_cut) {
            self.bytes += self.input.skip_until(b'\n')? as u64;
        }
        loop {
            let mut raw = Vec::new();
            self.input.by_ref().take(self.longest as u64 + 1).read_until(b'\n', &mut raw)?;
            if raw.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            self.bytes += raw.len() as u64;
            self.is_cut = raw.len() > self.longest && !raw.ends_with(b"\n");
            if self.is_cut {
                let bytes = Err(TooLong { longest: self.longest });
                return Ok(Some(Line { number: self.number, bytes }));
            }
            if self.number == 1 && raw.starts_with(BYTE_ORDER_MARK) {
                raw.drain(..BYTE_ORDER_MARK.len());
            }
            if !raw.trim_ascii().is_empty() {
                return Ok(Some(Line { number: self.number, bytes: Ok(raw) }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of an input, of at most eight bytes each; `None` stands for one that is too long.
    fn lines(input: &'static [u8]) -> Vec<(u64, Option<&'static str>)> {
        let mut lines = Lines { longest: 8, ..Lines::new("input".into(), Box::new(input)) };
        let next = || lines.next().unwrap();
        let text = |bytes: Vec<u8>| &*String::from_utf8(bytes).unwrap().leak();
        std::iter::from_fn(next).map(|line| (line.number, line.bytes.ok().map(text))).collect()
    }

    #[test]
    fn a_line_beyond_the_limit_is_skipped_without_being_stored() {
        assert_eq!(lines(b"12345678\n1234567\n"), [(1, Some("12345678\n")), (2, Some("1234567\n"))]);
        assert_eq!(lines(b"123456789\n1\n"), [(1, None), (2, Some("1\n"))]);
        assert_eq!(lines(b"1\n\n123456789123456789\n\n2"), [(1, Some("1\n")), (3, None), (5, Some("2"))]);
        assert_eq!(lines(b"123456789"), [(1, None)]);
        // It is known to be too long before it ends.
        let input: Input = Box::new(BufReader::new(io::repeat(b' ')));
        let mut endless = Lines { longest: 8, ..Lines::new("input".into(), input) };
        assert!(endless.next().unwrap().is_some_and(|line| line.bytes.is_err()));
    }

    #[test]
    fn lines_are_shorter_where_there_is_little_memory() {
        assert_eq!(longest_line(None), 64 << 20);
        assert_eq!(longest_line(Some(64 << 30)), 64 << 20);
        assert_eq!(longest_line(Some(400 << 20)), (400 << 20) / 128);
        assert_eq!(longest_line(Some(1 << 20)), 1 << 20);
    }
}
