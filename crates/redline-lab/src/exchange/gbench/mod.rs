//! Google Benchmark: JSON with a context and a list of benchmarks, and comma-separated values.
//!
//! Each repetition is an entry, so repetitions become samples. Entries with means, medians and deviations are skipped, unless a
//! file has nothing else for a case. All times are converted to seconds. On export, every metric becomes a counter of the same
//! name; `real_time` is the row's time, or the time per counted item of its rate.

mod csv;
mod json;

use std::collections::{BTreeMap, BTreeSet};

use super::{BadFile, Format, MAX_CASES, MAX_NAMES, NotExported, Place, Reader, names, values};
use crate::result::Row;
use crate::run::Run;
use crate::stats::{Direction, Samples};

/// The JSON format.
pub(super) const JSON: Format = Format {
    name: "gbench-json",
    about: "Google Benchmark, JSON: a context and an entry per repetition",
    write: json::write,
    read: Some(Reader { recognises: json::recognises, read: json::read }),
};

/// The format with comma-separated values.
pub(super) const CSV: Format = Format {
    name: "gbench-csv",
    about: "Google Benchmark, comma-separated values",
    write: csv::write,
    read: Some(Reader { recognises: csv::recognises, read: csv::read }),
};

/// The lane of a file that does not name one.
const LANE: &str = "google-benchmark";
/// Fields of an entry that are not counters.
const FIELDS: &[&str] = &[
    "name",
    "family_index",
    "per_family_instance_index",
    "run_name",
    "run_type",
    "repetitions",
    "repetition_index",
    "threads",
    "iterations",
    "real_time",
    "cpu_time",
    "time_unit",
    "label",
    "error_occurred",
    "error_message",
    "skipped",
    "skip_message",
    "aggregate_name",
    "aggregate_unit",
    "cpu_coefficient",
    "real_coefficient",
    "big_o",
    "rms",
];
/// Aggregates that may stand for a case without repetitions, in order of preference.
const STANDS: [&str; 2] = ["median", "mean"];

/// Units of time per second.
fn per_second(place: Place, unit: &str) -> Result<f64, BadFile> {
    match unit {
        "ns" => Ok(1e9),
        "us" => Ok(1e6),
        "ms" => Ok(1e3),
        "s" => Ok(1.0),
        other => {
            let fact = format!("`time_unit` is `{}`", values::shortened(other));
            Err(BadFile::at(place, fact, "units of time are ns, us, ms and s"))
        }
    }
}

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// A repetition, with its number if known.
    Repetition(Option<u64>),
    /// A statistic over repetitions.
    Aggregate(String),
    /// The benchmark failed, with this message.
    Failed(String),
}

/// An entry of a file.
#[derive(Clone, Debug)]
struct Entry {
    place: Place,
    /// The case name.
    name: String,
    kind: Kind,
    threads: Option<u64>,
    label: Option<String>,
    /// Times in seconds and counters, by name.
    values: Vec<(String, f64)>,
}

/// The entries of a case.
#[derive(Default)]
struct Case {
    entries: Vec<Entry>,
    numbers: BTreeSet<u64>,
}

/// Converts entries to rows, in the order of their first entries. Also returns the failed cases.
fn rows(entries: Vec<Entry>) -> Result<(Vec<Row>, Vec<String>), BadFile> {
    let mut order: BTreeMap<String, usize> = BTreeMap::new();
    let mut cases: Vec<Case> = Vec::new();
    for entry in entries {
        let at = *order.entry(entry.name.clone()).or_insert(cases.len());
        if at == cases.len() {
            if at == MAX_CASES {
                let fact = format!("more than {MAX_CASES} cases");
                return Err(BadFile::at(entry.place, fact, "import them in parts"));
            }
            cases.push(Case::default());
        }
        if let Kind::Repetition(Some(number)) = entry.kind
            && !cases[at].numbers.insert(number)
        {
            let fact = format!("repetition {number} of `{}` stands twice", values::shortened(&entry.name));
            return Err(BadFile::at(entry.place, fact, "import the files of several runs one by one"));
        }
        cases[at].entries.push(entry);
    }
    let mut failed = Vec::new();
    let mut rows = Vec::new();
    for case in cases {
        rows.push(row(case.entries, &mut failed)?);
    }
    Ok((rows, failed))
}

fn row(entries: Vec<Entry>, failed: &mut Vec<String>) -> Result<Row, BadFile> {
    let name = entries[0].name.clone();
    let mut row = Row::new(name.clone());
    if let Some(threads) = entries[0].threads {
        row = row.param("threads", threads);
    }
    if let Some(label) = entries.iter().find_map(|e| e.label.clone()) {
        row = row.param("label", label);
    }
    let why = entries.iter().find_map(|e| match &e.kind {
        Kind::Failed(why) => Some(why.clone()),
        _ => None,
    });
    if let Some(why) = why {
        failed.push(name);
        row = row.param("error", why);
    }
    let of = |kind: &dyn Fn(&Kind) -> bool| entries.iter().filter(|e| kind(&e.kind)).collect::<Vec<_>>();
    let mut taken = of(&|kind| matches!(kind, Kind::Repetition(_)));
    if taken.is_empty() {
        let stands = STANDS.iter().find_map(|wanted| {
            let first = entries.iter().find(|e| e.kind == Kind::Aggregate((*wanted).to_owned()))?;
            Some((*wanted, first))
        });
        if let Some((which, entry)) = stands {
            row = row.param("aggregate", which);
            taken = vec![entry];
        }
    }
    for (name, found) in by_name(&taken) {
        let (unit, direction) = values::kind(&name);
        let samples = values::samples(entries[0].place, (&unit, direction), &[found])?;
        row = row.metric(values::plain(&name), samples);
    }
    Ok(row)
}

/// The values of each name, in order of first appearance.
fn by_name(entries: &[&Entry]) -> Vec<(String, Vec<f64>)> {
    let mut order: BTreeMap<&str, usize> = BTreeMap::new();
    let mut found: Vec<(String, Vec<f64>)> = Vec::new();
    for (name, value) in entries.iter().flat_map(|entry| &entry.values) {
        let at = *order.entry(name).or_insert(found.len());
        if at == found.len() {
            found.push((name.clone(), Vec::new()));
        }
        found[at].1.push(*value);
    }
    found
}

/// Returns an error for too many values or invalid values.
fn checked(entry: Entry) -> Result<Entry, BadFile> {
    if entry.values.len() > MAX_NAMES {
        let fact = format!("{} counters, more than {MAX_NAMES}", entry.values.len());
        return Err(BadFile::at(entry.place, fact, "is this the right file?"));
    }
    for (name, value) in &entry.values {
        let told = values::kind(name).1;
        if told != Direction::Info {
            values::not_negative(entry.place, name, *value)?;
        }
    }
    Ok(entry)
}

/// The repetitions of a row, each with its time and every metric that has as many samples.
fn repetitions(row: &Row) -> Result<Vec<Vec<(&str, f64)>>, String> {
    let counted = |name: &str| row.metrics.get(name).map(crate::result::Metric::samples);
    let judged = |direction: Direction, unit: &'static str| {
        row.metrics
            .iter()
            .map(|(_, metric)| metric.samples())
            .find(move |s| s.direction() == direction && s.n() > 0 && (unit.is_empty() || s.unit() == unit))
    };
    let time = counted("real_time").or_else(|| counted("seconds")).or_else(|| judged(Direction::Lower, "s"));
    let times: Vec<f64> = match (time.filter(|s| s.n() > 0), judged(Direction::Higher, "")) {
        (Some(time), _) => time.values().to_vec(),
        (None, Some(rate)) => rate.values().iter().map(|v| 1.0 / v).collect(),
        (None, None) => return Err("it has neither times nor rates".to_owned()),
    };
    if times.iter().any(|t| !t.is_finite() || *t < 0.0) {
        return Err("a rate of 0 has no time".to_owned());
    }
    let cpu = counted("cpu_time").filter(|s| s.n() == times.len());
    let others: Vec<(&str, &Samples)> = row
        .metrics
        .iter()
        .filter(|(name, _)| !FIELDS.contains(name))
        .map(|(name, metric)| (name, metric.samples()))
        .collect();
    let entry = |(i, &time): (usize, &f64)| {
        let cpu = cpu.map_or(time, |s| s.values()[i]);
        let mut entry = vec![("real_time", time), ("cpu_time", cpu)];
        entry.extend(others.iter().filter_map(|(name, s)| Some((*name, *s.values().get(i)?))));
        entry
    };
    Ok(times.iter().enumerate().map(entry).collect())
}

/// Every row with its repetitions, and notes about rows without any.
#[expect(clippy::type_complexity, reason = "rows with what is written of them")]
fn written(run: &Run) -> Result<(Vec<(String, &Row, Vec<Vec<(&str, f64)>>)>, Vec<String>), NotExported> {
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    let mut processes = 0;
    for (name, row) in names(&run.rows).into_iter().zip(&run.rows) {
        match repetitions(row) {
            Ok(found) => {
                let more = row.metrics.iter().find(|(_, m)| m.samples().n() > found.len());
                notes.extend(more.map(|(metric, _)| {
                    format!("`{name}` has {} repetitions: `{metric}` is cut to as many samples", found.len())
                }));
                rows.push((name, row, found));
            }
            Err(why) => notes.push(format!("`{name}` is left out: {why}")),
        }
        processes =
            processes.max(row.metrics.iter().map(|(_, m)| m.samples().processes().len()).max().unwrap_or(0));
    }
    if rows.is_empty() {
        let fact = format!("no row of lane `{}` has a time or a rate", run.lane);
        return Err(NotExported { fact, hint: "`--to bmf` writes any metric".to_owned() });
    }
    if processes > 1 {
        notes.push(format!(
            "samples of {processes} processes stand in one list: this format does not tell them apart"
        ));
    }
    Ok((rows, notes))
}

/// The parameters as a label.
fn label(row: &Row) -> String {
    let text =
        |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    let words: Vec<String> =
        row.params.iter().map(|(name, value)| format!("{name}={}", text(value))).collect();
    words.join(" ")
}
