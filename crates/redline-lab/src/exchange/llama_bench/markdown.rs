//! llama-bench's table: one line per test, with mean and deviation of the rate.

use serde_json::{Map, Value};

use super::super::{BadFile, Exported, Imported, NotExported, Place, values};
use super::record::Record;
use super::{exported, imported, lacks};
use crate::number;
use crate::run::Run;

const SHAPE: &str =
    "the table of `llama-bench -o md` has columns `test` and `t/s`, such as pp512 and 123.45 ± 0.67";

/// Titles that correspond to columns.
const TITLES: &[(&str, &str)] = &[
    ("model", "model_type"),
    ("backend", "backends"),
    ("threads", "n_threads"),
    ("ngl", "n_gpu_layers"),
    ("fa", "flash_attn"),
    ("mmap", "use_mmap"),
    ("nkvo", "no_kv_offload"),
    ("sm", "split_mode"),
    ("mg", "main_gpu"),
    ("ts", "tensor_split"),
    ("ot", "tensor_buft_overrides"),
    ("embd", "embeddings"),
];
/// Titles of values that follow from the model.
const SIZES: &[&str] = &["size", "params"];

/// The cells of a table line. A `|` inside a cell is escaped with a backslash.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?;
    let (mut cells, mut cell, mut escaped) = (Vec::new(), String::new(), false);
    for c in inner.chars() {
        match c {
            '|' if !escaped => cells.push(std::mem::take(&mut cell).trim().to_owned()),
            '|' => {
                cell.pop();
                cell.push('|');
            }
            c => cell.push(c),
        }
        escaped = c == '\\';
    }
    Some(cells)
}

fn titles(line: &str) -> Option<Vec<String>> {
    cells(line).filter(|cells| ["test", "t/s"].iter().all(|title| cells.iter().any(|cell| cell == title)))
}

pub(super) fn recognises(text: &str) -> bool {
    text.lines().any(|line| titles(line).is_some())
}

pub(super) fn read(text: &str) -> Result<Imported, BadFile> {
    let mut head: Option<Vec<String>> = None;
    let mut records = Vec::new();
    let mut build = None;
    for (index, line) in text.lines().enumerate() {
        let place = Place::Line(index as u64 + 1);
        if let Some(rest) = line.strip_prefix("build: ") {
            build = rest
                .split_once(" (")
                .map(|(commit, number)| (commit, number.trim_end().trim_end_matches(')')));
        }
        if let Some(found) = titles(line) {
            head = Some(found);
            continue;
        }
        let (Some(head), Some(cells)) = (&head, cells(line)) else { continue };
        if cells.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| "-: ".contains(c))) {
            continue;
        }
        if cells.len() != head.len() {
            let fact = format!("{} cells under {} titles", cells.len(), head.len());
            return Err(BadFile::at(place, fact, SHAPE));
        }
        records.push(Record::new(place, fields(place, head, &cells)?)?);
    }
    if head.is_none() {
        return Err(lacks(Place::File, "t/s"));
    }
    for (record, (commit, number)) in
        records.iter_mut().filter_map(|record| build.map(|build| (record, build)))
    {
        record.fields.insert("build_commit".to_owned(), commit.into());
        if number.bytes().all(|b| b.is_ascii_digit()) {
            record.fields.insert("build_number".to_owned(), number.into());
        }
    }
    imported(records)
}

fn fields(place: Place, head: &[String], cells: &[String]) -> Result<Map<String, Value>, BadFile> {
    let mut fields = Map::new();
    for (title, cell) in head.iter().zip(cells) {
        match title.as_str() {
            "test" => test(place, cell, &mut fields)?,
            "t/s" => {
                let (mean, deviation) = cell.split_once('±').unwrap_or((cell, ""));
                fields.insert("avg_ts".to_owned(), values::number(place, "t/s", mean)?.into());
                if !deviation.is_empty() {
                    fields.insert("stddev_ts".to_owned(), values::number(place, "t/s", deviation)?.into());
                }
            }
            title if SIZES.contains(&title) => {}
            title => {
                let name = TITLES.iter().find(|(short, _)| *short == title).map_or(title, |(_, name)| name);
                fields.insert(name.to_owned(), cell.as_str().into());
            }
        }
    }
    Ok(fields)
}

/// Reads `pp512`, `tg 128 @ d512`, `pp512+tg128`.
fn test(place: Place, cell: &str, fields: &mut Map<String, Value>) -> Result<(), BadFile> {
    let fault = || BadFile::at(place, format!("`{}` is no test", values::shortened(cell)), SHAPE);
    let (work, depth) = cell.split_once('@').unwrap_or((cell, ""));
    let parts = work.split('+').chain((!depth.is_empty()).then_some(depth));
    for part in parts {
        let part = part.trim();
        let names = [("pp", "n_prompt"), ("tg", "n_gen"), ("d", "n_depth")];
        let found = names.iter().find_map(|(short, name)| Some((*name, part.strip_prefix(short)?)));
        let (name, number) = found.ok_or_else(fault)?;
        let number: u64 = number.trim().parse().map_err(|_| fault())?;
        fields.insert(name.to_owned(), number.into());
    }
    Ok(())
}

pub(super) fn write(run: &Run) -> Result<Exported, NotExported> {
    const HEAD: &str = "| model | size | params | backend | threads | test | t/s |\n\
                        | --- | ---: | ---: | --- | ---: | ---: | ---: |\n";
    exported(run, |records| {
        let lines: String = records.iter().map(line).collect();
        let (version, git) = (run.engine.version.as_deref(), run.engine.git.as_deref());
        let number =
            version.and_then(|v| v.strip_prefix('b')).filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
        let build = number.map_or_else(|| run.engine.one_line(), ToOwned::to_owned);
        format!("{HEAD}{lines}\nbuild: {} ({build})\n", git.unwrap_or("unknown"))
    })
}

fn line(record: &Record) -> String {
    let text = |name: &str| {
        let cell = record.cell(name).unwrap_or_default();
        cell.replace(['\n', '\r'], " ").replace('|', "\\|")
    };
    let count = |name: &str| record.fields.get(name).and_then(Value::as_u64).unwrap_or(0);
    let figure = |name: &str| record.fields.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let size = record.fields.get("model_size").and_then(Value::as_u64).map(number::bytes).unwrap_or_default();
    let parameters = record.fields.get("model_n_params").and_then(Value::as_u64);
    let parameters = parameters.map(|n| format!("{:.2} B", n as f64 * 1e-9)).unwrap_or_default();
    let parts = [("pp", count("n_prompt")), ("tg", count("n_gen"))];
    let parts: Vec<String> =
        parts.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name}{n}")).collect();
    let depth = match count("n_depth") {
        0 => String::new(),
        depth => format!(" @ d{depth}"),
    };
    let (model, backend, threads) = (text("model_type"), text("backends"), text("n_threads"));
    let (mean, deviation) = (figure("avg_ts"), figure("stddev_ts"));
    let test = parts.join("+") + &depth;
    format!(
        "| {model} | {size} | {parameters} | {backend} | {threads} | {test} | {mean:.2} ± {deviation:.2} |\n"
    )
}
