//! Google Benchmark's comma-separated values.

use std::collections::BTreeSet;

use super::super::{BadFile, Exported, Imported, NotExported, Place, values};
use super::{Entry, Kind, LANE, checked, label, per_second, rows, written};
use crate::result::csv_line;
use crate::run::Run;

/// The first columns in order; counters follow.
const COLUMNS: &[&str] = &[
    "name",
    "iterations",
    "real_time",
    "cpu_time",
    "time_unit",
    "bytes_per_second",
    "items_per_second",
    "label",
    "error_occurred",
    "error_message",
];
/// The suffixes of statistics in names.
const STATISTICS: &[&str] = &["mean", "median", "stddev", "cv", "min", "max"];
/// Complexity fits, which are never cases.
const FITS: &[&str] = &["_BigO", "_RMS"];

/// Finds the header. A file may contain other output before it.
fn header(text: &str) -> Option<usize> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.starts_with("name,iterations,") {
            return Some(at);
        }
        at += line.len();
    }
    None
}

pub(super) fn recognises(text: &str) -> bool {
    header(text).is_some()
}

pub(super) fn read(text: &str) -> Result<Imported, BadFile> {
    const TITLES: &str =
        "the header of `--benchmark_format=csv` begins with name,iterations,real_time,cpu_time,time_unit";
    let Some(start) = header(text) else {
        return Err(BadFile::at(Place::File, "there is no header", TITLES));
    };
    let offset = text[..start].matches('\n').count() as u64;
    let mut reader = csv::ReaderBuilder::new().from_reader(&text.as_bytes()[start..]);
    let titles = reader.headers().map_err(|e| values::csv_fault(&e, offset))?.clone();
    let mut distinct = BTreeSet::new();
    if let Some(twice) = titles.iter().find(|title| !distinct.insert(*title)) {
        let fact = format!("the column `{}` stands twice", values::shortened(twice));
        return Err(BadFile::at(Place::Line(offset + 1), fact, TITLES));
    }
    if let Some(lacks) = ["real_time", "cpu_time", "time_unit"].iter().find(|name| !distinct.contains(**name))
    {
        return Err(BadFile::at(Place::Line(offset + 1), format!("the column `{lacks}` is missing"), TITLES));
    }
    let mut lines = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| values::csv_fault(&e, offset))?;
        let place = Place::Line(offset + record.position().map_or(0, csv::Position::line));
        lines.push((place, record));
    }
    let names: BTreeSet<String> = lines.iter().filter_map(|(_, r)| r.get(0)).map(ToOwned::to_owned).collect();
    let mut entries = Vec::new();
    for (place, record) in &lines {
        entries.extend(entry(*place, &titles, record, &names)?);
    }
    let (rows, failed) = rows(entries)?;
    Ok(Imported { lane: LANE.to_owned(), rows, failed, ..Imported::default() })
}

/// Splits a name into case and statistic. Statistics are marked only by suffixes, so the other names in the file decide
/// whether a name with such a suffix is a case itself.
fn statistic<'a>(name: &'a str, names: &BTreeSet<String>) -> Option<(&'a str, &'a str)> {
    let (case, last) = name.rsplit_once('_')?;
    let all = ["mean", "median", "stddev"].iter().all(|other| names.contains(&format!("{case}_{other}")));
    (STATISTICS.contains(&last) && (all || names.contains(case))).then_some((case, last))
}

/// Parses a line; `None` for fits and for statistics that do not describe a case.
fn entry(
    place: Place,
    titles: &csv::StringRecord,
    record: &csv::StringRecord,
    names: &BTreeSet<String>,
) -> Result<Option<Entry>, BadFile> {
    let cell =
        |title: &str| titles.iter().position(|t| t == title).and_then(|at| record.get(at)).unwrap_or("");
    let name = cell("name");
    if name.is_empty() {
        return Err(BadFile::at(place, "it has no `name`", "is the file whole?"));
    }
    if FITS.iter().any(|end| name.ends_with(end)) {
        return Ok(None);
    }
    let failed = cell("error_occurred").eq_ignore_ascii_case("true");
    let (case, kind) = match statistic(name, names) {
        _ if failed => (name, Kind::Failed(cell("error_message").to_owned())),
        Some((case, which)) if super::STANDS.contains(&which) => (case, Kind::Aggregate(which.to_owned())),
        Some(_) => return Ok(None),
        None => (name, Kind::Repetition(None)),
    };
    let mut found = Vec::new();
    if !failed {
        let unit = per_second(place, cell("time_unit"))?;
        for name in ["real_time", "cpu_time"] {
            let value = values::number(place, name, cell(name))?;
            found.push((name.to_owned(), values::not_negative(place, name, value)? / unit));
        }
        let counters = titles.iter().zip(record).filter(|(title, cell)| {
            let rate = ["bytes_per_second", "items_per_second"].contains(title);
            !cell.is_empty() && (rate || !COLUMNS.contains(title))
        });
        for (title, cell) in counters {
            found.push((title.to_owned(), values::number(place, title, cell)?));
        }
    }
    let label = Some(cell("label").to_owned()).filter(|label| !label.is_empty());
    checked(Entry { place, name: case.to_owned(), kind, threads: None, label, values: found }).map(Some)
}

pub(super) fn write(run: &Run) -> Result<Exported, NotExported> {
    let (rows, notes) = written(run)?;
    let mut titles: Vec<&str> = COLUMNS.to_vec();
    for (_, row, _) in &rows {
        for (name, _) in row.metrics.iter() {
            if !titles.contains(&name) {
                titles.push(name);
            }
        }
    }
    let mut text = csv_line(&titles.iter().map(|title| (*title).to_owned()).collect::<Vec<_>>());
    for (name, row, repetitions) in &rows {
        for values in repetitions {
            let cell = |title: &&str| match *title {
                "name" => name.clone(),
                "iterations" => "1".to_owned(),
                "time_unit" => "s".to_owned(),
                "label" => label(row),
                title => {
                    values.iter().find(|(n, _)| *n == title).map(|(_, v)| v.to_string()).unwrap_or_default()
                }
            };
            text.push_str(&csv_line(&titles.iter().map(cell).collect::<Vec<_>>()));
        }
    }
    Ok(Exported { text, notes })
}
