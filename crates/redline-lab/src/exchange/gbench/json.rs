//! Google Benchmark's JSON.

use serde_json::{Map, Value, json};

use super::super::{BadFile, Exported, Imported, NotExported, Place, values};
use super::{Entry, FIELDS, Kind, LANE, checked, label, per_second, rows, written};
use crate::result::Ordered;
use crate::run::{Build, Run};

/// Fields of the context that describe the machine.
const MACHINE: &[&str] =
    &["host_name", "num_cpus", "mhz_per_cpu", "cpu_scaling_enabled", "aslr_enabled", "caches"];
const WHOLE: &str = "a file of `--benchmark_format=json` holds `context` and `benchmarks`";

pub(super) fn recognises(text: &str) -> bool {
    text.trim_start().starts_with('{') && text.contains("\"benchmarks\"")
}

pub(super) fn read(text: &str) -> Result<Imported, BadFile> {
    let document: Value = serde_json::from_str(text).map_err(|e| values::json_fault(&e, 0))?;
    let Some(list) = document.get("benchmarks").and_then(Value::as_array) else {
        return Err(BadFile::at(Place::File, "there is no list `benchmarks`", WHOLE));
    };
    let mut entries = Vec::new();
    for (index, value) in list.iter().enumerate() {
        entries.extend(entry(Place::Entry(index + 1), value)?);
    }
    let (rows, failed) = rows(entries)?;
    let context = document.get("context").cloned().unwrap_or_default();
    let text = |name: &str| context.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
    let program = text("executable").map(|path| {
        let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
        name.strip_suffix(".exe").unwrap_or(name).to_owned()
    });
    Ok(Imported {
        engine: Build {
            name: text("engine").or(program).unwrap_or_default(),
            version: text("engine_version"),
            git: text("engine_git"),
            ..Build::default()
        },
        lane: text("lane").unwrap_or_else(|| LANE.to_owned()),
        started_at: text("date"),
        machine: machine(&context),
        rows,
        failed,
    })
}

/// The machine description in the context.
fn machine(context: &Value) -> Value {
    let told: Map<String, Value> =
        MACHINE.iter().filter_map(|name| Some(((*name).to_owned(), context.get(*name)?.clone()))).collect();
    if told.is_empty() {
        return Value::Null;
    }
    let number = |name: &str| told.get(name).and_then(Value::as_f64);
    let mut parts: Vec<String> =
        told.get("host_name").and_then(Value::as_str).map(ToOwned::to_owned).into_iter().collect();
    parts.extend(number("num_cpus").map(|n| format!("{n} processors")));
    parts.extend(number("mhz_per_cpu").map(|n| format!("{n} MHz")));
    let mut machine = told;
    if !parts.is_empty() {
        machine.insert("summary".to_owned(), parts.join(", ").into());
    }
    Value::Object(machine)
}

/// Parses an entry; `None` for fits and for statistics that do not describe a case.
fn entry(place: Place, value: &Value) -> Result<Option<Entry>, BadFile> {
    let Some(fields) = value.as_object() else {
        return Err(BadFile::at(place, "this is no object", WHOLE));
    };
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
    let yes = |name: &str| fields.get(name).and_then(Value::as_bool) == Some(true);
    let Some(name) = text("run_name").or_else(|| text("name")).filter(|name| !name.is_empty()) else {
        return Err(BadFile::at(place, "it has no `name`", WHOLE));
    };
    let number = |field: &str| match fields.get(field) {
        Some(value) => values::number_of(place, field, value),
        None => Ok(None),
    };
    let index = number("repetition_index")?;
    let index = index.map(|v| values::count(place, "repetition_index", v)).transpose()?;
    let kind = if yes("error_occurred") || yes("skipped") || text("skipped").is_some() {
        let why = text("error_message").or_else(|| text("skip_message"));
        Kind::Failed(why.unwrap_or_else(|| "it went wrong".to_owned()))
    } else if text("run_type").as_deref() == Some("aggregate") {
        match text("aggregate_name") {
            Some(name) if super::STANDS.contains(&name.as_str()) => Kind::Aggregate(name),
            _ => return Ok(None),
        }
    } else {
        Kind::Repetition(index)
    };
    let threads = number("threads")?.map(|v| values::count(place, "threads", v)).transpose()?;
    let mut found = Vec::new();
    if !matches!(kind, Kind::Failed(_)) {
        let unit = per_second(place, text("time_unit").as_deref().unwrap_or("ns"))?;
        for name in ["real_time", "cpu_time"] {
            let Some(value) = number(name)? else {
                return Err(BadFile::at(place, format!("it has no `{name}`"), WHOLE));
            };
            found.push((name.to_owned(), values::not_negative(place, name, value)? / unit));
        }
        for (name, value) in
            fields.iter().filter(|(name, v)| !FIELDS.contains(&name.as_str()) && v.is_number())
        {
            found.push((name.clone(), values::number(place, name, &value.to_string())?));
        }
    }
    checked(Entry { place, name, kind, threads, label: text("label"), values: found }).map(Some)
}

pub(super) fn write(run: &Run) -> Result<Exported, NotExported> {
    let (rows, notes) = written(run)?;
    let mut context: Ordered<Value> = Ordered::default();
    context.insert("date", run.started_at.clone().into());
    context.insert("executable", run.engine.name.clone().into());
    context.insert("engine", run.engine.name.clone().into());
    context.insert("engine_version", run.engine.version.clone().into());
    context.insert("engine_git", run.engine.git.clone().into());
    context.insert("lane", run.lane.clone().into());
    context.insert("machine", run.machine.summary().into());
    context.insert("fingerprint", run.machine.fingerprint().into());
    let mut entries: Vec<Ordered<Value>> = Vec::new();
    for (family, (name, row, repetitions)) in rows.iter().enumerate() {
        for (index, values) in repetitions.iter().enumerate() {
            let mut entry: Ordered<Value> = Ordered::default();
            entry.insert("name", name.clone().into());
            entry.insert("family_index", family.into());
            entry.insert("per_family_instance_index", 0.into());
            entry.insert("run_name", name.clone().into());
            entry.insert("run_type", "iteration".into());
            entry.insert("repetitions", repetitions.len().into());
            entry.insert("repetition_index", index.into());
            entry.insert("threads", row.params.get("threads").and_then(Value::as_u64).unwrap_or(1).into());
            entry.insert("iterations", 1.into());
            for (at, (name, value)) in values.iter().enumerate() {
                entry.insert(*name, (*value).into());
                if at == 1 {
                    entry.insert("time_unit", "s".into());
                    entry.insert("label", label(row).into());
                }
            }
            entries.push(entry);
        }
    }
    let text = serde_json::to_string_pretty(&json!({"context": context, "benchmarks": entries}));
    let text = text.map_err(|e| NotExported { fact: e.to_string(), hint: "is the run whole?".to_owned() })?;
    Ok(Exported { text: text + "\n", notes })
}
