//! `export` and `import` through the binary: round trips, and files that are in none of the formats.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::redline;

const TESTS: &str = r#"{"context": {"engine": "peer", "engine_version": "b6123", "lane": "generate"}, "benchmarks": [
{"name":"decode/t2","run_type":"iteration","repetition_index":0,"real_time":0.1,"time_unit":"s","decode_tokens_per_s":80.0},
{"name":"decode/t2","run_type":"iteration","repetition_index":1,"real_time":0.1,"time_unit":"s","decode_tokens_per_s":79.2079},
{"name":"decode/t2","run_type":"iteration","repetition_index":2,"real_time":0.1,"time_unit":"s","decode_tokens_per_s":80.8081}
]}"#;
/// A file that holds only a mean.
const MEAN: &str = r#"{"benchmarks":[{"name":"a_mean","run_name":"a","run_type":"aggregate","aggregate_name":"mean",
"real_time":1}]}"#;

/// A folder with a run of this engine and results of another one.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let metrics = json!({"decode_tokens_per_s": {"unit": "tokens/s", "direction": "higher", "samples": [90.0, 91.0, 89.0]}});
        let params = json!({"threads": 2, "prompt_tokens": 64, "new_tokens": 9, "format": "w4"});
        let row = json!({"case": "decode/t2", "checked": true, "params": params, "metrics": metrics});
        let run = json!({"schema": "redline.bench.run/1", "engine": {"name": "redline"}, "lane": "generate", "rows": [row]});
        folder.file("run.json", run.to_string());
        folder.file("peer.json", TESTS);
        folder
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        fs::write(self.0.path().join(name), text).unwrap();
        self.path(name)
    }
}

const FORMATS: [&str; 3] = ["gbench-json", "gbench-csv", "bmf"];

#[test]
fn another_engine_stands_in_the_same_table() {
    let folder = Folder::new();
    let (peer, ours) = (folder.path("peer"), folder.path("run.json"));
    let run = redline(&["import", &folder.path("peer.json"), "-o", &peer, "--trust"]).ok();
    assert_eq!(run.out, format!("{peer}\n"));
    assert!(run.err.contains("1 case of peer b6123, lane generate"), "{}", run.err);
    let flags = ["--allow-different-machine"];
    let compared = redline(&[&["compare", &peer, &ours][..], &flags].concat());
    assert!(
        compared.out.contains("✓ faster") && compared.out.contains("peer b6123"),
        "{}{}",
        compared.out,
        compared.err
    );
    assert_eq!(redline(&["compare", &peer, &ours]).code, 4, "machines that nobody knows are not the same");
    redline(&["import", &folder.path("peer.json"), "-o", &peer]).usage(&["there is a run already", &peer]);
    let unchecked = folder.path("unchecked");
    let run = redline(&["import", &folder.path("peer.json"), "-o", &unchecked, "--engine", "fork"]).ok();
    assert!(run.err.contains("--trust") && run.err.contains("of fork b6123"), "{}", run.err);
    assert_eq!(redline(&[&["compare", &unchecked, &ours][..], &flags].concat()).code, 5);
}

#[test]
fn every_format_is_written_and_those_that_are_read_come_back() {
    let folder = Folder::new();
    let ours = folder.path("run.json");
    let help = redline(&["export", "--help"]).ok().out;
    for format in FORMATS {
        assert!(help.contains(format), "{help}");
        let run = redline(&["export", &ours, "--to", format]);
        let text = run.ok().out;
        let file = folder.path(&format!("file.{format}"));
        let written = redline(&["export", &ours, "--to", format, "-o", &file]).ok();
        assert_eq!((written.out.as_str(), fs::read_to_string(&file).unwrap()), ("", text), "{format}");
        let back = folder.path(&format!("back.{format}"));
        let imported = redline(&["import", &file, "-o", &back]);
        if format == "bmf" {
            imported.usage(&["none of the formats"]);
            redline(&["import", &file, "-o", &back, "--from", format]).usage(&["is written, not read"]);
            continue;
        }
        imported.ok();
        let run: Value =
            serde_json::from_str(&fs::read_to_string(format!("{back}/run.json")).unwrap()).unwrap();
        let samples = &run["rows"][0]["metrics"]["decode_tokens_per_s"]["samples"];
        assert_eq!((samples, &run["rows"][0]["case"]), (&json!([90.0, 91.0, 89.0]), &"decode/t2".into()));
    }
    redline(&["export", &ours, "--to", "xml"]).usage(&["no such format"]);
    redline(&["export", &ours, "--to", "bmf", "-o", "/nonexistent/file"]).failed(&["/nonexistent/file"]);
    redline(&["export", "/nonexistent/run", "--to", "bmf"]).usage(&["/nonexistent/run"]);
}

#[test]
fn a_mean_is_no_sample() {
    let folder = Folder::new();
    let file = folder.file("mean.json", MEAN);
    let imported = redline(&["import", &file, "-o", &folder.path("mean")]).ok();
    assert!(imported.err.contains("1 of 1 have no samples, only a mean"), "{}", imported.err);
}

#[test]
fn what_must_not_be_believed_is_exported_only_when_asked_for() {
    let folder = Folder::new();
    let text =
        fs::read_to_string(folder.path("run.json")).unwrap().replace("\"checked\":true", "\"checked\":false");
    let run = folder.file("unchecked.json", text);
    redline(&["export", &run, "--to", "bmf"]).usage(&["none of 1 rows", "not checked", "--invalid"]);
    assert!(redline(&["export", &run, "--to", "bmf", "--invalid"]).ok().out.contains("decode_tokens_per_s"));
}

#[test]
fn what_a_format_cannot_express_is_noted() {
    let folder = Folder::new();
    let ours = folder.path("run.json");
    let mut run: Value = serde_json::from_str(&fs::read_to_string(&ours).unwrap()).unwrap();
    let mut memory = run["rows"][0].clone();
    memory["case"] = "memory/b1".into();
    memory["metrics"] = json!({"peak": {"unit": "bytes", "direction": "lower", "samples": [5.0]}});
    run["rows"].as_array_mut().unwrap().push(memory);
    let both = folder.file("both.json", run.to_string());
    let exported = redline(&["export", &both, "--to", "gbench-json"]).ok();
    let note = "note: `memory/b1` is left out: it has neither times nor rates\n";
    assert!(exported.err.contains(note), "{}", exported.err);
    assert_eq!(exported.out, redline(&["export", &ours, "--to", "gbench-json"]).ok().out);
}

#[test]
fn files_that_are_none_are_refused() {
    let folder = Folder::new();
    let out = folder.path("out");
    let cases: [(&str, &[u8], &str); 6] = [
        ("empty", b"", "empty"),
        ("binary", b"\x80\xff\x00", "not UTF-8"),
        ("text", b"hello", "none of the formats"),
        ("cut", &TESTS.as_bytes()[..300], "EOF"),
        ("nan", TESTS.replace("79.2079", "NaN").leak().as_bytes(), "line 3"),
        (
            "negative",
            TESTS.replace("79.2079", "-1").leak().as_bytes(),
            "entry 2: `decode_tokens_per_s` is -1",
        ),
    ];
    for (name, text, expect) in cases {
        let file = folder.file(name, text);
        redline(&["import", &file, "-o", &out]).usage(&[expect, &file]);
    }
    redline(&["import", "/nonexistent/file", "-o", &out]).usage(&["/nonexistent/file"]);
    redline(&["import", &folder.path("run.json"), "-o", &out, "--from", "gbench-json"])
        .usage(&["no list `benchmarks`"]);
    assert!(!fs::exists(&out).unwrap(), "nothing is left of what was refused");
}
