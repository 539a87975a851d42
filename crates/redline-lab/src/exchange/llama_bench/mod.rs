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

use serde_json::{Value, json};

use super::{ExchangeError, FilePosition, Reader, Result, Writer, error, run, values};
use crate::result::Row;
use crate::run::{Build, Run};
use record::Record;
use test::Test;

pub(super) const JSON: (Writer, Reader) =
    (json::write, Reader { recognises: json::recognises, read: json::read });
pub(super) const JSONL: (Writer, Reader) =
    (json::write_lines, Reader { recognises: json::recognises_lines, read: json::read_lines });
pub(super) const CSV: (Writer, Reader) =
    (columns::write, Reader { recognises: columns::recognises, read: columns::read });

struct Column {
    name: &'static str,
    kind: Kind,
    /// Whether it becomes a parameter of the same name.
    setting: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Integer,
    Real,
    /// A boolean, stored as 0 or 1 except in JSON.
    Switch,
}

const fn setting(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, setting: true }
}

/// A column that describes the build, the machine, the work or the measurement.
const fn fact(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, setting: false }
}

const COLUMNS: &[Column] = &[
    fact("build_commit", Kind::Text),
    fact("build_number", Kind::Integer),
    fact("cpu_info", Kind::Text),
    fact("gpu_info", Kind::Text),
    fact("backends", Kind::Text),
    setting("model_filename", Kind::Text),
    setting("model_type", Kind::Text),
    setting("model_size", Kind::Integer),
    setting("model_n_params", Kind::Integer),
    setting("n_batch", Kind::Integer),
    setting("n_ubatch", Kind::Integer),
    fact("n_threads", Kind::Integer),
    setting("cpu_mask", Kind::Text),
    setting("cpu_strict", Kind::Switch),
    setting("poll", Kind::Integer),
    setting("type_k", Kind::Text),
    setting("type_v", Kind::Text),
    setting("n_gpu_layers", Kind::Integer),
    setting("split_mode", Kind::Text),
    setting("main_gpu", Kind::Integer),
    setting("no_kv_offload", Kind::Switch),
    setting("flash_attn", Kind::Switch),
    setting("tensor_split", Kind::Text),
    setting("tensor_buft_overrides", Kind::Text),
    setting("use_mmap", Kind::Switch),
    setting("embeddings", Kind::Switch),
    setting("no_op_offload", Kind::Switch),
    fact("n_prompt", Kind::Integer),
    fact("n_gen", Kind::Integer),
    fact("n_depth", Kind::Integer),
    fact("test_time", Kind::Text),
    fact("avg_ns", Kind::Integer),
    fact("stddev_ns", Kind::Integer),
    fact("avg_ts", Kind::Real),
    fact("stddev_ts", Kind::Real),
];

/// Converts records to a run.
fn imported(records: &[Record]) -> Result<Run> {
    let tests: Vec<Test> = records.iter().map(Test::of).collect::<Result<_, _>>()?;
    let Some(first) = records.first() else {
        return run(Build::default(), "", None, Value::Null, Vec::new());
    };
    let build = build(first);
    if let Some(record) = records.iter().find(|record| self::build(record) != build) {
        let fact =
            format!("another build: `{}` after `{}`", self::build(record).one_line(), build.one_line());
        return Err(record.place.error(fact, "one run is of one build: import them one by one"));
    }
    let generates = tests.iter().any(|test| test.new > 0);
    let rows = tests.iter().zip(records).map(|(test, record)| {
        let row = test.row(record, generates);
        let params = serde_json::to_string(&row.params).unwrap_or_default();
        ((row.case.clone(), params), (row, test))
    });
    // Tests with equal settings are processes of one row.
    let row = |((case, _), tests): ((String, String), Vec<(Row, &Test)>)| {
        let (mut rows, tests): (Vec<Row>, Vec<&Test>) = tests.into_iter().unzip();
        // Without its time a test cannot be told from another one.
        let alike = |a: &Test, b: &Test| a.time.is_none() || b.time.is_none() || a.time == b.time;
        let again = |&at: &usize| tests[..at].iter().any(|test| alike(test, tests[at]));
        if let Some(at) = (1..tests.len()).find(again) {
            let fact = format!("`{case}` stands twice, with equal settings and `test_time`");
            return Err(tests[at]
                .place
                .error(fact, "was a file put behind itself? Import every result once"));
        }
        test::measured(rows.swap_remove(0), &tests, generates)
    };
    let cases = values::cases(rows, |(_, test)| test.place)?;
    let mut rows: Vec<Row> = cases.into_iter().map(row).collect::<Result<_, _>>()?;
    distinguish(&mut rows);
    let lane = if generates { "generate" } else { "forward" };
    let started_at = tests.iter().filter_map(|test| test.time.clone()).min();
    run(build, lane, started_at, machine(first), rows)
}

/// The build of a record. The field `engine` exists only in files written by this program.
fn build(record: &Record) -> Build {
    let number = record.text("build_number").map(|n| format!("b{n}"));
    let engine = record.text("engine");
    Build {
        version: if engine.is_some() { record.text("engine_version") } else { number },
        name: engine.unwrap_or_else(|| "llama.cpp".to_owned()),
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
    let cases = values::grouped(rows.iter().enumerate().map(|(at, row)| (row.case.clone(), at)));
    for (_, group) in cases.into_iter().filter(|(_, group)| group.len() > 1) {
        let params = group.iter().flat_map(|&at| rows[at].params.iter());
        let params = values::grouped(params.map(|(name, value)| (name.to_owned(), value.clone())));
        let differ = |values: &[Value]| values.len() < group.len() || values.iter().any(|v| *v != values[0]);
        for at in group.iter().copied() {
            for (name, _) in params.iter().filter(|(_, values)| differ(values)) {
                if let Some(value) = rows[at].params.get(name).map(values::text) {
                    rows[at].case.push_str(&format!("/{name}:{value}"));
                }
            }
        }
    }
}

/// Converts a run's rows to records, with notes about what is omitted.
fn records(run: &Run) -> Result<(Vec<Record>, Vec<String>)> {
    let (mut records, mut notes) = (Vec::new(), Vec::new());
    for row in &run.rows {
        match test::record(run, row) {
            Ok(record) => records.push(record),
            Err(why) => notes.push(format!("`{}` is left out: {why}", row.case)),
        }
    }
    if records.is_empty() {
        let fact = format!("no row of lane `{}` is a prompt or a generation of llama-bench", run.lane);
        let hint = "lanes `generate` and `forward` have such rows; `--to gbench-json` writes any";
        return Err(error(fact, hint));
    }
    let mut metrics = run.rows.iter().flat_map(|row| row.metrics.iter());
    if metrics.any(|(_, metric)| metric.samples().processes().len() > 1) {
        let note = "samples of several processes stand in one list: this format does not tell them apart";
        notes.push(note.to_owned());
    }
    Ok((records, notes))
}

/// The error for a missing field.
fn missing(place: FilePosition, name: &str) -> ExchangeError {
    place.error(format!("`{name}` is missing"), "is this a file of llama-bench, and whole?")
}
