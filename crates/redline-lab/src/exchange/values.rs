//! Parses numbers of imported files, and infers the kind of a metric from its name.

use serde_json::Value;

use super::{BadFile, Place};
use crate::stats::{Direction, Samples};

const NUMBERS: &str =
    "a number is finite, with a point and without a unit; leave out what could not be measured";

/// Parses a number; `name` appears in the error.
pub(super) fn number(place: Place, name: &str, text: &str) -> Result<f64, BadFile> {
    let text = text.trim();
    let parsed = text.parse::<f64>().ok().filter(|v| v.is_finite());
    parsed.ok_or_else(|| {
        BadFile::at(place, format!("`{name}` is `{}`, which is no number", shortened(text)), NUMBERS)
    })
}

/// A number in JSON, or in a JSON string; `None` if it is null or empty.
pub(super) fn number_of(place: Place, name: &str, value: &Value) -> Result<Option<f64>, BadFile> {
    match value {
        Value::Null => Ok(None),
        Value::Bool(yes) => Ok(Some(f64::from(u8::from(*yes)))),
        Value::String(text) if text.trim().is_empty() => Ok(None),
        Value::String(text) => number(place, name, text).map(Some),
        other => number(place, name, &other.to_string()).map(Some),
    }
}

/// Returns an error for negative values.
pub(super) fn not_negative(place: Place, name: &str, value: f64) -> Result<f64, BadFile> {
    if value >= 0.0 {
        return Ok(value);
    }
    Err(BadFile::at(place, format!("`{name}` is {value}, but it cannot be below 0"), "is the file damaged?"))
}

/// Converts to an integer in the range of token and thread counts.
pub(super) fn count(place: Place, name: &str, value: f64) -> Result<u64, BadFile> {
    const MOST: f64 = 1e12;
    if value.fract() == 0.0 && (0.0..=MOST).contains(&value) {
        return Ok(value as u64);
    }
    Err(BadFile::at(place, format!("`{name}` is {value}, which is no count"), "is the file damaged?"))
}

/// Samples of finite numbers.
pub(super) fn samples(
    place: Place,
    (unit, direction): (&str, Direction),
    processes: &[Vec<f64>],
) -> Result<Samples, BadFile> {
    Samples::by_process(unit, direction, processes)
        .map_err(|error| BadFile::at(place, error.to_string(), NUMBERS))
}

/// The unit and direction of a metric, inferred from its name: rates are higher-is-better, times and sizes lower-is-better,
/// others unknown.
pub(super) fn kind(name: &str) -> (String, Direction) {
    let known = |unit: &str, direction| (unit.to_owned(), direction);
    match name {
        "bytes_per_second" => return known("bytes/s", Direction::Higher),
        "items_per_second" => return known("items/s", Direction::Higher),
        "real_time" | "cpu_time" | "seconds" => return known("s", Direction::Lower),
        "peak_memory" => return known("bytes", Direction::Lower),
        "share" | "share_of_forward" => return known("share", Direction::Info),
        _ => {}
    }
    let last = |stem: &str| stem.rsplit('_').next().unwrap_or(stem).to_owned();
    if let Some(stem) = name.strip_suffix("_per_s").or_else(|| name.strip_suffix("_per_second")) {
        return (format!("{}/s", last(stem)), Direction::Higher);
    }
    if name.contains("_per_") {
        return known("", Direction::Info);
    }
    for (suffix, unit) in [("_s", "s"), ("_ms", "ms"), ("_us", "us"), ("_ns", "ns"), ("_bytes", "bytes")] {
        if name.ends_with(suffix) {
            return known(unit, Direction::Lower);
        }
    }
    known("", Direction::Info)
}

/// A name without terminal control characters.
pub(super) fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Shortens a text to one line, for messages.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    let mut short: String = text.chars().take(MOST).filter(|c| !c.is_control()).collect();
    if text.chars().count() > MOST {
        short.push('…');
    }
    short
}

/// Converts a serde error with its position.
pub(super) fn json_fault(error: &serde_json::Error, offset: u64) -> BadFile {
    const HINT: &str = "is the file whole? JSON knows neither NaN nor infinities: leave such values out";
    let text = error.to_string();
    let fact = text.split(" at line ").next().unwrap_or(&text).to_owned();
    BadFile::at(
        Place::Line(offset + error.line() as u64),
        format!("{fact} (column {})", error.column()),
        HINT,
    )
}

/// Converts an error in comma-separated values, whose first line is `offset` lines below the start of the file.
pub(super) fn csv_fault(error: &csv::Error, offset: u64) -> BadFile {
    const HINT: &str = "every line has as many cells as the header: is the file whole?";
    let line = error.position().map_or(0, csv::Position::line);
    let fact = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} cells under {expected_len} titles")
        }
        _ => error.to_string(),
    };
    BadFile::at(if line == 0 { Place::File } else { Place::Line(offset + line) }, fact, HINT)
}
