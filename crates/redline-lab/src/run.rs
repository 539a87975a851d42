//! A run on disk: what was measured, where, by which build, with which command. Schema `redline.bench.run/1`.
//!
//! A directory holds `run.json` with everything, `results.csv` (a line per case and metric) and `samples.csv` (a line per
//! sample). Readers ignore fields they do not know and need few: `schema`, `engine.name`, `lane`, and of each row `case` and
//! `metrics` with `unit`, `direction` and `samples`; a row that does not say `"checked": true` is invalid. So a driver of
//! another engine can write the same document; the object `machine` of `redline doctor --json` belongs into it as it is.

mod columns;
mod error;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use redline_weights::write_file;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use error::RunError;

use crate::digest::digest;
use crate::machine::Machine;
use crate::result::{LaneResult, Ordered, Row};

/// The schema that is written and read.
pub const SCHEMA: &str = "redline.bench.run/1";

/// The file that holds everything.
const DOCUMENT: &str = "run.json";

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: String,
    /// A name that no other run has.
    pub run_id: Option<String>,
    /// When it began: RFC 3339, UTC.
    pub started_at: Option<String>,
    /// The command line.
    #[serde(default)]
    pub command: Vec<String>,
    /// What was measured.
    pub engine: Build,
    /// Where.
    #[serde(default)]
    pub machine: Host,
    /// Environment variables that were set and read.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The lane.
    pub lane: String,
    /// What the arms of a run with two are, by name.
    #[serde(default, skip_serializing_if = "Ordered::is_empty")]
    pub arms: Ordered<Value>,
    /// A row per case and arm.
    pub rows: Vec<Row>,
    /// The lowest and highest reading of each limit that rows were held against.
    #[serde(default)]
    pub limits: Value,
    /// The comparison that the command was asked for.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub comparison: Value,
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

/// The machine of a run as its document tells it: an object of any shape, of which `fingerprint`, `summary` and `identity`
/// are looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Host(Value);

impl Host {
    /// This machine.
    pub fn of(machine: &Machine) -> serde_json::Result<Self> {
        serde_json::to_value(machine).map(Self)
    }

    /// Equal on the same kind of machine; `None` where it is not told.
    pub fn fingerprint(&self) -> Option<&str> {
        self.0.get("fingerprint")?.as_str()
    }

    /// The machine in one line.
    pub fn summary(&self) -> Option<&str> {
        self.0.get("summary")?.as_str()
    }

    /// A field of what makes the fingerprint.
    pub fn identity(&self, field: &str) -> Option<&str> {
        self.0.get("identity")?.get(field)?.as_str()
    }

    /// The fields of what makes the fingerprint.
    pub fn identity_fields(&self) -> Vec<&str> {
        let fields = self.0.get("identity").and_then(Value::as_object);
        fields.map(|f| f.keys().map(String::as_str).collect()).unwrap_or_default()
    }
}

/// What is looked at before anything else of a document.
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
    /// Environment variables that were set and read.
    pub environment: BTreeMap<String, String>,
}

impl Run {
    /// The run that gave `result`.
    pub fn new(engine: Build, start: Start, result: LaneResult) -> serde_json::Result<Self> {
        let started_at = start.at.map(|at| humantime::format_rfc3339_seconds(at).to_string());
        let since = start.at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        let unique = format!("{:?} {}", since, std::process::id());
        let stamp: Option<String> =
            started_at.as_ref().map(|text| text.chars().filter(char::is_ascii_alphanumeric).collect());
        Ok(Self {
            schema: SCHEMA.to_owned(),
            run_id: stamp.map(|stamp| format!("{stamp}-{}", &digest(unique.bytes())[..8])),
            started_at,
            command: start.command,
            engine,
            machine: Host::of(&result.machine)?,
            environment: start.environment,
            lane: result.lane,
            arms: Ordered::default(),
            limits: limits(&result.rows),
            rows: result.rows,
            comparison: Value::Null,
        })
    }

    /// Reads a document.
    pub fn parse(text: &str) -> Result<Self, RunError> {
        let head: Head = serde_json::from_str(text).map_err(RunError::Json)?;
        match head.schema {
            Some(schema) if schema == SCHEMA => serde_json::from_str(text).map_err(RunError::Json),
            Some(found) => Err(RunError::Schema(found.to_string())),
            None => Err(RunError::NoSchema),
        }
    }

    /// Reads `run.json` in a directory, or a file.
    pub fn read(path: &Path) -> Result<Self, (PathBuf, RunError)> {
        let path = if path.is_dir() { path.join(DOCUMENT) } else { path.to_owned() };
        let run = fs::read_to_string(&path).map_err(RunError::Read).and_then(|text| Self::parse(&text));
        run.map_err(|error| (path, error))
    }

    /// The document, indented, with a line break at the end.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// Makes the directory of a run; refused where one lies in it already.
    pub fn prepare(dir: &Path) -> Result<(), RunError> {
        if dir.join(DOCUMENT).exists() {
            return Err(RunError::Occupied);
        }
        fs::create_dir_all(dir).map_err(RunError::Write)
    }

    /// Writes `results.csv`, `samples.csv` and, last, `run.json`.
    pub fn write(&self, dir: &Path) -> Result<(), RunError> {
        Self::prepare(dir)?;
        let document = self.json().map_err(RunError::Json)?;
        let files =
            [("results.csv", self.results_csv()), ("samples.csv", self.samples_csv()), (DOCUMENT, document)];
        for (name, text) in files {
            write_file(&dir.join(name), text.as_bytes()).map_err(RunError::Write)?;
        }
        Ok(())
    }
}

/// The range of the readings of each limit: rows name their limit and keep its readings as metric `limit`.
fn limits(rows: &[Row]) -> Value {
    let mut ranges: BTreeMap<&str, (&str, f64, f64)> = BTreeMap::new();
    for row in rows {
        let Some((name, metric)) = row.limit.as_deref().zip(row.metrics.get("limit")) else { continue };
        let s = metric.samples();
        let Some((min, max)) = s.min().zip(s.max()) else { continue };
        let range = ranges.entry(name).or_insert((s.unit(), min, max));
        (range.1, range.2) = (range.1.min(min), range.2.max(max));
    }
    let told = |(name, (unit, low, high)): (&str, _)| {
        (name.to_owned(), serde_json::json!({"unit": unit, "low": low, "high": high}))
    };
    Value::Object(ranges.into_iter().map(told).collect())
}
