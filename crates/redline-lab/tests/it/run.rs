//! Runs on disk: writing, reading back, and rejected input.

use std::fs;
use std::time::{Duration, SystemTime};

use crate::small_machine;
use redline_lab::result::LaneResult;
use redline_lab::run::{Build, RunDirectory, RunError, Start};
use redline_lab::{Direction, Row, Run, Samples, lanes};
use serde_json::Value;

fn samples(processes: &[Vec<f64>]) -> Samples {
    Samples::by_process("tokens/s", Direction::Higher, processes).unwrap()
}

fn row() -> Row {
    let limit = Samples::new("GB/s", Direction::Info, vec![20.0, 22.0]).unwrap();
    let row = Row::new("decode, \"x\"/t1")
        .param("model", "demo")
        .param("threads", 1)
        .param("new_tokens", 3)
        .metric("rate", samples(&[vec![10.0, 11.0], vec![12.0]]))
        .metric("limit", limit)
        .limit("read_bandwidth", Some(0.5))
        .digest("00ff");
    Row { checked: true, ..row }
}

fn run() -> Run {
    let start = Start {
        at: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_226_461)),
        command: vec!["redline".into(), "bench".into()],
        environment: [("REDLINE_THREADS".to_owned(), "1".to_owned())].into(),
    };
    let build = Build {
        name: "redline".into(),
        version: Some("0.1.0".into()),
        dirty: Some(true),
        ..Build::default()
    };
    let result = LaneResult { lane: "generate".into(), machine: small_machine(), rows: vec![row()] };
    Run::new(build, start, result).unwrap()
}

#[test]
fn the_document_is_fixed() {
    let json: Value = serde_json::from_str(&run().json().unwrap()).unwrap();
    let mut names: Vec<&String> = json.as_object().unwrap().keys().collect();
    names.sort_unstable();
    let mut expected = [
        "schema",
        "run_id",
        "started_at",
        "command",
        "engine",
        "machine",
        "environment",
        "lane",
        "rows",
        "limits",
        "finished",
        "summary",
    ];
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert_eq!(json["schema"], "redline.bench.run/1");
    assert_eq!(json["started_at"], "2026-11-21T02:01:01Z");
    assert!(json["run_id"].as_str().unwrap().starts_with("20261121T020101Z-"), "{}", json["run_id"]);
    let engine =
        r#"{"dirty":true,"git":null,"name":"redline","profile":null,"rustc":null,"version":"0.1.0"}"#;
    assert_eq!(json["engine"], serde_json::from_str::<Value>(engine).unwrap());
    assert_eq!(json["machine"]["fingerprint"], small_machine().fingerprint().unwrap());
    assert_eq!(json["machine"]["identity"]["kernel"], "6.18.44");
    assert_eq!(json["environment"]["REDLINE_THREADS"], "1");
    let limits = r#"{"read_bandwidth":{"high":22.0,"low":20.0,"unit":"GB/s"}}"#;
    assert_eq!(json["limits"], serde_json::from_str::<Value>(limits).unwrap());
    assert_eq!(json["rows"][0]["metrics"]["rate"]["processes"].to_string(), "[[10.0,11.0],[12.0]]");
}

#[test]
fn a_directory_reads_back_and_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("made/here");
    let run = run();
    run.write(&dir).unwrap();
    assert_eq!(Run::read(&dir).unwrap(), run);
    assert_eq!(Run::read(&dir.join("run.json")).unwrap(), run);
    let before = fs::read(dir.join("run.json")).unwrap();
    assert!(matches!(run.write(&dir), Err(RunError::Occupied)));
    assert!(matches!(RunDirectory::claim(&dir, &run), Err(RunError::Occupied)));
    assert_eq!(fs::read(dir.join("run.json")).unwrap(), before);
    let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["results.csv", "run.json", "samples.csv"]);
}

#[test]
fn tables_have_a_cell_per_column() {
    let run = run();
    let results = run.results_csv();
    let lines: Vec<&str> = results.lines().collect();
    let columns: Vec<&str> = lines[0].split(',').collect();
    assert_eq!(lines.len(), 3);
    // The case contains a comma and quotes, and the parameters are JSON; the cells in between are plain.
    let start = format!("redline.bench.run/1,{},2026-11-21T02:01:01Z,", run.run_id.as_ref().unwrap());
    assert!(lines[1].starts_with(&start), "{}", lines[1]);
    let rest = lines[1].split_once("\"decode, \"\"x\"\"/t1\",").unwrap().1.split_once(",\"{").unwrap().0;
    let cells: Vec<&str> = rest.split(',').collect();
    let first = columns.iter().position(|c| *c == "arm").unwrap();
    assert_eq!(cells.len(), columns.len() - first - 1);
    let samples = run.samples_csv();
    let last: Vec<&str> = samples.lines().nth(3).unwrap().rsplit(',').collect();
    let nothing = [""; 8];
    assert_eq!(last[..1], ["00ff"]);
    assert_eq!(last[1..9], nothing);
    assert_eq!(last[9..17], ["tokens/s", "12", "rate", "", "", "0", "1", ""]);
    assert_eq!(samples.lines().count(), 1 + 3 + 2);
    assert!(
        samples
            .lines()
            .all(|line| line.rsplit(',').count() >= samples.lines().next().unwrap().split(',').count())
    );
}

#[test]
fn a_directory_is_one_runs_from_its_first_case_on() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("made");
    let run = run();
    let so_far = Run { finished: false, rows: Vec::new(), ..run.clone() };
    let place = RunDirectory::claim(&dir, &so_far).unwrap();
    assert!(matches!(RunDirectory::claim(&dir, &so_far), Err(RunError::Occupied)));
    assert!(!Run::read(&dir).unwrap().finished);
    place.write(&Run { finished: false, ..run.clone() }).unwrap();
    let read = Run::read(&dir).unwrap();
    assert!(!read.finished && read.rows == run.rows, "what was done is there");
    place.write(&run).unwrap();
    assert!(Run::read(&dir).unwrap().finished);
    place.leave();
    assert!(Run::read(&dir).is_err());
    let empty = folder.path().join("nothing");
    RunDirectory::claim(&empty, &so_far).unwrap().leave();
    assert!(!empty.exists(), "a run that measured nothing leaves nothing");
}

#[test]
fn a_baseline_says_who_and_why() {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_226_461);
    let accepted = run().accepted("new kernels", at, Some("before".into()));
    let back = Run::parse(&accepted.json().unwrap()).unwrap();
    let meta = back.meta.clone().unwrap();
    assert_eq!((meta.reason.as_str(), meta.supersedes.as_deref()), ("new kernels", Some("before")));
    assert_eq!((meta.accepted_at.as_deref(), meta.cores), (Some("2026-11-21T02:01:01Z"), Some(2)));
    assert_eq!(meta.host_fp.as_deref(), small_machine().fingerprint().as_deref());
    assert_eq!(meta.hardware, Some(small_machine().one_line()));
    // The commit is the build's; a comparison with the earlier base does not belong to a baseline.
    let compared = Run {
        engine: Build { git: Some("0123".into()), ..run().engine },
        comparison: Value::Bool(true),
        ..run()
    };
    let accepted_commit = compared.accepted("why", at, None);
    assert_eq!(accepted_commit.meta.unwrap().git_sha.as_deref(), Some("0123"));
    assert_eq!(accepted_commit.comparison, Value::Null);
    assert_eq!((back.rows, back.summary.valid), (run().rows, true));
    let summary: Value = serde_json::from_str(&accepted.summary_json().unwrap()).unwrap();
    assert_eq!(summary["_meta"]["reason"], "new kernels");
    assert_eq!(summary["rows"][0]["metrics"]["rate"]["value"], 11.25);
    assert!(summary["rows"][0]["metrics"]["rate"].get("samples").is_none());
}

#[test]
fn few_fields_are_needed_and_unknown_ones_ignored() {
    let text = r#"{"schema":"redline.bench.run/1","engine":{"name":"other","build":7},"lane":"generate","later":[],
        "machine":{"cpu":"text"},"rows":[{"case":"a","metrics":{"m":{"unit":"s","direction":"lower","samples":[1,2]}}}]}"#;
    let run = Run::parse(text).unwrap();
    assert_eq!((run.engine.one_line().as_str(), run.machine.fingerprint()), ("other", None));
    for field in [
        "\"schema\":\"redline.bench.run/1\",",
        "\"name\":\"other\",",
        "\"lane\":\"generate\",",
        "\"case\":\"a\",",
    ] {
        let without = text.replacen(field, "", 1);
        assert_ne!(without, text);
        assert!(Run::parse(&without).is_err(), "without {field}");
    }
}

#[test]
fn what_is_no_run_is_refused_by_name() {
    let good = serde_json::to_string(&run()).unwrap();
    let refused = |text: &str, expect: &str| {
        let error = Run::parse(text).unwrap_err();
        assert!(error.to_string().contains(expect), "{error} in {text:.80}");
        assert!(!error.hint().is_empty());
    };
    refused("", "EOF");
    refused(&good[..good.len() / 2], "EOF");
    refused("[]", "invalid");
    refused("{}", "no field `schema`");
    refused(r#"{"schema":"redline.bench.run/9"}"#, "`schema` is \"redline.bench.run/9\"");
    refused(r#"{"schema":1}"#, "`schema` is 1");
    refused(&good.replacen("[10.0", "[NaN", 1), "expected value at line");
    refused(&good.replacen("[10.0", "[null", 1), "null");
    refused(&good.replacen("[10.0", "[1e999", 1), "number out of range");
    refused(&good.replacen("\"higher\"", "\"up\"", 1), "unknown variant `up`");
    refused(&good.replacen("\"rows\":[", "\"rows\":3,\"x\":[", 1), "invalid type");
    refused(&"[".repeat(100_000), "recursion");
    let missing = Run::read(std::path::Path::new("/nonexistent/run.json")).unwrap_err();
    assert!(matches!(missing.1, RunError::Read(_)));
}

#[test]
fn builds_in_one_line() {
    let build = Build { git: Some("0123456789abcdef".into()), ..run().engine };
    assert_eq!(build.one_line(), "redline 0.1.0 (0123456789ab, dirty)");
    assert_eq!(Build { dirty: Some(false), ..build }.one_line(), "redline 0.1.0 (0123456789ab)");
}

#[test]
fn lanes_of_values_may_lose_a_tenth() {
    let rules: Vec<_> =
        lanes::ALL.iter().filter_map(|lane| Some((lane.name, lane.baseline?.most_drop))).collect();
    let lanes = ["score", "gemm", "attn-decode", "attn-prefill", "sched-zipf", "tokenizer"];
    assert_eq!(rules, lanes.map(|lane| (lane, 0.10)), "the percent rule of the seeds");
}

#[test]
fn the_range_of_a_limit_is_over_all_rows() {
    let read = |case: &str, limit: &str, readings: &[f64]| {
        let readings = Samples::new("GB/s", Direction::Info, readings.to_vec()).unwrap();
        Row::new(case).metric("limit", readings).limit(limit, None)
    };
    let rows = vec![
        read("a", "read_bandwidth", &[20.0, 22.0]),
        read("b", "read_bandwidth", &[25.0, 18.0]),
        read("c", "read_bandwidth", &[21.0]),
        read("d", "f32_peak", &[3.0, 4.0]),
        Row::new("e"),
    ];
    let result = LaneResult { lane: "generate".into(), machine: small_machine(), rows };
    let run = Run::new(Build::default(), Start::default(), result).unwrap();
    let range = |low: f64, high: f64| serde_json::json!({"unit": "GB/s", "low": low, "high": high});
    let expected = serde_json::json!({"read_bandwidth": range(18.0, 25.0), "f32_peak": range(3.0, 4.0)});
    assert_eq!(run.limits, expected);
}

#[test]
fn runs_of_the_same_second_have_names_of_their_own() {
    let named = |nanoseconds| {
        let at = SystemTime::UNIX_EPOCH + Duration::new(1_795_226_461, nanoseconds);
        let result = LaneResult { lane: "generate".into(), machine: small_machine(), rows: vec![row()] };
        let start = Start { at: Some(at), ..Start::default() };
        Run::new(Build::default(), start, result).unwrap()
    };
    let (one, other) = (named(1), named(2));
    assert_eq!((&one.started_at, &one.run_id), (&other.started_at, &named(1).run_id));
    assert_ne!(one.run_id, other.run_id);
    let id = one.run_id.unwrap();
    assert!(id.starts_with("20261121T020101Z-") && id.len() == 25, "{id}");
}

#[test]
fn a_summary_tells_what_ran_and_what_it_missed() {
    let row = Row { kernel_path: Some("avx512".into()), ..row() };
    let run = Run { rows: vec![row.at_most("rate", 10.0)], ..run() };
    let summary: Value = serde_json::from_str(&run.summary_json().unwrap()).unwrap();
    let machine = small_machine();
    let head = serde_json::json!({
        "schema": "redline.bench.summary/1",
        "lane": "generate",
        "run_id": run.run_id,
        "started_at": "2026-11-21T02:01:01Z",
        "engine": "redline 0.1.0",
        "machine": machine.one_line(),
        "host_fp": machine.fingerprint(),
        "summary": {"valid": true, "invalid": []},
        "rows": [{
            "case": "decode, \"x\"/t1",
            "params": {"model": "demo", "threads": 1, "new_tokens": 3},
            "metrics": summary["rows"][0]["metrics"],
            "limit": "read_bandwidth",
            "share_of_limit": 0.5,
            "kernel_path": "avx512",
            "digest": "00ff",
            "missed": ["rate is 11.25, but at most 10.00 is required"],
        }],
    });
    assert_eq!(summary, head);
    let limit = serde_json::json!({"unit": "GB/s", "value": 21.0, "low": null, "high": null, "n": 2});
    assert_eq!(summary["rows"][0]["metrics"]["limit"], limit);
}
