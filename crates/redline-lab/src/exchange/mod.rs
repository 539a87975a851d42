//! Runs in the formats of other tools, one file per format. Export lets other trackers follow Redline; import lets results of
//! another engine appear in the same table and plot.
//!
//! Input is not trusted: the size of a file, its number of cases and the number of values per case are limited, and damage is
//! reported with its line or entry. Other tools do not check outputs, so imported rows are not `checked` unless the caller
//! vouches for them. A machine is only what the file describes, without a fingerprint.

mod bmf;
mod gbench;
mod github_action;
mod llama_bench;
mod values;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::result::Row;
use crate::run::{Build, Run, SCHEMA};

/// Maximum size of a file.
pub const MAX_BYTES: u64 = 64 << 20;
/// Maximum number of cases in a file.
pub const MAX_CASES: usize = 10_000;
/// Maximum number of additional named values per case, such as settings and counters.
pub const MAX_NAMES: usize = 256;

/// Every format.
pub const ALL: &[Format] = &[
    gbench::JSON,
    gbench::CSV,
    llama_bench::JSON,
    llama_bench::JSONL,
    llama_bench::CSV,
    bmf::FORMAT,
    github_action::BIGGER,
    github_action::SMALLER,
];

/// A format of another tool.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line of description.
    pub about: &'static str,
    /// Writes the rows of a run; see [`export`].
    pub write: fn(&Run) -> Result<Exported, NotExported>,
    /// Reads the format; `None` if its files lack data that a run needs.
    pub read: Option<Reader>,
}

/// The functions that read a format.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// Whether a text looks like this format.
    pub recognises: fn(&str) -> bool,
    /// Parses the run of a text.
    pub read: fn(&str) -> Result<Imported, BadFile>,
}

/// A run in another format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// The text of the file.
    pub text: String,
    /// Sentences about data that the file does not contain.
    pub notes: Vec<String>,
}

/// Why a run cannot be exported to a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotExported {
    /// The fact.
    pub fact: String,
    /// Advice for the user.
    pub hint: String,
}

impl fmt::Display for NotExported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fact)
    }
}

impl std::error::Error for NotExported {}

/// The content of another tool's file.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// The engine; its name is empty if unknown.
    pub engine: Build,
    /// The lane that the row names follow.
    pub lane: String,
    /// The start time as in the file.
    pub started_at: Option<String>,
    /// The machine as an object; `null` if unknown.
    pub machine: Value,
    /// The rows, all unchecked.
    pub rows: Vec<Row>,
    /// Cases that failed according to the file. They stay unchecked even if the caller vouches for the other rows.
    pub failed: Vec<String>,
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
pub enum Place {
    /// The file as a whole.
    File,
    /// A line, from 1.
    Line(u64),
    /// An element of its list, from 1.
    Entry(usize),
}

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFile {
    /// The position.
    pub place: Place,
    /// The fact.
    pub fact: String,
    /// Advice for the user.
    pub hint: &'static str,
}

impl fmt::Display for BadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::File => f.write_str(&self.fact),
            Place::Line(line) => write!(f, "line {line}: {}", self.fact),
            Place::Entry(entry) => write!(f, "entry {entry}: {}", self.fact),
        }
    }
}

impl std::error::Error for BadFile {}

impl BadFile {
    fn at(place: Place, fact: impl Into<String>, hint: &'static str) -> Self {
        Self { place, fact: fact.into(), hint }
    }
}

/// The format of that name.
pub fn format(name: &str) -> Option<&'static Format> {
    ALL.iter().find(|format| format.name == name)
}

/// Exports a run. Invalid rows are omitted with a note, unless `invalid` includes them.
pub fn export(run: &Run, format: &Format, invalid: bool) -> Result<Exported, NotExported> {
    let mut kept = run.clone();
    let mut notes = Vec::new();
    if !invalid {
        kept.rows.retain(|row| match row.invalid() {
            None => true,
            Some(why) => {
                notes.push(format!("`{}` is left out: {why}", row.case));
                false
            }
        });
    }
    if kept.rows.is_empty() {
        let fact = if run.rows.is_empty() {
            "the run has no rows".to_owned()
        } else {
            format!("none of {} rows may be believed: {}", run.rows.len(), notes.join("; "))
        };
        return Err(NotExported { fact, hint: "`--invalid` exports such rows, too".to_owned() });
    }
    let mut exported = (format.write)(&kept)?;
    notes.append(&mut exported.notes);
    Ok(Exported { notes, ..exported })
}

/// Imports a text in a format; `None` detects the format.
pub fn import(text: &str, format: Option<&Format>, said: &Said) -> Result<Run, BadFile> {
    const FORMATS: &str = "`redline import --help` lists the formats; `--from` names one";
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(BadFile::at(Place::File, "the file is empty", "did the benchmark write its results?"));
    }
    let reader = match format {
        Some(format) => format.read.ok_or_else(|| {
            BadFile::at(Place::File, format!("`{}` is written, not read", format.name), FORMATS)
        })?,
        None => {
            let known = ALL.iter().filter_map(|format| format.read).find(|r| (r.recognises)(text));
            known.ok_or_else(|| {
                BadFile::at(Place::File, "this is none of the formats that are read", FORMATS)
            })?
        }
    };
    run((reader.read)(text)?, said)
}

fn run(mut found: Imported, said: &Said) -> Result<Run, BadFile> {
    if found.rows.is_empty() {
        return Err(BadFile::at(Place::File, "no results", "did the benchmark run to its end?"));
    }
    if let Some(name) = said.engine.clone() {
        found.engine.name = name;
    }
    if found.engine.name.is_empty() {
        "unknown".clone_into(&mut found.engine.name);
    }
    found.engine.name = values::plain(&found.engine.name);
    let failed: BTreeSet<String> = std::mem::take(&mut found.failed).into_iter().collect();
    for row in &mut found.rows {
        row.checked = said.trust && !failed.contains(&row.case);
        row.case = values::plain(&row.case);
    }
    // Other fields are as in a document that omits them.
    let document = json!({
        "schema": SCHEMA, "started_at": found.started_at, "engine": found.engine, "machine": found.machine, "lane": found.lane,
        "rows": [],
    });
    let run: Result<Run, _> = serde_json::from_value(document);
    let run = run.map_err(|error| BadFile::at(Place::File, error.to_string(), "is the file damaged?"))?;
    Ok(Run { rows: found.rows, ..run })
}

/// Reads a file of at most [`MAX_BYTES`].
pub fn read_text(path: &Path) -> Result<String, BadFile> {
    const HINT: &str = "check the path, and that it may be read";
    let file = File::open(path).map_err(|e| BadFile::at(Place::File, e.to_string(), HINT))?;
    let mut bytes = Vec::new();
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|e| BadFile::at(Place::File, e.to_string(), HINT))?;
    if bytes.len() as u64 > MAX_BYTES {
        let fact = format!("the file is longer than {}", crate::number::bytes(MAX_BYTES));
        return Err(BadFile::at(Place::File, fact, "results are small: is this the right file?"));
    }
    String::from_utf8(bytes).map_err(|e| {
        let fact = format!("byte {} is not UTF-8", e.utf8_error().valid_up_to());
        BadFile::at(Place::File, fact, "results are text: is this the right file?")
    })
}

/// A unique name for each row: its case, its arm if there is one, and a number if needed.
fn names(rows: &[Row]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let name = |row: &Row| {
        let plain = match &row.arm {
            Some(arm) => format!("{}/arm:{arm}", row.case),
            None => row.case.clone(),
        };
        let numbered = (2..).map(|n| format!("{plain}/{n}"));
        let mut names = std::iter::once(plain.clone()).chain(numbered);
        names.find(|name| taken.insert(name.clone())).unwrap_or(plain)
    };
    rows.iter().map(name).collect()
}

#[cfg(test)]
mod tests;
