//! Google Benchmark's JSON.

use serde_json::{Map, Value, json};

use super::super::{Exported, FilePosition, Result, error, run, values};
use super::{Entry, Kind, LANE, STANDS, benchmarks, is_counter, label, rows, times};
use crate::run::{Build, Run};

/// Fields of the context that describe the machine.
const MACHINE: &str = "host_name,num_cpus,mhz_per_cpu,cpu_scaling_enabled,aslr_enabled,caches";
const WHOLE: &str = "a file of `--benchmark_format=json` holds `context` and `benchmarks`";

pub(super) fn recognises(text: &str) -> bool {
    text.trim_start().starts_with('{') && text.contains("\"benchmarks\"")
}

pub(super) fn read(text: &str) -> Result<Run> {
    let document = values::json(text, 0)?;
    let Some(list) = document.get("benchmarks").and_then(Value::as_array) else {
        return Err(error("there is no list `benchmarks`", WHOLE));
    };
    let mut entries = Vec::new();
    for (index, value) in list.iter().enumerate() {
        entries.extend(entry(FilePosition::Entry(index + 1), value)?);
    }
    let context = document.get("context").cloned().unwrap_or_default();
    let text = |name: &str| context.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
    let program = text("executable").map(|path| {
        let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
        name.strip_suffix(".exe").unwrap_or(name).to_owned()
    });
    let name = text("engine").or(program).unwrap_or_default();
    let (version, git) = (text("engine_version"), text("engine_git"));
    let engine = Build { name, version, git, ..Build::default() };
    let lane = text("lane").unwrap_or_else(|| LANE.to_owned());
    run(engine, &lane, text("date"), machine(&context), rows(entries)?)
}

/// The machine description in the context.
fn machine(context: &Value) -> Value {
    let field = |name: &str| Some((name.to_owned(), context.get(name)?.clone()));
    let mut machine: Map<String, Value> = MACHINE.split(',').filter_map(field).collect();
    if machine.is_empty() {
        return Value::Null;
    }
    let number = |name: &str| machine.get(name).and_then(Value::as_f64);
    let parts = [
        machine.get("host_name").and_then(Value::as_str).map(ToOwned::to_owned),
        number("num_cpus").map(|n| format!("{n} processors")),
        number("mhz_per_cpu").map(|n| format!("{n} MHz")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        machine.insert("summary".to_owned(), parts.join(", ").into());
    }
    Value::Object(machine)
}

/// Parses an entry and its case; `None` for fits and for statistics that do not describe a case.
fn entry(place: FilePosition, value: &Value) -> Result<Option<(String, Entry)>> {
    let Some(fields) = value.as_object() else {
        return Err(place.error("this is no object", WHOLE));
    };
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
    let yes = |name: &str| fields.get(name).and_then(Value::as_bool) == Some(true);
    let Some(case) = text("run_name").or_else(|| text("name")).filter(|name| !name.is_empty()) else {
        return Err(place.error("it has no `name`", WHOLE));
    };
    let number =
        |name: &str| fields.get(name).map_or(Ok(None), |value| values::number_of(place, name, value));
    let count = |name: &str| number(name)?.map(|value| values::count(place, name, value)).transpose();
    let repetition = count("repetition_index")?;
    let kind = if yes("error_occurred") || yes("skipped") || text("skipped").is_some() {
        let why = text("error_message").or_else(|| text("skip_message"));
        Kind::Failed(why.unwrap_or_else(|| "it went wrong".to_owned()))
    } else if text("run_type").as_deref() == Some("aggregate") {
        match text("aggregate_name") {
            Some(name) if STANDS.contains(&name.as_str()) => Kind::Aggregate(name),
            _ => return Ok(None),
        }
    } else {
        Kind::Repetition(repetition)
    };
    let threads = count("threads")?;
    let mut measured = Vec::new();
    if !matches!(kind, Kind::Failed(_)) {
        let unit = text("time_unit").unwrap_or_else(|| "ns".to_owned());
        let real = number("real_time")?.ok_or_else(|| place.error("it has no `real_time`", WHOLE))?;
        measured = times(place, &unit, real, number("cpu_time")?)?;
        for (name, value) in fields.iter().filter(|(name, value)| is_counter(name) && value.is_number()) {
            measured.push((name.clone(), values::number(place, name, &value.to_string())?));
        }
    }
    Ok(Some((case, Entry { place, kind, threads, label: text("label"), values: measured })))
}

pub(super) fn write(run: &Run) -> Result<Exported> {
    let (benchmarks, notes) = benchmarks(run)?;
    let mut entries = Vec::new();
    for (family, benchmark) in benchmarks.iter().enumerate() {
        let threads = benchmark.row.params.get("threads").and_then(Value::as_u64).unwrap_or(1);
        for (index, values) in benchmark.repetitions.iter().enumerate() {
            let mut entry = json!({
                "name": benchmark.name, "family_index": family, "per_family_instance_index": 0,
                "run_name": benchmark.name, "run_type": "iteration", "repetitions": benchmark.repetitions.len(),
                "repetition_index": index, "threads": threads, "iterations": 1, "time_unit": "s",
                "label": label(benchmark.row),
            });
            for (name, value) in values {
                entry[*name] = (*value).into();
            }
            entries.push(entry);
        }
    }
    let (engine, machine) = (&run.engine, &run.machine);
    let context = json!({
        "date": run.started_at, "executable": engine.name, "engine": engine.name, "engine_version": engine.version,
        "engine_git": engine.git, "lane": run.lane, "machine": machine.summary(), "fingerprint": machine.fingerprint(),
    });
    Exported::json(&json!({"context": context, "benchmarks": entries}), notes)
}
