//! A run on disk: the measurements, the machine, the build and the command. Schema `redline.bench.run/1`.
//!
//! A directory contains `run.json` with everything, `results.csv` (a line per case and metric) and `samples.csv` (a line per
//! sample). Readers ignore unknown fields and require few: `schema`, `engine.name`, `lane`, and for each row `case` and `metrics`
//! with `unit`, `direction` and `samples`. A row without `"checked": true` is invalid. A driver of another engine can therefore
//! write the same document; the object `machine` of `redline doctor --json` can be inserted unchanged.
//!
//! The files are rewritten after every case, each atomically. A run that is killed therefore contains every finished case and has
//! `"finished": false`. A baseline is such a document with `_meta`.

mod columns;
mod error;
mod summary;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use redline_weights::{Disk, write_file_on, write_new_file_on};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use error::RunError;

use crate::result::{LaneResult, Ordered, Row};
use redline_system::Machine;
use redline_system::digest::digest;

/// The schema that is read and written.
pub const SCHEMA: &str = "redline.bench.run/1";

/// The file with all data; its presence makes a directory a run.
pub const DOCUMENT: &str = "run.json";

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: String,
    /// A unique name.
    pub run_id: Option<String>,
    /// Start time: RFC 3339, UTC.
    pub started_at: Option<String>,
    /// The command line.
    #[serde(default)]
    pub command: Vec<String>,
    /// The measured engine.
    pub engine: Build,
    /// The machine.
    #[serde(default)]
    pub machine: Host,
    /// Environment variables that were set and used.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The lane.
    pub lane: String,
    /// Descriptions of the arms by name, in a run with two arms.
    #[serde(default, skip_serializing_if = "Ordered::is_empty")]
    pub arms: Ordered<Value>,
    /// A row per case and arm.
    pub rows: Vec<Row>,
    /// The lowest and highest reading of each limit of the rows.
    #[serde(default)]
    pub limits: Value,
    /// The comparison, if the command made one.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub comparison: Value,
    /// The profile of the lane: `smoke`, `standard` or `full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Whether every case was run. A run that was killed has the finished cases only.
    #[serde(default = "finished")]
    pub finished: bool,
    /// Summary of invalid cases.
    #[serde(default)]
    pub summary: Validity,
    /// The reason for accepting it as a baseline, with details.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
}

/// The default for documents of other engines, which omit the field.
fn finished() -> bool {
    true
}

/// Summary of the validity of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// Whether every row is valid and meets its gates.
    pub valid: bool,
    /// The cases that are invalid or miss a gate, with the reason.
    #[serde(default)]
    pub invalid: Vec<String>,
}

impl Validity {
    fn of(rows: &[Row]) -> Self {
        let complaints = |row: &Row| {
            let whys = row.invalid().into_iter().chain(row.missed());
            whys.map(|why| format!("{}: {why}", row.case)).collect::<Vec<_>>()
        };
        let invalid: Vec<String> = rows.iter().flat_map(complaints).collect();
        Self { valid: invalid.is_empty(), invalid }
    }
}

/// Metadata of a baseline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Why it was accepted.
    pub reason: String,
    /// Acceptance time: RFC 3339, UTC.
    pub accepted_at: Option<String>,
    /// The machine in one line.
    pub hardware: Option<String>,
    /// Its usable cores.
    pub cores: Option<usize>,
    /// The machine's fingerprint.
    pub host_fp: Option<String>,
    /// The commit that was measured.
    pub git_sha: Option<String>,
    /// The id of the run that it replaced.
    pub supersedes: Option<String>,
}

/// A build of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// `redline`, or the name of another engine.
    pub name: String,
    /// Its version.
    pub version: Option<String>,
    /// The commit it was built from.
    pub git: Option<String>,
    /// Whether tracked files differed from that commit.
    pub dirty: Option<bool>,
    /// The compiler.
    pub rustc: Option<String>,
    /// The profile it was built with.
    pub profile: Option<String>,
}

impl Build {
    /// In one line: `redline 0.1.0 (189cc5c41a0b, dirty)`.
    pub fn one_line(&self) -> String {
        let version = self.version.as_ref().map(|v| format!(" {v}")).unwrap_or_default();
        let dirty = if self.dirty == Some(true) { ", dirty" } else { "" };
        let git = self.git.as_ref().map(|git| {
            let short: String = git.chars().take(12).collect();
            format!(" ({short}{dirty})")
        });
        format!("{}{version}{}", self.name, git.unwrap_or_default())
    }
}

/// The machine of a run as in its document: an object of any shape, of which only `fingerprint`, `summary` and `identity`
/// are used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Host(Value);

impl Host {
    /// The description of this machine.
    pub fn of(machine: &Machine) -> serde_json::Result<Self> {
        serde_json::to_value(machine).map(Self)
    }

    /// The fingerprint, equal on machines of the same kind; `None` if missing.
    pub fn fingerprint(&self) -> Option<&str> {
        self.0["fingerprint"].as_str()
    }

    /// The machine in one line.
    pub fn summary(&self) -> Option<&str> {
        self.0["summary"].as_str()
    }

    /// Cores that the run could use.
    pub fn cores(&self) -> Option<usize> {
        self.0["usable"]["cores"].as_u64()?.try_into().ok()
    }

    /// A field of the identity, from which the fingerprint is computed.
    pub fn identity(&self, field: &str) -> Option<&str> {
        self.0["identity"][field].as_str()
    }

    /// The names of the fields of the identity.
    pub fn identity_fields(&self) -> Vec<&str> {
        self.0["identity"].as_object().into_iter().flat_map(|f| f.keys().map(String::as_str)).collect()
    }
}

/// The fields that are checked before the document is parsed.
#[derive(Deserialize)]
struct Head {
    schema: Option<Value>,
}

/// When and how a run was started.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// The date and time.
    pub at: Option<SystemTime>,
    /// The command line.
    pub command: Vec<String>,
    /// Environment variables that were set and used.
    pub environment: BTreeMap<String, String>,
}

impl Run {
    /// Creates the run of `result`.
    pub fn new(engine: Build, start: Start, result: LaneResult) -> serde_json::Result<Self> {
        let started_at = start.at.map(|at| humantime::format_rfc3339_seconds(at).to_string());
        let since = start.at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        let unique = format!("{:?} {}", since, std::process::id());
        let run_id = started_at.as_ref().map(|text| {
            let stamp: String = text.chars().filter(char::is_ascii_alphanumeric).collect();
            format!("{stamp}-{}", &digest(unique.bytes())[..8])
        });
        Ok(Self {
            schema: SCHEMA.to_owned(),
            run_id,
            started_at,
            command: start.command,
            engine,
            machine: Host::of(&result.machine)?,
            environment: start.environment,
            lane: result.lane,
            limits: limits(&result.rows),
            summary: Validity::of(&result.rows),
            rows: result.rows,
            finished: true,
            ..Self::default()
        })
    }

    /// The run as a baseline.
    pub fn accepted(self, reason: &str, at: SystemTime, supersedes: Option<String>) -> Self {
        let meta = Meta {
            reason: reason.to_owned(),
            accepted_at: Some(humantime::format_rfc3339_seconds(at).to_string()),
            hardware: self.machine.summary().map(ToOwned::to_owned),
            cores: self.machine.cores(),
            host_fp: self.machine.fingerprint().map(ToOwned::to_owned),
            git_sha: self.engine.git.clone(),
            supersedes,
        };
        Self { meta: Some(meta), comparison: Value::Null, ..self }
    }

    /// Parses a document.
    pub fn parse(text: &str) -> Result<Self, RunError> {
        let head: Head = serde_json::from_str(text).map_err(RunError::Json)?;
        match head.schema {
            Some(schema) if schema == SCHEMA => serde_json::from_str(text).map_err(RunError::Json),
            Some(other) => Err(RunError::Schema(other.to_string())),
            None => Err(RunError::NoSchema),
        }
    }

    /// Reads `run.json` in a directory, or the file itself.
    pub fn read(path: &Path) -> Result<Self, (PathBuf, RunError)> {
        let path = if path.is_dir() { path.join(DOCUMENT) } else { path.to_owned() };
        let run = text_of(&path).map_err(RunError::Read).and_then(|text| Self::parse(&text));
        run.map_err(|error| (path, error))
    }

    /// The document, indented, with a line break at the end.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// Writes `results.csv`, `samples.csv` and, last, `run.json` into a directory that contains no run yet.
    pub fn write(&self, dir: &Path) -> Result<(), RunError> {
        RunDirectory::claim(dir, self)?.write(self)
    }
}

/// Bytes of the longest document of a run.
const LONGEST: u64 = 256 << 20;

/// The text of a document. A device may have no end.
fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("it is longer than {} MiB", LONGEST >> 20)));
    }
    Ok(text)
}

/// A directory that is claimed by one run.
#[derive(Debug)]
pub struct RunDirectory {
    disk: Disk,
    dir: PathBuf,
    /// Whether the directory was created for the run.
    made: bool,
}

impl RunDirectory {
    /// Creates the directory and a `run.json` of `run` in it. It is an error if the directory already has a run, even an
    /// unfinished one.
    pub fn claim(dir: &Path, run: &Run) -> Result<Self, RunError> {
        Self::claim_on(Disk::default(), dir, run)
    }

    /// Like [`claim`](Self::claim), but writes through `disk`.
    pub fn claim_on(disk: Disk, dir: &Path, run: &Run) -> Result<Self, RunError> {
        let document = run.json().map_err(RunError::Json)?;
        let made = !dir.exists();
        disk.create_dir_all(dir).map_err(RunError::Write)?;
        let claimed = Self { disk, dir: dir.to_owned(), made };
        match write_new_file_on(&claimed.disk, &dir.join(DOCUMENT), document.as_bytes()) {
            Ok(()) => Ok(claimed),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(RunError::Occupied),
            Err(error) => {
                claimed.remove_made();
                Err(RunError::Write(error))
            }
        }
    }

    /// The path of the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes the current state, `run.json` last; each file is replaced atomically.
    pub fn write(&self, run: &Run) -> Result<(), RunError> {
        let document = run.json().map_err(RunError::Json)?;
        let files =
            [("results.csv", run.results_csv()), ("samples.csv", run.samples_csv()), (DOCUMENT, document)];
        for (name, text) in files {
            write_file_on(&self.disk, &self.dir.join(name), text.as_bytes()).map_err(RunError::Write)?;
        }
        Ok(())
    }

    /// Removes the claim if nothing was measured.
    pub fn leave(&self) {
        // If removal fails, an unfinished run without cases remains.
        let _ = self.disk.remove_file(&self.dir.join(DOCUMENT));
        self.remove_made();
    }

    fn remove_made(&self) {
        if self.made {
            let _ = self.disk.remove_dir(&self.dir);
        }
    }
}

/// The range of the readings of each limit. Rows name their limit and store its readings as metric `limit`.
fn limits(rows: &[Row]) -> Value {
    let mut ranges: BTreeMap<&str, (&str, f64, f64)> = BTreeMap::new();
    for row in rows {
        let Some((name, s)) = row.limit.as_deref().zip(row.samples_of("limit")) else { continue };
        let Some((min, max)) = s.min().zip(s.max()) else { continue };
        let range = ranges.entry(name).or_insert((s.unit(), min, max));
        (range.1, range.2) = (range.1.min(min), range.2.max(max));
    }
    let range = |(name, (unit, low, high)): (&str, _)| {
        (name.to_owned(), serde_json::json!({"unit": unit, "low": low, "high": high}))
    };
    Value::Object(ranges.into_iter().map(range).collect())
}
