//! Google Benchmark: JSON with a context and a list of benchmarks, and comma-separated values.
//!
//! Each repetition is an entry, so repetitions become samples. Entries with means, medians and deviations are skipped, unless a
//! file has nothing else for a case. All times are converted to seconds. On export, every metric becomes a counter of the same
//! name; `real_time` is the row's time, or the time per counted item of its rate; `cpu_time` is left out where a lane does not
//! measure it.

mod csv;
mod json;

use std::collections::BTreeSet;

use super::{FilePosition, MAX_NAMES, Reader, Result, Writer, error, names, values};
use crate::result::{Row, text};
use crate::run::Run;
use crate::stats::Direction;

pub(super) const JSON: (Writer, Reader) =
    (json::write, Reader { recognises: json::recognises, read: json::read });
pub(super) const CSV: (Writer, Reader) =
    (csv::write, Reader { recognises: csv::recognises, read: csv::read });

/// The lane of a file that does not name one.
const LANE: &str = "google-benchmark";
/// Fields of an entry that are not counters.
const FIELDS: &str = "name,family_index,per_family_instance_index,run_name,run_type,repetitions,repetition_index,threads,\
                      iterations,real_time,cpu_time,time_unit,label,error_occurred,error_message,skipped,skip_message,\
                      aggregate_name,aggregate_unit,cpu_coefficient,real_coefficient,big_o,rms";
/// Aggregates that may stand for a case without repetitions, in order of preference.
const STANDS: [&str; 2] = ["median", "mean"];

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// A repetition, with its number if known.
    Repetition(Option<u64>),
    /// One of [`STANDS`] over all repetitions.
    Aggregate(String),
    /// The benchmark failed, with this message.
    Failed(String),
}

#[derive(Clone, Debug)]
struct Entry {
    place: FilePosition,
    kind: Kind,
    threads: Option<u64>,
    label: Option<String>,
    /// Times in seconds and counters, by name.
    values: Vec<(String, f64)>,
}

impl Entry {
    /// Returns an error for too many values or invalid values.
    fn check(&self) -> Result<()> {
        if self.values.len() > MAX_NAMES {
            let fact = format!("{} counters, more than {MAX_NAMES}", self.values.len());
            return Err(self.place.error(fact, "is this the right file?"));
        }
        for (name, value) in self.values.iter().filter(|(name, _)| values::kind(name).1 != Direction::Info) {
            values::not_negative(self.place, name, *value)?;
        }
        Ok(())
    }
}

fn is_counter(name: &str) -> bool {
    FIELDS.split(',').all(|field| field != name)
}

/// The times of an entry in seconds: `real`, and `cpu` if it was measured, both in the unit.
fn times(place: FilePosition, unit: &str, real: f64, cpu: Option<f64>) -> Result<Vec<(String, f64)>> {
    let per_second = match unit {
        "ns" => 1e9,
        "us" => 1e6,
        "ms" => 1e3,
        "s" => 1.0,
        other => {
            let fact = format!("`time_unit` is `{}`", values::shortened(other));
            return Err(place.error(fact, "units of time are ns, us, ms and s"));
        }
    };
    let seconds = |(name, time): (&str, f64)| {
        Ok((name.to_owned(), values::not_negative(place, name, time)? / per_second))
    };
    let cpu = cpu.map(|time| ("cpu_time", time));
    [("real_time", real)].into_iter().chain(cpu).map(seconds).collect()
}

/// Converts entries, each with its case, to rows in the order of their first entries.
fn rows(entries: Vec<(String, Entry)>) -> Result<Vec<Row>> {
    entries.iter().try_for_each(|(_, entry)| entry.check())?;
    let cases = values::cases(entries, |entry| entry.place)?;
    cases.iter().map(|(case, entries)| row(case, entries)).collect()
}

fn row(case: &str, entries: &[Entry]) -> Result<Row> {
    let mut numbers = BTreeSet::new();
    let repeated = entries.iter().find_map(|entry| match entry.kind {
        Kind::Repetition(Some(number)) if !numbers.insert(number) => Some((entry.place, number)),
        _ => None,
    });
    if let Some((place, number)) = repeated {
        let fact = format!("repetition {number} of `{}` stands twice", values::shortened(case));
        return Err(place.error(fact, "import the files of several runs one by one"));
    }
    let failure = entries.iter().find_map(|entry| match &entry.kind {
        Kind::Failed(why) => Some(why.clone()),
        _ => None,
    });
    let row = Row { checked: failure.is_none(), ..Row::new(case) };
    let mut row = values::param(row, "threads", entries[0].threads);
    row = values::param(row, "label", entries.iter().find_map(|entry| entry.label.clone()));
    row = values::param(row, "error", failure);
    let is_repetition = |entry: &&Entry| matches!(entry.kind, Kind::Repetition(_));
    let mut measured: Vec<&Entry> = entries.iter().filter(is_repetition).collect();
    if measured.is_empty() {
        let aggregate = |name: &'static str| {
            let kind = Kind::Aggregate(name.to_owned());
            Some((name, entries.iter().find(|entry| entry.kind == kind)?))
        };
        if let Some((name, entry)) = STANDS.into_iter().find_map(aggregate) {
            row = row.param("aggregate", name);
            measured.push(entry);
        }
    }
    let named = measured.iter().flat_map(|entry| &entry.values).map(|(name, value)| (name, *value));
    for (name, numbers) in values::grouped(named) {
        let (unit, direction) = values::kind(name);
        let samples = values::samples(entries[0].place, (&unit, direction), &[numbers])?;
        row = row.metric(values::plain(name), samples);
    }
    Ok(row)
}

/// A row as it is exported.
struct Benchmark<'a> {
    name: String,
    row: &'a Row,
    /// The times and counters of each repetition: `real_time`, `cpu_time` if measured, then every metric that has as many samples.
    repetitions: Vec<Vec<(&'a str, f64)>>,
}

fn repetitions(row: &Row) -> Result<Vec<Vec<(&str, f64)>>, String> {
    let named = |name: &str| row.samples_of(name);
    let judged = |direction: Direction, unit: &str| {
        let mut samples = row.samples().map(|(_, samples)| samples);
        samples.find(|s| s.direction() == direction && s.n() > 0 && (unit.is_empty() || s.unit() == unit))
    };
    let time = named("real_time").or_else(|| named("seconds")).or_else(|| judged(Direction::Lower, "s"));
    let times: Vec<f64> = match (time.filter(|s| s.n() > 0), judged(Direction::Higher, "")) {
        (Some(time), _) => time.values().to_vec(),
        (None, Some(rate)) => rate.values().iter().map(|v| 1.0 / v).collect(),
        (None, None) => return Err("it has neither times nor rates".to_owned()),
    };
    if times.iter().any(|t| !t.is_finite() || *t < 0.0) {
        return Err("a rate of 0 has no time".to_owned());
    }
    let cpu = named("cpu_time").filter(|s| s.n() == times.len());
    let repetition = |(i, &time): (usize, &f64)| {
        let cpu = cpu.and_then(|s| Some(("cpu_time", *s.values().get(i)?)));
        let counters = row.samples().filter(|(name, _)| is_counter(name));
        let counters = counters.filter_map(|(name, s)| Some((name, *s.values().get(i)?)));
        [("real_time", time)].into_iter().chain(cpu).chain(counters).collect::<Vec<_>>()
    };
    Ok(times.iter().enumerate().map(repetition).collect())
}

/// Every row with its repetitions, and notes about what is left out.
fn benchmarks(run: &Run) -> Result<(Vec<Benchmark<'_>>, Vec<String>)> {
    let (mut benchmarks, mut notes) = (Vec::new(), Vec::new());
    for (name, row) in names(&run.rows).into_iter().zip(&run.rows) {
        match repetitions(row) {
            Ok(repetitions) => {
                let n = repetitions.len();
                let longer = row.samples().find(|(_, samples)| samples.n() > n);
                notes.extend(longer.map(|(metric, _)| {
                    format!("`{name}` has {n} repetitions: `{metric}` is cut to as many samples")
                }));
                benchmarks.push(Benchmark { name, row, repetitions });
            }
            Err(why) => notes.push(format!("`{name}` is left out: {why}")),
        }
    }
    let timed = |benchmark: &Benchmark<'_>| {
        benchmark.repetitions.iter().flatten().any(|(name, _)| *name == "cpu_time")
    };
    if benchmarks.iter().any(|benchmark| !timed(benchmark)) {
        notes.push(format!("`cpu_time` is left out where lane `{}` does not measure it", run.lane));
    }
    if benchmarks.is_empty() {
        let fact = format!("no row of lane `{}` has a time or a rate", run.lane);
        return Err(error(fact, "`--to bmf` writes any metric"));
    }
    let samples = run.rows.iter().flat_map(Row::samples);
    let processes = samples.map(|(_, samples)| samples.processes().len()).max().unwrap_or(0);
    if processes > 1 {
        notes.push(format!(
            "samples of {processes} processes stand in one list: this format does not tell them apart"
        ));
    }
    Ok((benchmarks, notes))
}

/// The parameters as a label.
fn label(row: &Row) -> String {
    let words = row.params.iter().map(|(name, value)| format!("{name}={}", text(value)));
    words.collect::<Vec<_>>().join(" ")
}
