//! llama-bench's JSON: a list, or one line per test.

use serde_json::Value;

use super::super::{Exported, FilePosition, Result, error, values};
use super::record::{MORE, Record};
use super::{COLUMNS, imported, records};
use crate::result::Ordered;
use crate::run::Run;

const SHAPE: &str = "a file of `llama-bench -o json` is a list of tests, of `-o jsonl` a test per line";

fn mentions(text: &str) -> bool {
    ["\"avg_ts\"", "\"samples_ts\"", "\"samples_ns\""].into_iter().any(|field| text.contains(field))
}

pub(super) fn recognises(text: &str) -> bool {
    text.trim_start().starts_with('[') && mentions(text)
}

pub(super) fn recognises_lines(text: &str) -> bool {
    text.trim_start().starts_with('{') && text.lines().find(|l| !l.trim().is_empty()).is_some_and(mentions)
}

fn record(place: FilePosition, value: Value) -> Result<Record> {
    match value {
        Value::Object(fields) => Record::new(place, fields),
        _ => Err(place.error("this is no object", SHAPE)),
    }
}

pub(super) fn read(text: &str) -> Result<Run> {
    let Value::Array(list) = values::json(text, 0)? else {
        return Err(error("the document is no list", SHAPE));
    };
    let records = list.into_iter().enumerate().map(|(i, value)| record(FilePosition::Entry(i + 1), value));
    imported(&records.collect::<Result<Vec<_>, _>>()?)
}

pub(super) fn read_lines(text: &str) -> Result<Run> {
    let lines = (0_u64..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let records =
        lines.map(|(index, line)| record(FilePosition::Line(index + 1), values::json(line, index)?));
    imported(&records.collect::<Result<Vec<_>, _>>()?)
}

/// The fields in the order of the columns.
fn ordered(record: &Record) -> Ordered<Value> {
    let names = COLUMNS.iter().map(|column| column.name).chain(MORE);
    names.filter_map(|name| Some((name, record.fields.get(name)?.clone()))).collect()
}

pub(super) fn write(run: &Run) -> Result<Exported> {
    let (records, notes) = records(run)?;
    Exported::json(&records.iter().map(ordered).collect::<Vec<_>>(), notes)
}

pub(super) fn write_lines(run: &Run) -> Result<Exported> {
    let (records, notes) = records(run)?;
    // Serializing a JSON value cannot fail.
    let line = |record: &Record| serde_json::to_string(&ordered(record)).unwrap_or_default() + "\n";
    Ok(Exported { text: records.iter().map(line).collect(), notes })
}
