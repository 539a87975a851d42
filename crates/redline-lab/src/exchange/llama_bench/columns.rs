//! llama-bench's comma-separated values, in which every cell is quoted.

use serde_json::Map;

use super::super::{BadFile, Exported, Imported, NotExported, Place, values};
use super::record::Record;
use super::{COLUMNS, exported, imported, lacks};
use crate::run::Run;

pub(super) fn recognises(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let has = |name: &str| first.split(',').any(|title| title.trim().trim_matches('"') == name);
    has("n_prompt") && has("avg_ts")
}

pub(super) fn read(text: &str) -> Result<Imported, BadFile> {
    let mut reader = csv::ReaderBuilder::new().from_reader(text.as_bytes());
    let titles = reader.headers().map_err(|e| values::csv_fault(&e, 0))?.clone();
    let mut records = Vec::new();
    for line in reader.records() {
        let line = line.map_err(|e| values::csv_fault(&e, 0))?;
        let place = Place::Line(line.position().map_or(0, csv::Position::line));
        let mut fields = Map::new();
        for (title, cell) in titles.iter().zip(&line) {
            if fields.insert(title.trim().to_owned(), cell.into()).is_some() {
                let fact = format!("the column `{}` stands twice", values::shortened(title));
                return Err(BadFile::at(Place::Line(1), fact, "is the file damaged?"));
            }
        }
        if !fields.contains_key("avg_ts") && !fields.contains_key("avg_ns") {
            return Err(lacks(Place::Line(1), "avg_ts"));
        }
        records.push(Record::new(place, fields)?);
    }
    imported(records)
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

pub(super) fn write(run: &Run) -> Result<Exported, NotExported> {
    let titles: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    exported(run, |records| {
        let line = |record: &Record| {
            let cells =
                titles.iter().map(|name| record.cell(name).as_deref().map(quoted).unwrap_or_default());
            cells.collect::<Vec<_>>().join(",") + "\n"
        };
        titles.join(",") + "\n" + &records.iter().map(line).collect::<String>()
    })
}
