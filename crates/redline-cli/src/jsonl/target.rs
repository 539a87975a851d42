//! Where answers are written: standard output, a new file, or a file of earlier answers that is continued.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use redline_api::json::id::request_id;
use redline_api::jsonl::fault::LineFault;
use serde::de::IgnoredAny;

use super::lines::{Line, Lines};
use crate::message::{self, Failure};
use crate::output;
use crate::progress::Bar;

/// Where the answers to `--jsonl` are written.
#[derive(Debug, Default, Args)]
pub(crate) struct TargetFlags {
    /// With --jsonl: write the answers to this file instead of standard output
    #[arg(long, short, value_name = "FILE", requires = "jsonl", conflicts_with = "resume")]
    output: Option<PathBuf>,
    /// With --jsonl: continue this file of answers after an interruption; the lines that it already answers are skipped. A file
    /// that does not exist is created. Errors in it count for the exit code; lines with errors are not repeated
    #[arg(long, value_name = "FILE", requires = "jsonl")]
    resume: Option<PathBuf>,
}

impl TargetFlags {
    /// Rejects these flags without `--jsonl`. (clap does so only if no flag that excludes `--jsonl` is given.)
    pub(crate) fn check(&self, has_lines: bool) -> Result<(), Failure> {
        let given = [("--output", &self.output), ("--resume", &self.resume)];
        match given.into_iter().find(|(_, path)| path.is_some() && !has_lines) {
            Some((flag, _)) => Err(Failure::usage(
                format!("`{flag}` without `--jsonl`"),
                "it is for the answers to a file of requests",
            )),
            None => Ok(()),
        }
    }

    /// Refuses to write answers to the file of the requests.
    fn check_differs(&self, lines: &Lines) -> Result<(), Failure> {
        let Some(path) = self.resume.as_ref().or(self.output.as_ref()) else { return Ok(()) };
        let is_same = match (path.canonicalize(), lines.path.canonicalize()) {
            (Ok(target), Ok(requests)) => lines.size.is_some() && target == requests,
            _ => false,
        };
        if is_same {
            let fact = format!("requests and answers in one file\n  in `{}`", path.display());
            return Err(Failure::usage(fact, "name another file for the answers"));
        }
        Ok(())
    }

    /// Opens the target. If a file is continued, the lines that it answers are read from `lines`. Also returns how many of them it
    /// answers with an error.
    pub(super) fn open(&self, lines: &mut Lines) -> Result<(Target, u64), Failure> {
        self.check_differs(lines)?;
        if let Some(path) = &self.resume {
            let (file, faults) = continued(path, lines)?;
            return Ok((Target::File(file, path.clone()), faults));
        }
        match &self.output {
            Some(path) => {
                let file = File::create(path).map_err(|error| cannot_write(path, &error))?;
                Ok((Target::File(file, path.clone()), 0))
            }
            None => Ok((Target::StandardOutput, 0)),
        }
    }
}

/// An open target.
pub(super) enum Target {
    StandardOutput,
    File(File, PathBuf),
}

impl Target {
    /// Whether answers are written to a file that was named.
    pub(super) fn is_file(&self) -> bool {
        matches!(self, Self::File(..))
    }

    /// Writes an answer as a line.
    pub(super) fn write(&mut self, json: &str) -> Result<(), Failure> {
        match self {
            Self::StandardOutput => output::line(json),
            // One call for the whole line, so that an interruption rarely leaves a part of it.
            Self::File(file, path) => {
                file.write_all(format!("{json}\n").as_bytes()).map_err(|error| cannot_write(path, &error))
            }
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::writing_file(path, error, "name")
}

/// Opens a file of answers, removes a line without an end from it, and reads the lines that the others answer. Also returns the
/// number of errors among them.
fn continued(path: &Path, lines: &mut Lines) -> Result<(File, u64), Failure> {
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = opened.map_err(|error| cannot_write(path, &error))?;
    let Answered { count, faults, end, last } =
        Answered::read(&file).map_err(|error| Failure::reading(path, &error))?;
    if let Some(last) = &last {
        // An `id` is repeated as it is written, so it may be a value that `Value` cannot hold, such as 1e400.
        let is_json = serde_json::from_slice::<IgnoredAny>(last).is_ok();
        let is_answer = is_json && last.trim_ascii_start().starts_with(b"{");
        if !is_answer {
            let fact = format!("line {count} is not an answer\n  in `{}`", path.display());
            return Err(Failure::usage(fact, "`--resume` continues a file that this command wrote"));
        }
    }
    skip(lines, count, last.as_deref(), path)?;
    let truncated = file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end)));
    truncated.map_err(|error| cannot_write(path, &error))?;
    Ok((file, faults))
}

/// Reads the lines that `count` answers in the file `target` belong to. `last` is the last of these answers; its `id` must be that
/// of its line.
fn skip(lines: &mut Lines, count: u64, last: Option<&[u8]>, target: &Path) -> Result<(), Failure> {
    let mut request = None;
    for skipped in 0..count {
        request = lines.next().map_err(|error| Failure::reading(&lines.path, &error))?;
        if request.is_none() {
            let fact = format!(
                "{count} answers\n  in `{}`, but {skipped} lines in {}",
                target.display(),
                message::place(&lines.path)
            );
            return Err(Failure::usage(fact, "`--resume` takes the same `--jsonl` as before"));
        }
    }
    if let (Some(Line { number, bytes: Ok(line) }), Some(answer)) = (request, last) {
        let (expected, actual) = (request_id(&line), request_id(answer));
        if expected != actual {
            let named =
                |id: Option<String>| id.map_or_else(|| "no id".to_owned(), |id| format!("the id {id}"));
            let fact = format!(
                "the last answer has {}\n  in `{}`, but line {number} of {} has {}",
                named(actual),
                target.display(),
                message::place(&lines.path),
                named(expected)
            );
            return Err(Failure::usage(fact, "`--resume` takes the same `--jsonl` as before"));
        }
    }
    Ok(())
}

/// Stands in answers that were cut short. Within a text, its quotation marks are escaped.
const CANCELLED: &[u8] = b"\"finish_reason\":\"cancelled\"";

/// Stands in errors.
const FAULT: &[u8] = b"\"object\":\"error\"";

/// Whether an answer is the error of its line. (Its `id` may contain anything.)
fn is_fault(line: &[u8]) -> bool {
    let fault = || serde_json::from_slice::<LineFault>(line).is_ok_and(|fault| fault.object == "error");
    contains(line, FAULT) && fault()
}

fn contains(line: &[u8], part: &[u8]) -> bool {
    line.windows(part.len()).any(|window| window == part)
}

/// The complete lines of a file of answers.
struct Answered {
    count: u64,
    /// Number of errors among them.
    faults: u64,
    /// Where the last of them ends.
    end: u64,
    /// The last of them.
    last: Option<Vec<u8>>,
}

impl Answered {
    fn read(file: &File) -> io::Result<Self> {
        let mut reader = BufReader::new(file);
        let mut answered = Self { count: 0, faults: 0, end: 0, last: None };
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
            // What an interrupt cut short is answered again, and what follows it.
            if contains(&line, CANCELLED) {
                break;
            }
            answered.end += line.len() as u64;
            if !line.trim_ascii().is_empty() {
                answered.count += 1;
                answered.faults += u64::from(is_fault(&line));
                answered.last = Some(line.clone());
            }
            line.clear();
        }
        Ok(answered)
    }
}

/// Shows how much of a file has been answered, on a terminal.
pub(super) struct Progress {
    bar: Option<Bar>,
    answered: u64,
    bytes: u64,
    size: u64,
}

impl Progress {
    /// A bar if the size of the input is known, and answers are not written to a terminal.
    pub(super) fn new(lines: &Lines, to_file: bool) -> Self {
        let visible = to_file || !io::stdout().is_terminal();
        let bar = lines.size.filter(|_| visible).map(|_| Bar::new("answering".to_owned()));
        Self { bar, answered: 0, bytes: lines.bytes, size: lines.size.unwrap_or(0) }
    }

    /// Another line of so many bytes has been answered.
    pub(super) fn answered(&mut self, bytes: u64) {
        self.answered += 1;
        self.bytes += bytes;
        if let Some(bar) = &self.bar {
            bar.name(format!("{} answered", redline_system::number::count(self.answered as usize, "line")));
            bar.show(self.bytes.min(self.size), self.size);
        }
    }

    /// Removes the bar.
    pub(super) fn clear(&self) {
        self.bar.iter().for_each(Bar::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of the input, and a file of earlier answers.
    fn resumed(input: &'static str, answers: &str) -> (Result<Option<u64>, String>, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("answers");
        std::fs::write(&path, answers).unwrap();
        let mut lines = Lines::new("input".into(), Box::new(input.as_bytes()));
        let opened = continued(&path, &mut lines);
        let next = match opened {
            Ok((mut file, _)) => {
                file.write_all(b"+").unwrap();
                Ok(lines.next().unwrap().map(|line| line.number))
            }
            Err(Failure::Usage(message)) => Err(message.fact),
            Err(_) => Err("another error".to_owned()),
        };
        (next, std::fs::read_to_string(&path).unwrap())
    }

    #[test]
    fn the_lines_that_are_answered_are_skipped() {
        let input = "1\n\n{\"id\":\"b\"}\n3\n";
        assert_eq!(resumed(input, ""), (Ok(Some(1)), "+".to_owned()));
        let one = "{\"object\":\"x\"}\n";
        assert_eq!(resumed(input, one), (Ok(Some(3)), format!("{one}+")));
        let two = format!("{one}{{\"id\":\"b\",\"object\":\"error\"}}\n");
        assert_eq!(resumed(input, &two), (Ok(Some(4)), format!("{two}+")));
        let all = format!("{two}{one}");
        assert_eq!(resumed(input, &all), (Ok(None), format!("{all}+")));
    }

    #[test]
    fn errors_in_a_file_are_counted() {
        let fault = r#"{"id":[{"object":"x"}],"object":"error","line":1,"message":"m","hint":null}"#;
        let answers = [
            fault,
            r#"{"object":"x"}"#,
            r#"{"id":{"object":"error"},"object":"x"}"#,
            r#"{"text":"\"object\":\"error\""}"#,
            r#"{"object":"error","line":5,"message":"m","hint":"h"}"#,
        ];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("answers");
        std::fs::write(&path, answers.join("\n") + "\n").unwrap();
        let Answered { count, faults, .. } = Answered::read(&File::open(&path).unwrap()).unwrap();
        assert_eq!((count, faults), (5, 2));
    }

    #[test]
    fn answers_do_not_replace_the_requests() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("requests"), dir.path().join(".").join("requests"));
        std::fs::write(&path, "{}\n").unwrap();
        let flags = [
            TargetFlags { output: Some(other.clone()), resume: None },
            TargetFlags { output: None, resume: Some(other) },
        ];
        for flags in flags {
            let opened = flags.open(&mut Lines::open(&path).ok().unwrap());
            let Err(Failure::Usage(message)) = opened else { panic!() };
            assert!(message.fact.contains("one file"), "{}", message.fact);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n");
        }
    }

    #[test]
    fn an_answer_may_repeat_any_id() {
        let nested = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for id in ["1e400", r#""\ud800""#, nested.as_str()] {
            let input = format!("{{\"id\":{id}}}\n2\n").leak();
            let one = format!("{{\"id\":{id},\"object\":\"x\"}}\n");
            assert_eq!(resumed(input, &one), (Ok(Some(2)), format!("{one}+")), "{id}");
        }
    }

    #[test]
    fn a_line_without_its_end_is_answered_again() {
        let one = "{\"object\":\"x\"}\n";
        for part in ["{", "{\"object\":\"x\"}", "   "] {
            assert_eq!(resumed("1\n2\n", &format!("{one}{part}")), (Ok(Some(2)), format!("{one}+")));
        }
    }

    #[test]
    fn what_was_cut_short_is_answered_again_and_what_follows_it() {
        let one = "{\"object\":\"x\"}\n";
        let cut = "{\"choices\":[{\"finish_reason\":\"cancelled\"}]}\n";
        assert_eq!(resumed("1\n2\n3\n", &format!("{one}{cut}{one}")), (Ok(Some(2)), format!("{one}+")));
        let quoted = "{\"text\":\"\\\"finish_reason\\\":\\\"cancelled\\\"\"}\n";
        assert_eq!(resumed("1\n2\n", quoted), (Ok(Some(2)), format!("{quoted}+")));
    }

    #[test]
    fn a_file_that_does_not_belong_to_the_input_is_left_as_it_is() {
        let refused = |input, answers: &str, expect: &str| {
            let (next, left) = resumed(input, answers);
            let fact = next.unwrap_err();
            assert!(fact.contains(expect), "{fact}");
            assert_eq!(left, answers);
        };
        refused("1\n", "{\"object\":\"x\"}\n{\"object\":\"x\"}\n", "2 answers");
        refused("1\n", "some text\n", "line 1 is not an answer");
        refused("{\"id\":1}\n", "{\"id\":2,\"object\":\"x\"}\n{", "the last answer has the id 2");
        refused("{\"id\":1}\n", "{\"object\":\"x\"}\n", "the last answer has no id");
    }
}
