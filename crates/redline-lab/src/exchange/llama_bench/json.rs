//! llama-bench's JSON: a list, or one line per test.

use serde_json::Value;

use super::super::{BadFile, Exported, Imported, NotExported, Place, values};
use super::record::Record;
use super::{COLUMNS, exported, imported};
use crate::result::Ordered;
use crate::run::Run;

const SHAPE: &str = "a file of `llama-bench -o json` is a list of tests, of `-o jsonl` a test per line";

/// Additional fields after the columns.
const MORE: &[&str] = &["samples_ns", "samples_ts", "engine", "engine_version"];

fn mentions(text: &str) -> bool {
    text.contains("\"avg_ts\"") || text.contains("\"samples_ts\"") || text.contains("\"samples_ns\"")
}

pub(super) fn recognises(text: &str) -> bool {
    text.trim_start().starts_with('[') && mentions(text)
}

pub(super) fn recognises_lines(text: &str) -> bool {
    text.trim_start().starts_with('{') && text.lines().find(|l| !l.trim().is_empty()).is_some_and(mentions)
}

fn record(place: Place, value: Value) -> Result<Record, BadFile> {
    match value {
        Value::Object(fields) => Record::new(place, fields),
        _ => Err(BadFile::at(place, "this is no object", SHAPE)),
    }
}

pub(super) fn read(text: &str) -> Result<Imported, BadFile> {
    let document: Value = serde_json::from_str(text).map_err(|e| values::json_fault(&e, 0))?;
    let Value::Array(list) = document else {
        return Err(BadFile::at(Place::File, "the document is no list", SHAPE));
    };
    let records = list.into_iter().enumerate().map(|(i, value)| record(Place::Entry(i + 1), value));
    imported(records.collect::<Result<_, _>>()?)
}

pub(super) fn read_lines(text: &str) -> Result<Imported, BadFile> {
    let mut records = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let value = serde_json::from_str(line).map_err(|e| values::json_fault(&e, index as u64))?;
        records.push(record(Place::Line(index as u64 + 1), value)?);
    }
    imported(records)
}

/// The fields in the order of the columns.
fn ordered(record: &Record) -> Ordered<Value> {
    let names = COLUMNS.iter().map(|(name, _)| *name).chain(MORE.iter().copied());
    names.filter_map(|name| Some((name, record.fields.get(name)?.clone()))).collect()
}

fn failed(error: &serde_json::Error) -> NotExported {
    NotExported { fact: error.to_string(), hint: "is the run whole?".to_owned() }
}

pub(super) fn write(run: &Run) -> Result<Exported, NotExported> {
    let (records, notes) = super::records(run)?;
    let list: Vec<_> = records.iter().map(ordered).collect();
    let text = serde_json::to_string_pretty(&list).map_err(|e| failed(&e))?;
    Ok(Exported { text: text + "\n", notes })
}

pub(super) fn write_lines(run: &Run) -> Result<Exported, NotExported> {
    exported(run, |records| {
        // Serializing a JSON value cannot fail.
        let line = |record: &Record| serde_json::to_string(&ordered(record)).unwrap_or_default() + "\n";
        records.iter().map(line).collect()
    })
}
