//! Tables that other programs wrote, and what is written of them.

use serde_json::{Map, Value, json};

use super::*;
use crate::cell::Holds;

/// The tables that `tests/golden/tables.py` wrote.
fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/tables").join(name)
}

fn open(path: &Path) -> Box<dyn Table> {
    format_of(path).unwrap().open(path).unwrap()
}

/// All rows of these ranges of each group, with `columns`.
fn rows(table: &dyn Table, ranges: &[(u64, u64)], columns: Option<&[String]>) -> Vec<Rows> {
    let groups = table.groups().iter().enumerate();
    let read = |(group, rows): (usize, &u64)| {
        let ranges = ranges.iter().filter(|(start, _)| start < rows);
        let ranges = ranges.map(|(start, end)| *start..*end.min(rows)).collect();
        table.read(group, ranges, columns).unwrap().map(Result::unwrap).collect::<Vec<_>>()
    };
    groups.flat_map(read).collect()
}

/// A value without the order of its keys.
fn plain(json: &Json) -> Value {
    serde_json::from_str(&json.compact()).unwrap()
}

/// The values that a table must have.
fn expected() -> Vec<Map<String, Value>> {
    serde_json::from_slice(&std::fs::read(golden("rows.json")).unwrap()).unwrap()
}

const FILES: [&str; 9] = [
    "none.parquet",
    "snappy.parquet",
    "gzip.parquet",
    "lz4.parquet",
    "zstd.parquet",
    "pages.parquet",
    "uncompressed.feather",
    "lz4.feather",
    "zstd.feather",
];

#[test]
fn values_are_those_that_other_programs_wrote() {
    let expected = expected();
    for name in FILES.into_iter().chain(["stream.arrow", "polars.parquet"]) {
        let table = open(&golden(name));
        let read = rows(table.as_ref(), &[(0, u64::MAX)], None);
        let read: Vec<(&Rows, usize)> =
            read.iter().flat_map(|rows| (0..rows.len()).map(move |row| (rows, row))).collect();
        assert_eq!(read.len(), expected.len(), "{name}");
        for (index, ((rows, row), expected)) in read.into_iter().zip(&expected).enumerate() {
            for (column, value) in expected {
                if name.starts_with("polars") && !["id", "text"].contains(&column.as_str()) {
                    continue;
                }
                let found = plain(&rows.value(row, column).unwrap());
                // A half or a single is the number that it is, not the shortest text for it.
                let is_equal = match (found.as_f64(), value.as_f64()) {
                    (Some(found), Some(value)) => found == value,
                    _ => found == *value,
                };
                assert!(is_equal, "{name}, row {index}, `{column}`: {found} for {value}");
            }
            if !name.starts_with("polars") && index == 1 {
                let not_finite = rows.value(row, "single").unwrap_err();
                assert_eq!(not_finite, "NaN is no number that a request can have");
                assert!(rows.value(row, "when").unwrap_err().contains("cannot be read"));
            }
        }
    }
}

#[test]
fn columns_say_what_requests_can_be_made_of_them() {
    for name in FILES {
        let table = open(&golden(name));
        let shape = |name: &str| {
            let column = table.columns().iter().find(|column| column.name == name);
            column.map(|column| column.shape)
        };
        assert_eq!(["text", "large", "view"].map(shape), [Some(Shape::Text); 3], "{name}");
        assert_eq!(["texts", "ids", "messages"].map(shape), [Some(Shape::List); 3], "{name}");
        assert_eq!(["id", "single", "flag", "byte"].map(shape), [Some(Shape::Other); 4], "{name}");
        assert_eq!(
            (shape("when"), shape("category")),
            (Some(Shape::Unreadable), Some(Shape::Text)),
            "{name}"
        );
    }
}

#[test]
fn ranges_are_the_rows_that_they_name() {
    let ids =
        |rows: &Rows| (0..rows.len()).map(|row| plain(&rows.value(row, "id").unwrap())).collect::<Vec<_>>();
    for name in ["none.parquet", "pages.parquet", "zstd.feather", "stream.arrow"] {
        let table = open(&golden(name));
        let columns = ["text".to_owned(), "id".to_owned()];
        let all: Vec<Value> = rows(table.as_ref(), &[(0, 9)], None).iter().flat_map(ids).collect();
        assert_eq!(all, [json!(1), json!(2), json!(3), Value::Null, json!(5)], "{name}");
        // Of one group, or of groups of two rows.
        let parts = rows(table.as_ref(), &[(0, 1), (1, 3), (4, 5)], Some(&columns));
        let found: Vec<Vec<Value>> = parts.iter().map(ids).collect();
        let expected = match table.groups() {
            [5] => vec![vec![json!(1)], vec![json!(2), json!(3)], vec![json!(5)]],
            [2, 2, 1] => {
                vec![vec![json!(1)], vec![json!(2)], vec![json!(3)], vec![Value::Null], vec![json!(5)]]
            }
            other => panic!("{name} has groups of {other:?}"),
        };
        assert_eq!(found, expected, "{name}");
        assert!(parts[0].has("id") && parts[0].has("text") && !parts[0].has("flag"), "{name}");
        // More rows than there are.
        let missing = table.read(0, vec![0..1, 1..7], None).map(|mut read| read.all(|rows| rows.is_ok()));
        assert!(!matches!(missing, Ok(true)), "{name}");
    }
}

fn columns() -> Vec<Column> {
    let kinds = [Holds::Text, Holds::Number, Holds::Count, Holds::Numbers, Holds::Lists, Holds::Ids];
    let names = ["a", "b", "c", "d", "e", "f"];
    names.into_iter().zip(kinds).map(|(name, holds)| Column { name: name.to_owned(), holds }).collect()
}

fn cells() -> Vec<Vec<Cell>> {
    let full = vec![
        Cell::Text("x\"y".to_owned()),
        Cell::Number(0.1),
        Cell::Count(3),
        Cell::Numbers(vec![0.5, 1e-30]),
        Cell::Lists(vec![vec![1.0], vec![]]),
        Cell::Ids(vec![7, 0]),
    ];
    vec![full, vec![Cell::None; 6]]
}

/// The values of `cells`, as they are read back.
fn written() -> Value {
    json!([
        { "a": "x\"y", "b": 0.1_f32, "c": 3, "d": [0.5, 1e-30_f32], "e": [[1.0], []], "f": [7, 0] },
        { "a": null, "b": null, "c": null, "d": null, "e": null, "f": null },
    ])
}

#[test]
fn results_have_the_columns_of_the_input_and_the_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    for (name, ending) in [("zstd.parquet", "parquet"), ("lz4.feather", "arrow"), ("stream.arrow", "arrow")] {
        let (source, path) = (golden(name), folder.path().join(format!("results.{ending}")));
        let format = format_of(&source).unwrap();
        let input = rows(open(&source).as_ref(), &[(0, 2)], None).into_iter().next().unwrap();
        let bytes = format.results(&input, &columns(), &cells()).unwrap();
        assert_eq!(bytes, format.results(&input, &columns(), &cells()).unwrap(), "{name}: equal bytes");
        std::fs::write(&path, bytes).unwrap();
        let results = open(&path);
        let read = rows(results.as_ref(), &[(0, 2)], None).into_iter().next().unwrap();
        for (row, expected) in written().as_array().unwrap().iter().enumerate() {
            for (column, value) in expected.as_object().unwrap() {
                let found = plain(&read.value(row, column).unwrap());
                let narrow = |value: &Value| value.as_f64().map(|value| value as f32);
                assert!(found == *value || narrow(&found) == narrow(value), "{name}: {column}: {found}");
            }
            for column in ["id", "text", "category", "messages", "flag"] {
                assert_eq!(read.value(row, column), input.value(row, column), "{name}: {column}");
            }
        }
        let kinds = results.columns().iter().map(|column| column.holds.as_str()).rev().take(6);
        let expected = ["List(UInt32)", "List(List(Float32))", "List(Float32)", "Int64", "Float32", "Utf8"];
        assert_eq!(kinds.collect::<Vec<_>>(), expected, "{name}");
        assert_eq!(format.count(&path, "a").unwrap(), 1, "{name}");
        assert_eq!(format.count(&path, "text").unwrap(), 2, "{name}");
        assert!(format.count(&path, "none").is_err(), "{name}");
        // Nothing of the input.
        let none =
            rows(open(&source).as_ref(), &[(0, 2)], None).into_iter().next().unwrap().keeping(&[]).unwrap();
        std::fs::write(&path, format.results(&none, &columns(), &cells()).unwrap()).unwrap();
        assert_eq!(open(&path).columns().len(), 6, "{name}");
    }
}

#[test]
fn lines_are_written_as_they_were_read() {
    let folder = tempfile::tempdir().unwrap();
    let (path, out) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
    let lines = "\u{feff}{\"z\": 1.0, \"a\\u0062\":[1, 2]}\n\n  \n[1]\n{\"z\":1,\"z\":2}\n{}";
    std::fs::write(&path, lines).unwrap();
    let table = open(&path);
    assert_eq!(table.groups(), [4]);
    assert_eq!(table.columns().iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["z", "ab"]);
    let parts = rows(table.as_ref(), &[(0, 1), (1, 4)], None);
    assert_eq!((parts[0].value(0, "ab"), parts[0].value(0, "c")), (Ok(json!([1, 2]).into()), Ok(Json::Null)));
    for (row, reason) in [(0, "invalid type: sequence, expected an object"), (1, "`z` occurs twice")] {
        let damaged = parts[1].value(row, "z").unwrap_err();
        assert!(damaged.starts_with("the line is no JSON object: ") && damaged.contains(reason), "{damaged}");
    }
    let format = format_of(&path).unwrap();
    let cells = [cells(), cells()].concat();
    let two = &columns()[..2];
    let first = format.results(&parts[0], two, &cells[..1]).unwrap();
    assert_eq!(String::from_utf8(first).unwrap(), "{\"z\":1.0,\"ab\":[1, 2],\"a\":\"x\\\"y\",\"b\":0.1}\n");
    let rest = format.results(&parts[1], two, &cells[1..]).unwrap();
    let expected = "{\"a\":null,\"b\":null}\n{\"a\":\"x\\\"y\",\"b\":0.1}\n{\"a\":null,\"b\":null}\n";
    assert_eq!(String::from_utf8(rest.clone()).unwrap(), expected);
    std::fs::write(&out, rest).unwrap();
    assert_eq!(format.count(&out, "a").unwrap(), 1);
}

#[test]
fn tables_in_csv_hold_texts() {
    let folder = tempfile::tempdir().unwrap();
    let (path, out) = (folder.path().join("in.csv"), folder.path().join("out.csv"));
    std::fs::write(&path, "\u{feff}id,text\r\n1,\"a \"\"b\"\"\r\nc\"\r\n\r\n2\r\n3,\n").unwrap();
    let table = open(&path);
    assert_eq!(table.groups(), [3]);
    let names: Vec<&str> = table.columns().iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["id", "text"]);
    let parts = rows(table.as_ref(), &[(0, 1), (1, 3)], None);
    assert_eq!(parts[0].value(0, "text"), Ok(json!("a \"b\"\r\nc").into()));
    assert_eq!(
        (parts[0].value(0, "id"), parts[1].value(1, "text")),
        (Ok(json!("1").into()), Ok(json!("").into()))
    );
    assert!(parts[1].value(0, "id").unwrap_err().contains("2 fields"));
    let format = format_of(&path).unwrap();
    let (all, two) = (cells(), &columns()[..2]);
    let first = format.results(&parts[0], two, &all[..1]).unwrap();
    let expected = "id,text,a,b\n1,\"a \"\"b\"\"\r\nc\",\"x\"\"y\",0.1\n";
    assert_eq!(String::from_utf8(first.clone()).unwrap(), expected);
    std::fs::write(&out, first).unwrap();
    assert_eq!((format.count(&out, "a").unwrap(), format.count(&out, "id").unwrap()), (1, 1));
    assert!(format.count(&out, "none").is_err());
    let rest = format.results(&parts[1], &columns(), &[all[1].clone(), all[0].clone()]).unwrap();
    let expected =
        "id,text,a,b,c,d,e,f\n,,,,,,,\n3,,\"x\"\"y\",0.1,3,\"[0.5,1e-30]\",\"[[1.0],[]]\",\"[7,0]\"\n";
    assert_eq!(String::from_utf8(rest).unwrap(), expected);
    // Files of results have one header, also where every row is damaged.
    let damaged = rows(table.as_ref(), &[(1, 2)], None);
    let damaged = format.results(&damaged[0], two, &all[..1]).unwrap();
    assert_eq!(String::from_utf8(damaged).unwrap(), "id,text,a,b\n,,\"x\"\"y\",0.1\n");
    for (text, reason) in
        [("a,a\n1,2\n", "`a` twice"), (&*format!("a\n\"{}", "x".repeat(65 << 20)), "not closed")]
    {
        std::fs::write(&path, text).unwrap();
        let error = format.open(&path).err().unwrap().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn files_that_are_no_tables_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(golden("snappy.parquet")).unwrap();
    for name in ["a.parquet", "a.arrow"] {
        let path = folder.path().join(name);
        for bytes in [&b""[..], b"no table", &whole[..whole.len() / 2], b"ARROW1\0\0", b"PAR1PAR1"] {
            std::fs::write(&path, bytes).unwrap();
            assert!(format_of(&path).unwrap().open(&path).is_err(), "{name}: {bytes:?}");
        }
    }
    assert!(format_of(Path::new("a.xlsx")).is_none() && format_of(Path::new("parquet")).is_none());
    assert_eq!(format_of(Path::new("A.PARQUET")).unwrap().name(), "Parquet");
}

#[test]
fn damaged_files_end_with_an_error_or_with_other_values() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = 1_u64;
    for name in FILES.into_iter().chain(["stream.arrow"]) {
        let whole = std::fs::read(golden(name)).unwrap();
        let path = folder.path().join(name);
        for _ in 0..60 {
            let mut bytes = whole.clone();
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let place = (random >> 33) as usize % bytes.len();
            bytes[place] ^= 1 << (random >> 30 & 7);
            std::fs::write(&path, bytes).unwrap();
            // Neither a panic nor an endless work.
            let _ = guarded(&path, || {
                let table = format_of(&path).unwrap().open(&path)?;
                for (group, rows) in table.groups().iter().enumerate() {
                    let ranges = std::iter::once(0..(*rows).min(5)).collect();
                    for rows in table.read(group, ranges, None)? {
                        let rows = rows?;
                        for column in table.columns() {
                            (0..rows.len()).for_each(|row| drop(rows.value(row, &column.name)));
                        }
                    }
                }
                Ok(())
            });
        }
    }
}
