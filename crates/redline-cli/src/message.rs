//! Error messages, and the exit codes that go with them.

use std::fmt;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use redline_tokenizer::Tokenizer;

/// Exit code of work that failed.
pub(crate) const FAILED: u8 = 1;
/// Exit code of an invalid command line.
pub(crate) const USAGE: u8 = 2;
/// Exit code of an invalid measurement.
pub(crate) const INVALID: u8 = 5;
/// Exit code of a measurement whose outputs are wrong.
pub(crate) const INCORRECT: u8 = 6;
/// Exit code after Ctrl-C (128 + SIGINT).
pub(crate) const INTERRUPTED: u8 = 130;

/// The reason why a command stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or the environment is invalid: exit code 2.
    Usage(Message),
    /// The work failed: exit code 1.
    Failed(Message),
    /// The measurement is invalid: exit code 5.
    Invalid(Message),
    /// The measured outputs are wrong: exit code 6.
    Incorrect(Message),
    /// The engine has stopped, so that no further request can be answered: exit code 1.
    Stopped(Message),
    /// Standard output was closed by its reader. This is not an error and prints nothing.
    Closed,
}

/// A message: the fact with numbers and place, and a hint.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The fact. Its further lines name the place.
    pub(crate) fact: String,
    /// What the user can do about it.
    pub(crate) hint: Option<String>,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.fact)?;
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}\n")?;
        }
        Ok(())
    }
}

impl Failure {
    /// An invalid command line.
    pub(crate) fn usage(fact: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage(Message { fact: fact.into(), hint: Some(hint.into()) })
    }

    /// Work that failed.
    pub(crate) fn failed(fact: impl Into<String>, hint: Option<String>) -> Self {
        Self::Failed(Message { fact: fact.into(), hint })
    }

    /// An invalid measurement.
    pub(crate) fn invalid(fact: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Invalid(Message { fact: fact.into(), hint: Some(hint.into()) })
    }

    /// The message.
    pub(crate) fn into_message(self) -> Message {
        match self {
            Self::Usage(message)
            | Self::Failed(message)
            | Self::Invalid(message)
            | Self::Incorrect(message)
            | Self::Stopped(message) => message,
            Self::Closed => Message { fact: "nobody reads the output".to_owned(), hint: None },
        }
    }

    /// A measurement whose outputs are wrong.
    pub(crate) fn incorrect(fact: impl Into<String>) -> Self {
        Self::Incorrect(Message { fact: fact.into(), hint: None })
    }

    /// A file or standard input that cannot be read.
    pub(crate) fn reading(path: &Path, error: &io::Error) -> Self {
        let fact = format!("{error}\n  in {}", place(path));
        Self::failed(fact, Some("check the path, and that it may be read".to_owned()))
    }

    /// A file that cannot be written. The hint begins with `name` unless its disk is full, such as "`--flag` names".
    pub(crate) fn writing_file(path: &Path, error: &io::Error, name: &str) -> Self {
        let hint = if is_full(error) {
            "free some space on its disk, or name a file elsewhere".to_owned()
        } else {
            format!("{name} a file in a directory that is there and may be written")
        };
        Self::failed(format!("{error}\n  in `{}`", path.display()), Some(hint))
    }

    /// Standard output that cannot be written.
    pub(crate) fn writing(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::Closed;
        }
        let hint = is_full(error).then(|| "free some space on its disk, or write elsewhere".to_owned());
        Self::failed(format!("{error}\n  in standard output"), hint)
    }

    /// Prints the message and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (message, code) = match self {
            Self::Usage(message) => (message, USAGE),
            Self::Failed(message) | Self::Stopped(message) => (message, FAILED),
            Self::Invalid(message) => (message, INVALID),
            Self::Incorrect(message) => (message, INCORRECT),
            Self::Closed => return ExitCode::SUCCESS,
        };
        say(&message);
        ExitCode::from(code)
    }
}

/// Whether a path argument means standard input.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Formats a path argument for a message.
pub(crate) fn place(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { format!("`{}`", path.display()) }
}

/// Prints a note that is not an error.
pub(crate) fn note(text: &str) {
    say(format_args!("note: {text}\n"));
}

/// Writes to standard error. A closed standard error is ignored.
pub(crate) fn say(what: impl fmt::Display) {
    let _ = io::stderr().write_all(printable(&what.to_string()).as_bytes());
}

/// A text that may quote files and arguments, without characters that a terminal would obey.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            c if c.is_control() => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

/// Whether a disk, or the user's share of it, has no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Reports on one line that the library encodes instead of the native encoder, and why.
pub(crate) fn warn_of_fallback(name: &str, tokenizer: &Tokenizer) {
    if let Some(reason) = tokenizer.fallback() {
        let reason = reason.replace('\n', " ");
        say(format_args!(
            "warning: the `tokenizers` crate of Hugging Face encodes for `{name}`, as the native encoder does not cover it: {reason}\n"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_fact_place_hint() {
        let Failure::Usage(message) = Failure::usage("3 is too many\n  in `--threads`", "take 2") else {
            panic!("not a usage error")
        };
        assert_eq!(message.to_string(), "error: 3 is too many\n  in `--threads`\n\nhint: take 2\n");
    }

    #[test]
    fn a_message_holds_nothing_that_a_terminal_obeys() {
        assert_eq!(printable("a\u{1b}[31m\r\n\u{9b}é"), "a\\u{1b}[31m\\u{d}\n\\u{9b}é");
    }

    #[test]
    fn a_full_disk_is_told_apart_from_a_missing_directory() {
        let hint = |kind: io::ErrorKind| {
            Failure::writing_file(Path::new("x"), &kind.into(), "name")
                .into_message()
                .hint
                .unwrap_or_default()
        };
        assert!(hint(io::ErrorKind::NotFound).contains("directory"));
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            assert!(hint(kind).starts_with("free some space"));
        }
        assert!(Failure::writing(&io::ErrorKind::StorageFull.into()).into_message().hint.is_some());
    }

    #[test]
    fn a_reader_that_left_is_not_an_error() {
        assert!(matches!(Failure::writing(&io::ErrorKind::BrokenPipe.into()), Failure::Closed));
        assert!(matches!(Failure::writing(&io::ErrorKind::StorageFull.into()), Failure::Failed(_)));
    }
}
