//! `compare`: each exit code through the binary, and files that hold no run.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Run, command, redline};

/// A folder of runs.
struct Runs(TempDir);

/// A run with one case and these samples, as any engine's driver would write it.
fn document(samples: &[f64]) -> Value {
    let metrics = json!({"rate": {"unit": "tokens/s", "direction": "higher", "samples": samples}});
    json!({
        "schema": "redline.bench.run/1", "engine": {"name": "other"}, "lane": "generate", "machine": {"fingerprint": "f"},
        "rows": [{"case": "decode/t1", "checked": true, "digest": "d", "params": {"tokens": 5}, "metrics": metrics}]
    })
}

impl Runs {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn text(&self, name: &str, text: &str) -> String {
        let dir: PathBuf = self.0.path().join(name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("run.json"), text).unwrap();
        dir.to_str().unwrap().to_owned()
    }

    fn run(&self, name: &str, document: &Value) -> String {
        self.text(name, &document.to_string())
    }
}

const BASE: &[f64] = &[100.0, 101.0, 99.0, 100.0];

/// Compares the base with another document.
fn against(new: &Value, flags: &[&str]) -> Run {
    let runs = Runs::new();
    let (base, new) = (runs.run("base", &document(BASE)), runs.run("new", new));
    redline(&[&["compare", &base, &new], flags].concat())
}

#[track_caller]
fn gives(new: &Value, flags: &[&str], code: i32, expect: &[&str]) {
    let run = against(new, flags);
    assert_eq!(run.code, code, "{}{}", run.out, run.err);
    for expect in expect {
        assert!(run.out.contains(expect), "no `{expect}` in {}", run.out);
    }
    assert_eq!(run.err, "");
}

#[test]
fn each_code_is_reached() {
    gives(&document(BASE), &[], 0, &["= same", "outputs: 1 equal, 0 different, 0 unknown", "result: 1 same"]);
    gives(&document(&[120.0, 121.0, 119.0]), &[], 0, &["✓ faster", "1.200"]);
    gives(&document(&[80.0, 81.0, 79.0]), &[], 1, &["✗ slower", "0.8000", "geometric mean of 1 ratios"]);
    gives(&document(&[100.0, 96.0, 104.0]), &[], 3, &["? inconclusive"]);
    gives(&document(&[50.0, 100.0, 200.0]), &[], 5, &["~ too noisy"]);
    let mut other = document(BASE);
    other["machine"]["fingerprint"] = "g".into();
    gives(&other, &[], 4, &["≠ not comparable", "fingerprint is f against g"]);
    gives(&other, &["--allow-different-machine"], 0, &["= same"]);
    other = document(BASE);
    other["lane"] = "score".into();
    gives(&other, &[], 4, &["≠ not comparable", "lane differs"]);
    other["rows"][0]["case"] = "score/t1".into();
    gives(&other, &[], 4, &["≠ not comparable", "lane differs", "✗ missing"]);
    other = document(BASE);
    other["rows"][0]["checked"] = false.into();
    gives(&other, &[], 5, &["! invalid", "new: not checked"]);
    other["rows"] = json!([]);
    gives(&other, &[], 1, &["✗ missing"]);
}

/// `redline compare BASE NEW | true` must not make a slower run pass.
#[test]
fn the_code_does_not_depend_on_a_reader() {
    let runs = Runs::new();
    let base = runs.run("base", &document(BASE));
    for (name, samples, code) in
        [("slower", [80.0, 81.0, 79.0, 80.0], 1), ("same", [100.0, 101.0, 99.0, 100.0], 0)]
    {
        let new = runs.run(name, &document(&samples));
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = command(&["compare", &base, &new]).stdout(writer).status().unwrap();
        assert_eq!(status.code(), Some(code), "{name}");
        assert_eq!(redline(&["compare", &base, &new]).code, code, "{name}");
    }
}

#[test]
fn flags_change_the_rule() {
    let slower = document(&[80.0, 81.0, 79.0]);
    gives(&slower, &["--threshold", "40"], 0, &["differences from 40.0 % on matter", "= same"]);
    let mut other = document(BASE);
    other["rows"][0]["params"]["tokens"] = 6.into();
    gives(&other, &[], 4, &["tokens is 5 against 6"]);
    gives(&other, &["--allow-different-param", "tokens"], 0, &["= same"]);
    let mut more = document(BASE);
    let mut row = more["rows"][0].clone();
    row["case"] = "new/t1".into();
    row["digest"] = Value::Null;
    more["rows"].as_array_mut().unwrap().push(row);
    gives(&more, &[], 0, &["new/t1", "+ new"]);
}

#[test]
fn json_is_one_document() {
    let run = against(&document(&[80.0, 81.0, 79.0]), &["--json"]);
    let json: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((run.code, &json["exit_code"]), (1, &1.into()));
    let line = &json["lines"][0];
    assert_eq!(
        (&line["case"], &line["metric"], &line["verdict"]),
        (&"decode/t1".into(), &"rate".into(), &"slower".into())
    );
    assert!(line["low"].as_f64() < line["ratio"].as_f64() && line["ratio"].as_f64() < line["high"].as_f64());
}

#[test]
fn what_is_no_run_is_wrong_usage() {
    let runs = Runs::new();
    let base = runs.run("base", &document(BASE));
    let good = document(BASE).to_string();
    let cases = [
        ("empty", String::new(), "EOF while parsing"),
        ("cut", good[..good.len() / 2].to_owned(), "EOF while parsing"),
        ("nan", good.replace("101.0", "NaN"), "expected value at line 1"),
        ("null", good.replace("101.0", "null"), "null"),
        ("version", good.replace("run/1", "run/9"), "`schema` is \"redline.bench.run/9\""),
        ("lane", good.replace("\"lane\"", "\"lain\""), "missing field `lane`"),
        ("printed", json!({"lane": "generate", "rows": []}).to_string(), "no field `schema`"),
        ("word", "\"run\"".to_owned(), "invalid type"),
    ];
    for (name, text, expect) in cases {
        let dir = runs.text(name, &text);
        for arguments in [["compare", &base, &dir], ["compare", &dir, &base]] {
            redline(&arguments).usage(&[expect, &dir, "run.json"]);
        }
        redline(&["bench", "generate", "--model", "demo", "--baseline", &dir]).usage(&[expect, &dir]);
    }
    redline(&["compare", &base, "/nonexistent/run"])
        .usage(&["/nonexistent/run", "redline bench LANE -o DIR"]);
    let empty = tempfile::tempdir().unwrap();
    redline(&["compare", &base, empty.path().to_str().unwrap()]).usage(&["run.json"]);
}
