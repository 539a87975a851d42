//! llama-bench of llama.cpp: JSON, JSON lines and comma-separated values.
//!
//! Its tests are `pp N` (a prompt of N tokens), `tg N` (N passes of one token) and both together, each after `n_depth` stored
//! tokens. They become cases of our lanes: prompts become cases of `forward`, or of `generate` if tokens are generated too. A `tg
//! N` is a decoding of N + 1 new tokens, because the first of ours comes from the prompt's pass. JSON contains the samples.
//! Comma-separated values have only a mean, which becomes the single sample and is marked by the parameter `aggregate`.

mod columns;
mod json;
mod record;
mod test;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{BadFile, Exported, Format, Imported, MAX_CASES, NotExported, Place, Reader};
use crate::result::Row;
use crate::run::{Build, Run};
use record::Record;
use test::Test;

/// The JSON format.
pub(super) const JSON: Format = Format {
    name: "llama-bench-json",
    about: "llama-bench -o json: a list of tests with their samples",
    write: json::write,
    read: Some(Reader { recognises: json::recognises, read: json::read }),
};

/// The JSON Lines format.
pub(super) const JSONL: Format = Format {
    name: "llama-bench-jsonl",
    about: "llama-bench -o jsonl: a test per line",
    write: json::write_lines,
    read: Some(Reader { recognises: json::recognises_lines, read: json::read_lines }),
};

/// The format with comma-separated values.
pub(super) const CSV: Format = Format {
    name: "llama-bench-csv",
    about: "llama-bench -o csv: a line of means per test",
    write: columns::write,
    read: Some(Reader { recognises: columns::recognises, read: columns::read }),
};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Integer,
    Real,
    /// A boolean, stored as 0 or 1 except in JSON.
    Switch,
}

/// The columns in order.
const COLUMNS: &[(&str, Kind)] = &[
    ("build_commit", Kind::Text),
    ("build_number", Kind::Integer),
    ("cpu_info", Kind::Text),
    ("gpu_info", Kind::Text),
    ("backends", Kind::Text),
    ("model_filename", Kind::Text),
    ("model_type", Kind::Text),
    ("model_size", Kind::Integer),
    ("model_n_params", Kind::Integer),
    ("n_batch", Kind::Integer),
    ("n_ubatch", Kind::Integer),
    ("n_threads", Kind::Integer),
    ("cpu_mask", Kind::Text),
    ("cpu_strict", Kind::Switch),
    ("poll", Kind::Integer),
    ("type_k", Kind::Text),
    ("type_v", Kind::Text),
    ("n_gpu_layers", Kind::Integer),
    ("split_mode", Kind::Text),
    ("main_gpu", Kind::Integer),
    ("no_kv_offload", Kind::Switch),
    ("flash_attn", Kind::Switch),
    ("tensor_split", Kind::Text),
    ("tensor_buft_overrides", Kind::Text),
    ("use_mmap", Kind::Switch),
    ("embeddings", Kind::Switch),
    ("no_op_offload", Kind::Switch),
    ("n_prompt", Kind::Integer),
    ("n_gen", Kind::Integer),
    ("n_depth", Kind::Integer),
    ("test_time", Kind::Text),
    ("avg_ns", Kind::Integer),
    ("stddev_ns", Kind::Integer),
    ("avg_ts", Kind::Real),
    ("stddev_ts", Kind::Real),
];

/// Converts records to a run.
fn imported(records: Vec<Record>) -> Result<Imported, BadFile> {
    let tests: Vec<Test> = records.iter().map(Test::of).collect::<Result<_, _>>()?;
    let Some(first) = records.first() else { return Ok(Imported::default()) };
    let engine = engine(first);
    for record in &records {
        let found = self::engine(record);
        if found != engine {
            let fact = format!("another build: `{}` after `{}`", found.one_line(), engine.one_line());
            return Err(BadFile::at(record.place, fact, "one run is of one build: import them one by one"));
        }
    }
    let generates = tests.iter().any(|test| test.new > 0);
    let mut merged: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut found: Vec<(Row, Vec<&Test>)> = Vec::new();
    for (test, record) in tests.iter().zip(&records) {
        let row = test.row(record, generates);
        let params: serde_json::Map<String, Value> =
            row.params.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
        let key = (row.case.clone(), Value::Object(params).to_string());
        let at = *merged.entry(key).or_insert(found.len());
        if at == found.len() {
            if at == MAX_CASES {
                return Err(BadFile::at(
                    record.place,
                    format!("more than {MAX_CASES} cases"),
                    "import them in parts",
                ));
            }
            found.push((row, Vec::new()));
        } else if found[at].1.iter().any(|other| other.time.is_none() || other.time == test.time) {
            let fact = format!("`{}` stands twice, with equal settings and `test_time`", row.case);
            return Err(BadFile::at(
                record.place,
                fact,
                "was a file put behind itself? Import every result once",
            ));
        }
        found[at].1.push(test);
    }
    let mut rows = Vec::new();
    for (row, processes) in found {
        rows.push(test::measured(row, &processes, generates)?);
    }
    distinguish(&mut rows);
    let lane = if generates { "generate" } else { "forward" }.to_owned();
    let started_at = records.iter().filter_map(|r| r.text("test_time")).min();
    Ok(Imported { engine, lane, started_at, machine: machine(first), rows, failed: Vec::new() })
}

/// The build of a record. The field `engine` exists only in files written by this program.
fn engine(record: &Record) -> Build {
    let build = record.text("build_number").map(|n| format!("b{n}"));
    let named = record.text("engine");
    Build {
        version: if named.is_some() { record.text("engine_version") } else { build },
        name: named.unwrap_or_else(|| "llama.cpp".to_owned()),
        git: record.text("build_commit").filter(|commit| commit != "unknown"),
        ..Build::default()
    }
}

fn machine(record: &Record) -> Value {
    let (cpu, gpu) = (record.text("cpu_info"), record.text("gpu_info"));
    let parts: Vec<String> = [cpu.clone(), gpu.clone()].into_iter().flatten().collect();
    if parts.is_empty() {
        return Value::Null;
    }
    json!({"summary": parts.join(", "), "cpu_info": cpu, "gpu_info": gpu})
}

/// Adds the parameters in which rows of the same name differ to their names.
fn distinguish(rows: &mut [Row]) {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate() {
        groups.entry(row.case.clone()).or_default().push(at);
    }
    for group in groups.values().filter(|group| group.len() > 1) {
        let mut names: Vec<String> = Vec::new();
        for &at in group {
            for (name, _) in rows[at].params.iter() {
                if !names.iter().any(|known| known == name) {
                    names.push(name.to_owned());
                }
            }
        }
        let first = &rows[group[0]].params;
        names.retain(|name| group.iter().any(|&at| rows[at].params.get(name) != first.get(name)));
        for &at in group {
            for name in &names {
                if let Some(value) = rows[at].params.get(name) {
                    let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
                    rows[at].case.push_str(&format!("/{name}:{text}"));
                }
            }
        }
    }
}

/// Converts a run's rows to records, with notes about what is omitted.
fn records(run: &Run) -> Result<(Vec<Record>, Vec<String>), NotExported> {
    let (mut records, mut notes) = (Vec::new(), Vec::new());
    for row in &run.rows {
        match test::record(run, row) {
            Ok(record) => records.push(record),
            Err(why) => notes.push(format!("`{}` is left out: {why}", row.case)),
        }
    }
    if records.is_empty() {
        return Err(NotExported {
            fact: format!("no row of lane `{}` is a prompt or a generation of llama-bench", run.lane),
            hint: "lanes `generate` and `forward` have such rows; `--to gbench-json` writes any".to_owned(),
        });
    }
    if run.rows.iter().any(|row| row.metrics.iter().any(|(_, m)| m.samples().processes().len() > 1)) {
        notes.push(
            "samples of several processes stand in one list: this format does not tell them apart".to_owned(),
        );
    }
    Ok((records, notes))
}

/// Writes the records with `text`, and adds the notes.
fn exported(run: &Run, text: impl Fn(&[Record]) -> String) -> Result<Exported, NotExported> {
    let (records, notes) = records(run)?;
    Ok(Exported { text: text(&records), notes })
}

/// The error for a missing field.
fn lacks(place: Place, name: &str) -> BadFile {
    BadFile::at(place, format!("`{name}` is missing"), "is this a file of llama-bench, and whole?")
}
