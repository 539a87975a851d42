//! Google Benchmark's comma-separated values.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::values::{self, Csv};
use super::super::{Exported, FilePosition, Result, error, run};
use super::{Entry, Kind, LANE, STANDS, benchmarks, label, rows, times};
use crate::result::csv_line;
use crate::run::{Build, Run};

/// The first columns in order; counters follow.
const COLUMNS: &str = "name,iterations,real_time,cpu_time,time_unit,bytes_per_second,items_per_second,label,error_occurred,error_message";
/// Columns that are counters although they always exist.
const RATES: [&str; 2] = ["bytes_per_second", "items_per_second"];
/// The suffixes of statistics in names.
const STATISTICS: [&str; 6] = ["mean", "median", "stddev", "cv", "min", "max"];
/// Complexity fits, which are never cases.
const FITS: [&str; 2] = ["_BigO", "_RMS"];
const TITLES: &str =
    "the header of `--benchmark_format=csv` begins with name,iterations,real_time,cpu_time,time_unit";

/// Where the header begins. A file may contain other output before it.
fn header(text: &str) -> Option<usize> {
    const START: &str = "name,iterations,";
    if text.starts_with(START) { Some(0) } else { text.find(&format!("\n{START}")).map(|at| at + 1) }
}

pub(super) fn recognises(text: &str) -> bool {
    header(text).is_some()
}

pub(super) fn read(text: &str) -> Result<Run> {
    let Some(start) = header(text) else {
        return Err(error("there is no header", TITLES));
    };
    let offset = text[..start].matches('\n').count() as u64;
    let csv = Csv::parse(&text[start..], offset, TITLES)?;
    let has = |name: &str| csv.titles.iter().any(|title| title == name);
    if let Some(missing) = ["real_time", "cpu_time", "time_unit"].into_iter().find(|name| !has(name)) {
        let fact = format!("the column `{missing}` is missing");
        return Err(FilePosition::Line(offset + 1).error(fact, TITLES));
    }
    let names: BTreeSet<&str> = csv.lines.iter().filter_map(|(_, line)| line.get(0)).collect();
    let mut entries = Vec::new();
    for (place, line) in &csv.lines {
        entries.extend(entry(*place, &csv.titles, line, &names)?);
    }
    run(Build::default(), LANE, None, Value::Null, rows(entries)?)
}

/// Splits a name into case and statistic. Statistics are marked only by suffixes, so the other names in the file decide
/// whether a name with such a suffix is a case itself.
fn statistic<'a>(name: &'a str, names: &BTreeSet<&str>) -> Option<(&'a str, &'a str)> {
    let (case, last) = name.rsplit_once('_')?;
    let has = |statistic: &str| names.contains(format!("{case}_{statistic}").as_str());
    let of_case = names.contains(case) || ["mean", "median", "stddev"].into_iter().all(has);
    (STATISTICS.contains(&last) && of_case).then_some((case, last))
}

/// Parses a line and its case; `None` for fits and for statistics that do not describe a case.
fn entry(
    place: FilePosition,
    titles: &csv::StringRecord,
    line: &csv::StringRecord,
    names: &BTreeSet<&str>,
) -> Result<Option<(String, Entry)>> {
    let cell = |title: &str| titles.iter().zip(line).find(|(t, _)| *t == title).map_or("", |(_, cell)| cell);
    let name = cell("name");
    if name.is_empty() {
        return Err(place.error("it has no `name`", "is the file whole?"));
    }
    if FITS.iter().any(|end| name.ends_with(end)) {
        return Ok(None);
    }
    let failed = cell("error_occurred").eq_ignore_ascii_case("true");
    let (case, kind) = match statistic(name, names) {
        _ if failed => (name, Kind::Failed(cell("error_message").to_owned())),
        Some((case, which)) if STANDS.contains(&which) => (case, Kind::Aggregate(which.to_owned())),
        Some(_) => return Ok(None),
        None => (name, Kind::Repetition(None)),
    };
    let mut measured = Vec::new();
    if !failed {
        let time = |name: &str| values::number(place, name, cell(name));
        let cpu = if cell("cpu_time").is_empty() { None } else { Some(time("cpu_time")?) };
        measured = times(place, cell("time_unit"), time("real_time")?, cpu)?;
        let is_counter =
            |title: &str| RATES.contains(&title) || COLUMNS.split(',').all(|column| column != title);
        for (title, cell) in
            titles.iter().zip(line).filter(|(title, cell)| !cell.is_empty() && is_counter(title))
        {
            measured.push((title.to_owned(), values::number(place, title, cell)?));
        }
    }
    let label = Some(cell("label").to_owned()).filter(|label| !label.is_empty());
    Ok(Some((case.to_owned(), Entry { place, kind, threads: None, label, values: measured })))
}

pub(super) fn write(run: &Run) -> Result<Exported> {
    let (benchmarks, notes) = benchmarks(run)?;
    let mut titles: Vec<&str> = COLUMNS.split(',').collect();
    for (name, _) in benchmarks.iter().flat_map(|benchmark| benchmark.row.samples()) {
        if !titles.contains(&name) {
            titles.push(name);
        }
    }
    let mut text = csv_line(&titles);
    for benchmark in &benchmarks {
        for values in &benchmark.repetitions {
            let value =
                |title: &str| values.iter().find(|(name, _)| *name == title).map(|(_, v)| v.to_string());
            let cell = |title: &&str| match *title {
                "name" => benchmark.name.clone(),
                "iterations" => "1".to_owned(),
                "time_unit" => "s".to_owned(),
                "label" => label(benchmark.row),
                title => value(title).unwrap_or_default(),
            };
            text.push_str(&csv_line(&titles.iter().map(cell).collect::<Vec<_>>()));
        }
    }
    Ok(Exported { text, notes })
}
