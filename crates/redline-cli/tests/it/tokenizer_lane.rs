//! Lane `tokenizer`: its arms, its gate with its sources, and its files.

use std::fs;

use serde_json::Value;

use crate::harness::{Run, command, finish, redline};

const QUICK: &[&str] = &["bench", "tokenizer", "--texts", "4", "--num-runs", "2", "--threads", "1,2"];

/// An impossible speedup, so that the verdict does not depend on timing.
const MISSED: &str = "1e12";

fn bench(arguments: &[&str]) -> Run {
    redline(&[QUICK, &["--model", "demo"], arguments].concat())
}

#[track_caller]
fn rows(run: &Run) -> Vec<Value> {
    let document: Value =
        serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {}", run.err));
    document["rows"].as_array().unwrap().clone()
}

#[test]
fn what_the_gate_asks_decides_the_exit_code() {
    let passed = bench(&["--min-speedup", "1e-12", "--json"]).ok();
    let missed = bench(&["--min-speedup", MISSED, "--json"]);
    assert_eq!(missed.code, 1, "{}", missed.err);
    for run in [&passed, &missed] {
        let rows = rows(run);
        assert_eq!(rows.len(), 3 * 3 * 2);
        for row in &rows {
            let gated = row["params"]["encoder"] == "native";
            assert_eq!(row["gates"].is_array(), gated, "{row}");
            assert_eq!(
                row["digest"],
                rows.iter().find(|r| r["params"]["text"] == row["params"]["text"]).unwrap()["digest"]
            );
        }
    }
    let complaints = missed.err.lines().filter(|line| line.starts_with("missed: tokenizer/"));
    assert_eq!(complaints.count(), 3 * 2, "{}", missed.err);
    let table = bench(&["--min-speedup", MISSED]).out;
    assert!(table.starts_with("text") && table.contains("MISSED: speedup_over_library is"), "{table}");
    assert!(rows(&bench(&["--min-speedup", "0", "--json"]).ok()).iter().all(|row| row["gates"].is_null()));
}

#[test]
fn the_gate_may_come_from_the_environment() {
    let run = |value: &str, flags: &[&str]| {
        let mut command = command(&[QUICK, &["--model", "demo"], flags].concat());
        finish(command.env("REDLINE_TOKENIZER_MIN_SPEEDUP", value).output().unwrap())
    };
    assert_eq!(run(MISSED, &[]).code, 1);
    run(MISSED, &["--min-speedup", "0"]).ok();
    run("0", &[]).ok();
    run("bogus", &[]).usage(&["REDLINE_TOKENIZER_MIN_SPEEDUP", "bogus"]);
}

#[test]
fn a_cache_finds_what_begins_alike() {
    let rows = rows(&bench(&["--min-speedup", "0", "--json"]).ok());
    let cached = rows.iter().filter(|row| row["params"]["encoder"] == "native-cached");
    for row in cached {
        let sum = |name: &str| row["metrics"][name]["median"].as_f64().unwrap();
        assert!(sum("prefix_hits") + sum("prefix_misses") <= 4.0, "{row}");
        if row["params"]["text"] == "chat" {
            assert_eq!((sum("prefix_hits"), sum("prefix_misses")), (4.0, 0.0), "{row}");
            assert!(sum("prefix_reused") > 0.0);
        }
        assert_eq!(
            (&row["params"]["prefix_k"], &row["params"]["prefix_cache_entries"]),
            (&128.into(), &32.into())
        );
    }
}

#[test]
fn texts_and_figures_come_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("texts"), "One line\n\nand another.\n").unwrap();
    let with = |flags: &[&str]| bench(&[&["--input-file", &path("texts")], flags].concat());
    let run = with(&["--min-speedup", "0", "--json"]).ok();
    let digest = rows(&run)[0]["digest"].as_str().unwrap().to_owned();
    let tokens = rows(&run)[0]["metrics"]["tokens"]["median"].as_f64().unwrap() as u64;
    let figures = |seconds: &str, digest: &str| {
        let lines =
            ["1", "2"].map(|threads| format!("{threads},2,20,{tokens},{seconds},{digest},0.1\n")).concat();
        fs::write(path("p.csv"), format!("threads,texts,bytes,tokens,seconds,digest,version\n{lines}"))
            .unwrap();
        with(&["--min-speedup", "1e-12", "--python-csv", &path("p.csv"), "--json"])
    };
    let run = figures("1000", &digest).ok();
    assert_eq!(rows(&run).iter().filter(|row| row["params"]["encoder"] == "python").count(), 2);
    assert_eq!(figures("1e-30", &digest).code, 1);
    assert_eq!(figures("1", "0").code, 6);
    bench(&["--python-csv", &path("p.csv")]).usage(&["--python-csv", "--input-file"]);
    bench(&["--input-file", &path("none")]).failed(&["none`"]);
    fs::write(path("latin"), b"caf\xe9").unwrap();
    bench(&["--input-file", &path("latin")]).failed(&["byte 3 is 0xe9", "latin`"]);
}

#[test]
fn values_of_an_earlier_run_are_a_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let quick = ["--min-speedup", "0", "--output", &path("a.csv")];
    let table = bench(&quick).ok().out;
    let csv = fs::read_to_string(path("a.csv")).unwrap();
    assert!(csv.starts_with("text,encoder,threads,texts,bytes,tokens,tokens_per_s,"), "{csv}");
    let rows =
        table.lines().filter(|line| ["prose", "code ", "chat "].iter().any(|text| line.starts_with(text)));
    assert_eq!((csv.lines().count(), rows.count()), (1 + 18, 18), "{table}");
    let judged = |rate: &str, min: &str| {
        fs::write(path("base.csv"), format!("text,encoder,threads,tokens_per_s\nprose,native,1,{rate}\n"))
            .unwrap();
        bench(&["--min-speedup", min, "--baseline", &path("base.csv")]).code
    };
    assert_eq!((judged("1e-9", "0"), judged("1e15", "0"), judged("1e-9", MISSED)), (0, 1, 1));
    // With a run that has samples, the gate counts in addition to the verdicts.
    bench(&["--min-speedup", "0", "-o", &path("run")]).ok();
    let run = bench(&["--min-speedup", MISSED, "--baseline", &path("run"), "--portable", "--json"]);
    assert_eq!(run.code, 1, "{}", run.err);
}

#[test]
fn arms_are_compared_whether_or_not_they_reach_the_gate() {
    let arms = ["--versus", "--num-runs 3", "--processes", "2", "--portable", "--json"];
    let run = bench(&[&["--min-speedup", MISSED], &arms[..]].concat());
    assert_eq!(run.code, 1, "{}", run.err);
    let arms: Vec<Value> = rows(&run).iter().map(|row| row["arm"].clone()).collect();
    assert_eq!((arms.len(), &arms[0], &arms[35]), (36, &"a".into(), &"b".into()));
}

#[test]
fn a_file_that_is_not_covered_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json").display().to_string();
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo/tokenizer.json");
    let mut file: Value = serde_json::from_slice(&fs::read(demo).unwrap()).unwrap();
    file["pre_tokenizer"] = serde_json::json!({"type": "Punctuation", "behavior": "Isolated"});
    fs::write(&path, file.to_string()).unwrap();
    redline(&[QUICK, &["--tokenizer", &path]].concat()).usage(&[
        "does not cover",
        "Punctuation",
        "tokenizer.json`",
    ]);
}
