//! Reads a text from a file or standard input: unchanged, or as lines.

use std::io::Read as _;
use std::path::Path;

use crate::jsonl;
use crate::message::{self, Failure};

/// Bytes of the longest text.
const LONGEST: u64 = 1 << 30;

/// Reads the whole file, at most 1 GiB, without the byte order mark that some programs write at its start. Invalid UTF-8 is an error that
/// names its offset.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    read_at_most(LONGEST, path)
}

/// As [`read`], with another limit in bytes. A device may have no end.
pub(crate) fn read_at_most(longest: u64, path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let input = jsonl::open(path)?;
    input.take(longest + 1).read_to_end(&mut bytes).map_err(|error| Failure::reading(path, &error))?;
    if bytes.len() as u64 > longest {
        let fact = format!("it is longer than {} MiB\n  in {}", longest >> 20, message::place(path));
        return Err(Failure::failed(
            fact,
            Some("check that it is the right file; cut a long text into parts".to_owned()),
        ));
    }
    if bytes.starts_with(jsonl::BYTE_ORDER_MARK) {
        bytes.drain(..jsonl::BYTE_ORDER_MARK.len());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].split(|&byte| byte == b'\n').count();
        let fact = format!(
            "byte {at} is {:#04x}, which is not UTF-8 there\n  in {}, line {line}",
            error.as_bytes()[at],
            message::place(path)
        );
        Failure::failed(
            fact,
            Some("convert the file, for example with `iconv -t utf-8`; binary files are no text".to_owned()),
        )
    })
}

/// Reads texts: the lines of a file, or a column of a table in CSV. A file whose name ends in `.csv` is one, and need not name its only
/// column.
pub(crate) fn read_texts(path: &Path, column: Option<&str>) -> Result<Vec<String>, Failure> {
    let is_csv = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
    if column.is_none() && !is_csv {
        return read_lines(path);
    }
    let failed = |error: csv::Error| {
        let hint = "a table in CSV has a header, and as many values in every row".to_owned();
        Failure::failed(format!("{error}\n  in {}", message::place(path)), Some(hint))
    };
    let table = read(path)?;
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let header = reader.headers().map_err(failed)?.clone();
    let names: Vec<&str> = header.iter().collect();
    if let Some(column) = column.filter(|column| names.iter().filter(|name| *name == column).count() > 1) {
        let fact = format!("the header has `{column}` twice\n  in {}", message::place(path));
        return Err(Failure::failed(fact, Some("rename one of the columns".to_owned())));
    }
    let at = match column {
        Some(column) => names.iter().position(|name| *name == column),
        None => (names.len() == 1).then_some(0),
    };
    let Some(at) = at else {
        let fact = match column {
            Some(column) => format!("the table has no column `{column}`\n  in {}", message::place(path)),
            None => format!("no column of {} is named\n  in {}", names.len(), message::place(path)),
        };
        return Err(Failure::usage(fact, format!("`--column NAME` names one of {}", names.join(", "))));
    };
    reader
        .records()
        .map(|record| Ok(record.map_err(failed)?.get(at).unwrap_or_default().to_owned()))
        .collect()
}

/// Reads the lines of a file. A final line end does not begin another line; an empty line is an empty text.
pub(crate) fn read_lines(path: &Path) -> Result<Vec<String>, Failure> {
    Ok(read(path)?.lines().map(str::to_owned).collect())
}
