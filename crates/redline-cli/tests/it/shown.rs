//! What the output of a command shows: fields of JSON, columns of comma-separated values, or words.

use serde_json::Value;

/// Whether `output` shows `expected`, which is `NAME` or `NAME=VALUE`. In JSON, a field has this name and a value; in comma-separated
/// values, a column has it, with a value in some line. In any other text, `expected` stands by itself.
pub(crate) fn shows(output: &str, expected: &str) -> bool {
    let (name, value) =
        expected.split_once('=').map_or((expected, None), |(name, value)| (name, Some(value)));
    match serde_json::from_str::<Value>(output) {
        Ok(document) if document.is_object() || document.is_array() => in_document(&document, name, value),
        _ => match columns(output) {
            Some(columns) => columns.iter().any(|(title, cells)| {
                title == name && cells.iter().any(|cell| !cell.is_empty() && value.is_none_or(|v| v == cell))
            }),
            None => in_text(output, expected),
        },
    }
}

/// Whether a field of this name has a value: any but null and an empty string, list or object, or just `value`, which is the
/// median of a metric.
fn in_document(document: &Value, name: &str, value: Option<&str>) -> bool {
    let is = |field: &Value, value: &str| match field {
        Value::String(text) => text == value,
        Value::Number(number) => value.parse().is_ok_and(|value: f64| number.as_f64() == Some(value)),
        Value::Bool(on) => value == if *on { "true" } else { "false" },
        _ => false,
    };
    let has = |field: &Value| match (value, field) {
        (Some(value), Value::Object(metric)) => metric.get("median").is_some_and(|median| is(median, value)),
        (Some(value), field) => is(field, value),
        (None, Value::Null) => false,
        (None, Value::String(text)) => !text.is_empty(),
        (None, Value::Array(values)) => !values.is_empty(),
        (None, Value::Object(fields)) => !fields.is_empty(),
        (None, _) => true,
    };
    match document {
        Value::Array(values) => values.iter().any(|one| in_document(one, name, value)),
        Value::Object(fields) => {
            fields.get(name).is_some_and(has) || fields.values().any(|one| in_document(one, name, value))
        }
        _ => false,
    }
}

/// The columns of comma-separated values, with their cells; `None` if the text has another form.
fn columns(text: &str) -> Option<Vec<(String, Vec<String>)>> {
    let mut lines = text.lines().map(cells);
    let titles = lines.next()?;
    let rows: Vec<Vec<String>> = lines.collect();
    let whole = titles.len() > 1 && !rows.is_empty() && rows.iter().all(|row| row.len() == titles.len());
    let column = |at: usize| rows.iter().map(|row| row[at].clone()).collect();
    whole.then(|| titles.into_iter().enumerate().map(|(at, title)| (title, column(at))).collect())
}

/// The cells of a line. In quotes a comma is text.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            c => cells.last_mut().expect("one at least").push(c),
        }
    }
    cells
}

/// Whether the text has these words, with no letter, digit, underscore or hyphen next to them.
fn in_text(text: &str, words: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let stands = |at: usize| {
        !text[..at].ends_with(part_of_word) && !text[at + words.len()..].starts_with(part_of_word)
    };
    !words.is_empty() && text.match_indices(words).any(|(at, _)| stands(at))
}

#[test]
fn fields_columns_and_words_are_told_apart() {
    let json = r#"{"rows":[{"n":3,"seconds":{"median":0.5},"note":"","none":null,"on":true,"list":[]}]}"#;
    for shown in ["n", "n=3", "seconds", "median=0.5", "seconds=0.50", "on=true"] {
        assert!(shows(json, shown), "{shown}");
    }
    for hidden in ["m", "n=4", "note", "none", "list", "3", "second", "seconds=0.25", "on=false"] {
        assert!(!shows(json, hidden), "{hidden}");
    }
    let csv = "name,cpu_time,label\n\"a, b\",12,\nc,,\n";
    for shown in ["name", "cpu_time", "cpu_time=12", "name=c", "name=a, b"] {
        assert!(shows(csv, shown), "{shown}");
    }
    for hidden in ["label", "cpu", "12", "cpu_time=1", "cpu_time="] {
        assert!(!shows(csv, hidden), "{hidden}");
    }
    let text = "case  items/s  p50 (ms)\na/b1  12.5  peak_memory  warm-up\n";
    for shown in ["items/s", "p50 (ms)", "a/b1", "12.5", "peak_memory"] {
        assert!(shows(text, shown), "{shown}");
    }
    for hidden in ["item", "memory", "warm", "up", "b", "ms2", "", "a/b", "p5"] {
        assert!(!shows(text, hidden), "{hidden}");
    }
    assert!(!shows("", "a") && !shows("a,b\n", "c") && shows("a, b\nc\n", "c"));
}
