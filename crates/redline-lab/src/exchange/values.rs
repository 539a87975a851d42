//! What the formats share: numbers of imported files, grouping, and the kind of a metric by its name.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{ExchangeError, FilePosition, MAX_CASES, Result};
use crate::result::{Row, text};
use crate::stats::{Direction, Samples};

const NUMBERS: &str =
    "a number is finite, with a point and without a unit; leave out what could not be measured";
const DAMAGED: &str = "is the file damaged?";

/// Parses a number; `name` appears in the error.
pub(super) fn number(place: FilePosition, name: &str, text: &str) -> Result<f64> {
    let text = text.trim();
    let number = text.parse::<f64>().ok().filter(|v| v.is_finite());
    number
        .ok_or_else(|| place.error(format!("`{name}` is `{}`, which is no number", shortened(text)), NUMBERS))
}

/// A number in JSON, or in a JSON string; `None` if it is null or empty.
pub(super) fn number_of(place: FilePosition, name: &str, value: &Value) -> Result<Option<f64>> {
    match value {
        Value::Null => Ok(None),
        Value::Bool(yes) => Ok(Some(f64::from(u8::from(*yes)))),
        Value::String(text) if text.trim().is_empty() => Ok(None),
        value => number(place, name, &text(value)).map(Some),
    }
}

/// Returns an error for negative values.
pub(super) fn not_negative(place: FilePosition, name: &str, value: f64) -> Result<f64> {
    if value >= 0.0 {
        return Ok(value);
    }
    Err(place.error(format!("`{name}` is {value}, but it cannot be below 0"), DAMAGED))
}

/// Converts to an integer in the range of token and thread counts.
pub(super) fn count(place: FilePosition, name: &str, value: f64) -> Result<u64> {
    const MAX: f64 = 1e12;
    if value.fract() == 0.0 && (0.0..=MAX).contains(&value) {
        return Ok(value as u64);
    }
    Err(place.error(format!("`{name}` is {value}, which is no count"), DAMAGED))
}

pub(super) fn samples(
    place: FilePosition,
    (unit, direction): (&str, Direction),
    processes: &[Vec<f64>],
) -> Result<Samples> {
    Samples::by_process(unit, direction, processes).map_err(|e| place.error(e.to_string(), NUMBERS))
}

/// Groups items by key, in the order in which the keys first appear.
pub(super) fn grouped<K: Ord + Clone, T>(items: impl IntoIterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut places = BTreeMap::new();
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for (key, item) in items {
        let place = *places.entry(key.clone()).or_insert(groups.len());
        if place == groups.len() {
            groups.push((key, Vec::new()));
        }
        groups[place].1.push(item);
    }
    groups
}

/// The items of each case, given with the case they belong to; too many cases are an error.
pub(super) fn cases<K: Ord + Clone, T>(
    items: impl IntoIterator<Item = (K, T)>,
    place: fn(&T) -> FilePosition,
) -> Result<Vec<(K, Vec<T>)>> {
    let cases = grouped(items);
    match cases.get(MAX_CASES) {
        Some((_, items)) => {
            Err(place(&items[0]).error(format!("more than {MAX_CASES} cases"), "import them in parts"))
        }
        None => Ok(cases),
    }
}

/// Adds a parameter, if its value is known.
pub(super) fn param(row: Row, name: &str, value: Option<impl Into<Value>>) -> Row {
    match value {
        Some(value) => row.param(name, value),
        None => row,
    }
}

/// The unit and direction of a metric, inferred from its name: rates are higher-is-better, times and sizes lower-is-better,
/// others unknown.
pub(super) fn kind(name: &str) -> (String, Direction) {
    if let Some(stem) = name.strip_suffix("_per_s").or_else(|| name.strip_suffix("_per_second")) {
        let counted = stem.rsplit('_').next().unwrap_or(stem);
        return (format!("{counted}/s"), Direction::Higher);
    }
    let suffix = ["_s", "_ms", "_us", "_ns", "_bytes"].into_iter().find(|suffix| name.ends_with(suffix));
    let (unit, direction) = match (name, suffix) {
        ("real_time" | "cpu_time" | "seconds", _) => ("s", Direction::Lower),
        ("peak_memory", _) => ("bytes", Direction::Lower),
        ("share" | "share_of_forward", _) => ("share", Direction::Info),
        (_, Some(suffix)) if !name.contains("_per_") => (&suffix[1..], Direction::Lower),
        _ => ("", Direction::Info),
    };
    (unit.to_owned(), direction)
}

/// A name without terminal control characters.
pub(super) fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Shortens a text to one line, for messages.
pub(super) fn shortened(text: &str) -> String {
    const MAX: usize = 60;
    let mut short: String = text.chars().take(MAX).filter(|c| !c.is_control()).collect();
    if text.chars().count() > MAX {
        short.push('…');
    }
    short
}

/// Parses a JSON value whose first line is `offset` lines below the start of the file.
pub(super) fn json(text: &str, offset: u64) -> Result<Value> {
    const HINT: &str = "is the file whole? JSON knows neither NaN nor infinities: leave such values out";
    serde_json::from_str(text).map_err(|error: serde_json::Error| {
        let text = error.to_string();
        let fact = text.split(" at line ").next().unwrap_or(&text);
        let fact = format!("{fact} (column {})", error.column());
        FilePosition::Line(offset + error.line() as u64).error(fact, HINT)
    })
}

/// Comma-separated values.
pub(super) struct Csv {
    pub(super) titles: csv::StringRecord,
    /// The lines below the titles with their positions.
    pub(super) lines: Vec<(FilePosition, csv::StringRecord)>,
}

impl Csv {
    /// Parses values whose first line is `offset` lines below the start of the file. `titles_hint` goes with errors about titles.
    pub(super) fn parse(text: &str, offset: u64, titles_hint: &'static str) -> Result<Self> {
        let fault = |error: csv::Error| csv_fault(&error, offset);
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::Headers).from_reader(text.as_bytes());
        let titles = reader.headers().map_err(fault)?.clone();
        let mut distinct = BTreeSet::new();
        if let Some(twice) = titles.iter().find(|title| !distinct.insert(*title)) {
            let fact = format!("the column `{}` stands twice", shortened(twice));
            return Err(FilePosition::Line(offset + 1).error(fact, titles_hint));
        }
        let line = |record: Result<csv::StringRecord, csv::Error>| {
            let record = record.map_err(fault)?;
            let line = record.position().map_or(0, csv::Position::line);
            Ok((FilePosition::Line(offset + line), record))
        };
        let lines = reader.records().map(line).collect::<Result<_>>()?;
        Ok(Self { titles, lines })
    }
}

fn csv_fault(error: &csv::Error, offset: u64) -> ExchangeError {
    const HINT: &str = "every line has as many cells as the header: is the file whole?";
    let place = match error.position().map_or(0, csv::Position::line) {
        0 => FilePosition::File,
        line => FilePosition::Line(offset + line),
    };
    let fact = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} cells under {expected_len} titles")
        }
        _ => error.to_string(),
    };
    place.error(fact, HINT)
}
