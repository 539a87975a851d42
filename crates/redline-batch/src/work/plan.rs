//! The plan of the work: what every part of the results depends on.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;
use std::{fs, thread};

use redline_api::error::ApiError;
use redline_api::jsonl::model::ChatModel;
use redline_weights::{Disk, Sha256Digest, write_new_file_on};
use serde::Serialize;
use serde_json::Value;

use super::inputs::Input;
use crate::error::BatchError;
use crate::json::Json;
use crate::kind::Kind;
use crate::request::TableRequest;

/// The form of plan and manifest.
const SCHEMA: &str = "redline.batch/1";
/// Digits of the digest in the name of a file of results.
const DIGITS: usize = 16;

/// Maximum number of files of results.
const MAX_FILES: u64 = 10_000_000;
/// How often, and after what time, a plan that another worker is writing is read again.
const PATIENCE: usize = 20;
const MOMENT: Duration = Duration::from_millis(50);

/// What all parts depend on.
#[derive(Debug, Serialize)]
pub(super) struct Fixed {
    schema: &'static str,
    version: &'static str,
    model: PlanModel,
    request: PlanRequest,
    inputs: Vec<PlanInput>,
}

/// The model.
#[derive(Debug, Serialize)]
struct PlanModel {
    weights: String,
    texts: String,
    context: usize,
    /// Checksums by name.
    adapters: BTreeMap<String, String>,
    /// A digest of the chat template, and whether prompts are formatted.
    chat_template: Option<String>,
    chat: bool,
}

/// What is asked.
#[derive(Debug, Serialize)]
struct PlanRequest {
    kind: &'static str,
    columns: BTreeMap<String, String>,
    values: BTreeMap<String, Json>,
    keep: Option<Vec<String>>,
    prefix: String,
    rows_per_file: usize,
}

/// An input.
#[derive(Debug, Serialize)]
struct PlanInput {
    file: String,
    bytes: u64,
    sha256: Sha256Digest,
    rows: u64,
}

impl Fixed {
    pub(super) fn new(
        request: &TableRequest,
        kind: &dyn Kind,
        on: ChatModel<'_>,
        inputs: &[Input],
    ) -> Result<Self, BatchError> {
        let info = on.model.engine.info();
        let identity = on.model.engine.identity().map_err(ApiError::from)?;
        let adapters = on.model.engine.adapter_checksums();
        let template = on.chat.source().map(|text| Sha256Digest::of(text.as_bytes()).to_string());
        Ok(Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            model: PlanModel {
                weights: identity.weights.clone(),
                texts: identity.texts.clone(),
                context: info.context,
                adapters: adapters.into_iter().map(|(name, sum)| (name, sum.to_string())).collect(),
                chat_template: template,
                chat: on.chat.formats_prompts(),
            },
            request: PlanRequest {
                kind: kind.name(),
                columns: request.columns.clone(),
                values: request.values.clone(),
                keep: request.keep.clone(),
                prefix: request.prefix.clone(),
                rows_per_file: request.rows_per_file,
            },
            inputs: inputs
                .iter()
                .map(|input| PlanInput {
                    file: input.name.clone(),
                    bytes: input.state.bytes(),
                    sha256: input.digest,
                    rows: input.open.table.groups().iter().fold(0, |all, rows| all.saturating_add(*rows)),
                })
                .collect(),
        })
    }

    /// The name of a new column in the results.
    pub(super) fn column(&self, name: &str) -> String {
        format!("{}{name}", self.request.prefix)
    }
}

/// Some rows of an input, whose results are one file.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The name of the file.
    pub(crate) file: String,
    pub(crate) input: usize,
    pub(crate) group: usize,
    /// Its rows within the group.
    pub(crate) range: Range<u64>,
    /// Number of rows of the input before it.
    pub(crate) before: u64,
}

impl Part {
    /// Number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// The plan.
pub(super) struct Plan {
    pub(super) fixed: Fixed,
    pub(super) parts: Vec<Part>,
}

impl Plan {
    /// Divides the rows into parts. No part has rows of two groups.
    pub(super) fn new(fixed: Fixed, inputs: &[Input]) -> Result<Self, BatchError> {
        let mut files = 0_u64;
        for input in inputs {
            for rows in input.open.table.groups() {
                files = files.saturating_add(rows.div_ceil(fixed.request.rows_per_file as u64));
            }
            if files > MAX_FILES {
                let rows =
                    input.open.table.groups().iter().fold(0_u64, |all, rows| all.saturating_add(*rows));
                let reason = format!("{rows} rows make more than {MAX_FILES} files of results");
                return Err(BatchError::table(&input.open.path, &reason));
            }
        }
        let most = fixed.request.rows_per_file as u64;
        let digest = Sha256Digest::of(&json(&(&fixed.version, &fixed.model, &fixed.request))).to_string();
        let mut parts = Vec::new();
        for (input, from) in inputs.iter().enumerate() {
            let mut before = 0;
            for (group, rows) in from.open.table.groups().iter().enumerate() {
                for start in (0..*rows).step_by(usize::try_from(most).unwrap_or(usize::MAX)) {
                    let range = start..rows.min(&(start.saturating_add(most))).to_owned();
                    let of = [digest.clone(), from.digest.to_string(), format!("{group} {range:?}")];
                    let digest = Sha256Digest::of_texts(of).to_string();
                    let number = parts.len() + 1;
                    let file =
                        format!("part-{number:08}-{}.{}", &digest[..DIGITS], from.open.format.endings()[0]);
                    parts.push(Part { file, input, group, before: before + start, range });
                }
                before += rows;
            }
        }
        Ok(Self { fixed, parts })
    }

    /// Writes the plan to `path`, or, if one is there, checks that it is this one.
    pub(super) fn join(&self, path: &Path, disk: &Disk, output: &Path) -> Result<(), BatchError> {
        let mine = json(&self.fixed);
        match write_new_file_on(disk, path, &mine) {
            Ok(()) => return Ok(()),
            // There is one, perhaps since a moment ago.
            Err(_) if path.exists() => {}
            Err(error) => return Err(BatchError::file("write the plan", path)(error)),
        }
        let mut theirs = fs::read(path).map_err(BatchError::file("read the plan", path))?;
        // Where there are no hard links, another worker may be writing it.
        for _ in 0..PATIENCE {
            if theirs.ends_with(b"}\n") {
                break;
            }
            thread::sleep(MOMENT);
            theirs = fs::read(path).map_err(BatchError::file("read the plan", path))?;
        }
        if theirs == mine {
            return Ok(());
        }
        let read = |bytes: &[u8]| {
            serde_json::from_slice::<Value>(bytes).map_err(|error| BatchError::table(path, &error))
        };
        let fact = difference(&read(&theirs)?, &read(&mine)?);
        Err(BatchError::OtherWork { fact, path: output.to_owned() })
    }
}

/// As JSON, indented, with a line end.
pub(super) fn json(of: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(of).unwrap_or_default();
    text.push(b'\n');
    text
}

/// In what way the work in the directory, `theirs`, is not this one.
fn difference(theirs: &Value, mine: &Value) -> String {
    let (theirs_inputs, inputs) = (files(theirs), files(mine));
    for (index, (name, input)) in inputs.iter().enumerate() {
        match theirs_inputs.get(index) {
            Some((other, _)) if other != name => {
                return format!("its results are of the input `{other}` where this work has `{name}`");
            }
            Some((_, other)) if other != input => {
                return format!(
                    "`{name}` changed: its digest or size is not that of the file its results are of"
                );
            }
            Some(_) => {}
            None => return format!("its results are of {} inputs, without `{name}`", theirs_inputs.len()),
        }
    }
    if let Some((name, _)) = theirs_inputs.get(inputs.len()) {
        return format!("its results are of further inputs, such as `{name}`");
    }
    for (name, what) in [("version", "version"), ("model", "model"), ("request", "request")] {
        if let Some((key, other, here)) = differing(name, &theirs[name], &mine[name]) {
            return format!("its results are of another {what}: `{key}` was {other}, and is {here}");
        }
    }
    "its results are of other work".to_owned()
}

fn files(plan: &Value) -> Vec<(String, &Value)> {
    let inputs = plan["inputs"].as_array().map_or(&[][..], Vec::as_slice);
    inputs.iter().map(|input| (input["file"].as_str().unwrap_or_default().to_owned(), input)).collect()
}

/// The first key below `name` whose values differ, and the values.
fn differing(name: &str, one: &Value, other: &Value) -> Option<(String, String, String)> {
    if one == other {
        return None;
    }
    if let (Value::Object(one), Value::Object(other)) = (one, other) {
        let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
        for key in keys {
            let value = |of: &serde_json::Map<String, Value>| of.get(key).cloned().unwrap_or_default();
            if let Some(found) = differing(&format!("{name}.{key}"), &value(one), &value(other)) {
                return Some(found);
            }
        }
    }
    Some((name.to_owned(), shortened(one), shortened(other)))
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
