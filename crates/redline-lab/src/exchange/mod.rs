//! Runs in the formats of other tools, one file per format. Export lets other trackers follow Redline; import lets results of
//! another engine appear in the same table and plot.
//!
//! Input is not trusted: the size of a file, its number of cases and the number of values per case are limited, and damage is
//! reported with its line or entry. Other tools do not check outputs, so imported rows are not `checked` unless the caller
//! vouches for them. A machine is only what the file describes, without a fingerprint.

mod bmf;
mod gbench;
mod values;

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::path::Path;
use std::{fmt, fs};

use serde::Serialize;
use serde_json::{Value, json};

use crate::result::Row;
use crate::run::{Build, Run, SCHEMA};

type Result<T, E = ExchangeError> = std::result::Result<T, E>;

/// Maximum size of a file.
pub const MAX_BYTES: u64 = 64 << 20;
/// Maximum number of cases in a file.
pub const MAX_CASES: usize = 10_000;
/// Maximum number of additional named values per case, such as settings and counters.
pub const MAX_NAMES: usize = 256;

/// Every format.
pub const ALL: &[ExchangeFormat] = &[
    both("gbench-json", "Google Benchmark, JSON: a context and an entry per repetition", gbench::JSON),
    both("gbench-csv", "Google Benchmark, comma-separated values", gbench::CSV),
    written("bmf", "Bencher Metric Format: headlines with their intervals", bmf::write),
];

/// A format of another tool.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeFormat {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line of description.
    pub about: &'static str,
    /// Writes the rows of a run; see [`export`].
    pub write: Writer,
    /// Reads the format; `None` if its files lack data that a run needs.
    pub read: Option<Reader>,
}

/// The functions that read a format.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// Whether a text looks like this format.
    pub recognises: fn(&str) -> bool,
    /// Parses the run of a text. Only cases that failed according to the file are unchecked.
    pub read: fn(&str) -> Result<Run>,
}

type Writer = fn(&Run) -> Result<Exported>;

/// A format that is written and read.
const fn both(name: &'static str, about: &'static str, (write, read): (Writer, Reader)) -> ExchangeFormat {
    ExchangeFormat { name, about, write, read: Some(read) }
}

/// A format that is only written.
const fn written(name: &'static str, about: &'static str, write: Writer) -> ExchangeFormat {
    ExchangeFormat { name, about, write, read: None }
}

/// A run in another format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// The text of the file.
    pub text: String,
    /// Sentences about data that the file does not contain.
    pub notes: Vec<String>,
}

impl Exported {
    /// A file with one JSON document, indented.
    fn json(document: &impl Serialize, notes: Vec<String>) -> Result<Self> {
        let text =
            serde_json::to_string_pretty(document).map_err(|e| error(e.to_string(), "is the run whole?"))?;
        Ok(Self { text: text + "\n", notes })
    }
}

/// Information from the caller about a file.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// The engine's name. `None` takes the name from the file, or `unknown`.
    pub engine: Option<String>,
    /// Whether the outputs are known to be correct.
    pub trust: bool,
}

/// A position in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePosition {
    /// The file as a whole.
    File,
    /// A line, from 1.
    Line(u64),
    /// An element of its list, from 1.
    Entry(usize),
}

/// Why a file cannot be read, or a run cannot be exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeError {
    /// The position.
    pub place: FilePosition,
    /// The fact.
    pub fact: String,
    /// Advice for the user.
    pub hint: String,
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            FilePosition::File => f.write_str(&self.fact),
            FilePosition::Line(line) => write!(f, "line {line}: {}", self.fact),
            FilePosition::Entry(entry) => write!(f, "entry {entry}: {}", self.fact),
        }
    }
}

impl std::error::Error for ExchangeError {}

impl FilePosition {
    /// An error at this position.
    fn error(self, fact: impl Into<String>, hint: impl Into<String>) -> ExchangeError {
        ExchangeError { place: self, fact: fact.into(), hint: hint.into() }
    }
}

/// An error about a file or a run as a whole.
fn error(fact: impl Into<String>, hint: impl Into<String>) -> ExchangeError {
    FilePosition::File.error(fact, hint)
}

/// The format of that name.
pub fn format(name: &str) -> Option<&'static ExchangeFormat> {
    ALL.iter().find(|format| format.name == name)
}

/// Exports a run. Invalid rows are omitted with a note, unless `invalid` includes them.
pub fn export(run: &Run, format: &ExchangeFormat, invalid: bool) -> Result<Exported> {
    let mut kept = run.clone();
    let mut notes = Vec::new();
    if !invalid {
        kept.rows.retain(|row| {
            let why = row.invalid();
            notes.extend(why.as_ref().map(|why| format!("`{}` is left out: {why}", row.case)));
            why.is_none()
        });
    }
    if kept.rows.is_empty() {
        let fact = match run.rows.len() {
            0 => "the run has no rows".to_owned(),
            all => format!("none of {all} rows may be believed: {}", notes.join("; ")),
        };
        return Err(error(fact, "`--invalid` exports such rows, too"));
    }
    let exported = (format.write)(&kept)?;
    notes.extend(exported.notes);
    Ok(Exported { text: exported.text, notes })
}

/// Imports a text in a format; `None` detects the format.
pub fn import(text: &str, format: Option<&ExchangeFormat>, said: &Said) -> Result<Run> {
    const FORMATS: &str = "`redline import --help` lists the formats; `--from` names one";
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(error("the file is empty", "did the benchmark write its results?"));
    }
    let reader = match format {
        Some(format) => format.read.ok_or_else(|| format!("`{}` is written, not read", format.name)),
        None => {
            let mut readers = ALL.iter().filter_map(|format| format.read);
            let reader = readers.find(|reader| (reader.recognises)(text));
            reader.ok_or_else(|| "this is none of the formats that are read".to_owned())
        }
    };
    let reader = reader.map_err(|fact| error(fact, FORMATS))?;
    let mut run = (reader.read)(text)?;
    if run.rows.is_empty() {
        return Err(error("no results", "did the benchmark run to its end?"));
    }
    let engine = said.engine.as_ref().unwrap_or(&run.engine.name);
    run.engine.name = values::plain(if engine.is_empty() { "unknown" } else { engine });
    for row in &mut run.rows {
        row.checked &= said.trust;
        row.case = values::plain(&row.case);
    }
    Ok(run)
}

/// A run with these fields; others are as in a document that omits them.
fn run(engine: Build, lane: &str, started_at: Option<String>, machine: Value, rows: Vec<Row>) -> Result<Run> {
    let document = json!({
        "schema": SCHEMA, "started_at": started_at, "engine": engine, "machine": machine, "lane": lane, "rows": [],
    });
    let run: Run =
        serde_json::from_value(document).map_err(|e| error(e.to_string(), "is the file damaged?"))?;
    Ok(Run { rows, ..run })
}

/// Reads a file of at most [`MAX_BYTES`].
pub fn read_text(path: &Path) -> Result<String> {
    let unreadable = |e: io::Error| error(e.to_string(), "check the path, and that it may be read");
    let file = fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        let fact = format!("the file is longer than {}", redline_system::number::bytes(MAX_BYTES));
        return Err(error(fact, "results are small: is this the right file?"));
    }
    String::from_utf8(bytes).map_err(|e| {
        let fact = format!("byte {} is not UTF-8", e.utf8_error().valid_up_to());
        error(fact, "results are text: is this the right file?")
    })
}

/// A unique name for each row: its case, its arm if there is one, and a number if needed.
fn names(rows: &[Row]) -> Vec<String> {
    let mut used = BTreeSet::new();
    let name = |row: &Row| {
        let arm = row.arm.as_ref().map(|arm| format!("/arm:{arm}")).unwrap_or_default();
        let plain = format!("{}{arm}", row.case);
        let numbered = (2..).map(|n| format!("{plain}/{n}"));
        let mut names = std::iter::once(plain.clone()).chain(numbered);
        names.find(|name| used.insert(name.clone())).unwrap_or(plain)
    };
    rows.iter().map(name).collect()
}

#[cfg(test)]
mod tests;
