//! llama-bench's comma-separated values, in which every cell is quoted.

use serde_json::Value;

use super::super::values::Csv;
use super::super::{Exported, FilePosition, Result};
use super::record::Record;
use super::{COLUMNS, imported, missing, records};
use crate::run::Run;

pub(super) fn recognises(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let has = |name: &str| first.split(',').any(|title| title.trim().trim_matches('"') == name);
    has("n_prompt") && has("avg_ts")
}

pub(super) fn read(text: &str) -> Result<Run> {
    let csv = Csv::parse(text, 0, "is the file damaged?")?;
    if !csv.titles.iter().any(|title| ["avg_ts", "avg_ns"].contains(&title)) {
        return Err(missing(FilePosition::Line(1), "avg_ts"));
    }
    let record = |(place, line): &(FilePosition, csv::StringRecord)| {
        let field = |(title, cell): (&str, &str)| (title.to_owned(), Value::from(cell));
        Record::new(*place, csv.titles.iter().zip(line).map(field).collect())
    };
    imported(&csv.lines.iter().map(record).collect::<Result<Vec<_>, _>>()?)
}

pub(super) fn write(run: &Run) -> Result<Exported> {
    let (records, notes) = records(run)?;
    let quoted = |text: String| format!("\"{}\"", text.replace('"', "\"\""));
    let line = |record: &Record| {
        let cells = COLUMNS.iter().map(|column| record.cell(column.name).map(quoted).unwrap_or_default());
        cells.collect::<Vec<_>>().join(",") + "\n"
    };
    let titles: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    let text = titles.join(",") + "\n" + &records.iter().map(line).collect::<String>();
    Ok(Exported { text, notes })
}
