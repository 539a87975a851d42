//! `bench LANE` with `-o`, `--baseline`, `--versus` and `--versus-binary`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Run, command, finish, redline};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/llama-a");

/// Runs the lane on a tiny model.
fn bench(arguments: &[&str]) -> Run {
    let quick = ["--prompt-tokens", "5", "--new-tokens", "3", "--num-runs", "2", "--threads", "1"];
    redline(&[&["bench", "generate", "--model", GOLDEN], &quick[..], arguments].concat())
}

/// Runs the lane and judges only what does not depend on the speed of the machine.
#[track_caller]
fn measured(arguments: &[&str]) -> Run {
    bench(&[arguments, &["--portable"]].concat()).ok()
}

fn document(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_directory_holds_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let dir = dir.to_str().unwrap();
    let table = measured(&["-o", dir]);
    assert!(table.out.starts_with("case"), "{}", table.out);
    let run = document(&folder.path().join("run/run.json"));
    assert_eq!((&run["schema"], &run["lane"]), (&"redline.bench.run/1".into(), &"generate".into()));
    assert_eq!(
        (&run["engine"]["name"], &run["engine"]["version"]),
        (&"redline".into(), &env!("CARGO_PKG_VERSION").into())
    );
    assert!(run["machine"]["identity"].is_object() && run["started_at"].as_str().unwrap().ends_with('Z'));
    assert!(run["command"].as_array().unwrap().contains(&"--new-tokens".into()));
    let cases: Vec<&str> =
        run["rows"].as_array().unwrap().iter().map(|r| r["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["prefill/t1", "decode/t1", "decode-recompute/t1"]);
    for row in run["rows"].as_array().unwrap() {
        assert_eq!(row["digest"], run["rows"][0]["digest"], "all three gave the same ids");
        assert!(row["digest"].as_str().is_some_and(|d| d.len() == 16));
    }
    for (name, start) in [("results.csv", "schema,run_id,"), ("samples.csv", "schema,run_id,")] {
        let text = fs::read_to_string(folder.path().join("run").join(name)).unwrap();
        assert!(text.starts_with(start) && text.lines().count() > 10, "{text}");
    }
    // An existing run is not overwritten. The check happens before anything is measured.
    let again = bench(&["-o", dir]);
    again.usage(&["there is a run already", dir]);
    assert_eq!(document(&folder.path().join("run/run.json")), run);
    // A run compares with itself, unless a row is invalid.
    let itself = redline(&["compare", dir, dir]);
    assert!(itself.out.contains("outputs: 3 equal, 0 different, 0 unknown"), "{}", itself.out);
    // One document holds the run with its comparison.
    let later = measured(&["--baseline", dir, "--json"]);
    let json: Value = serde_json::from_str(&later.out).unwrap();
    assert_eq!(json["comparison"]["base"]["run_id"], run["run_id"]);
    assert_eq!(json["comparison"]["outputs"]["equal"].as_array().unwrap().len(), 3);
    assert_eq!(json["comparison"]["exit_code"], later.code);
    assert_eq!(json["schema"], "redline.bench.run/1");
    let text = measured(&["--baseline", dir]).out;
    assert!(text.starts_with("case") && text.contains("result: "), "{text}");
}

#[test]
fn a_directory_that_cannot_be_made_is_refused_first() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    let below = file.join("below");
    bench(&["-o", below.to_str().unwrap()]).failed(&["file/below", "hint: "]);
}

#[test]
fn two_arms_run_in_fresh_processes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let run = measured(&[
        "--versus",
        "--threads 2 --kv-cache 'both'",
        "--processes",
        "2",
        "-o",
        dir.to_str().unwrap(),
    ]);
    let order: Vec<&str> =
        run.err.lines().filter_map(|line| line.split_once(", arm ")).map(|(_, arm)| arm).collect();
    assert_eq!(order, ["a", "b", "b", "a"], "{}", run.err);
    assert!(
        run.out.starts_with("a  ") && run.out.contains("\nb  ") && run.out.contains("2+2 processes"),
        "{}",
        run.out
    );
    let document = document(&dir.join("run.json"));
    let flags = |arm: &str| document["arms"][arm]["flags"].as_array().unwrap().clone();
    assert!(flags("a").contains(&"--threads=1".into()) && !flags("b").contains(&"--threads=1".into()));
    assert_eq!(flags("b")[flags("b").len() - 4..], ["--threads", "2", "--kv-cache", "both"].map(Value::from));
    let rows = document["rows"].as_array().unwrap();
    let arms: Vec<_> =
        rows.iter().map(|r| (r["arm"].as_str().unwrap(), r["case"].as_str().unwrap().to_owned())).collect();
    let cases = |arm, threads| {
        ["prefill", "decode", "decode-recompute"].map(|case| (arm, format!("{case}/t{threads}")))
    };
    let expected = [cases("a", 1), cases("b", 2)];
    assert_eq!(arms, expected.concat());
    assert!(run.out.contains("decode/t1 -> decode/t2"), "{}", run.out);
    for row in rows {
        assert_eq!(row["metrics"]["tokens_per_s"]["processes"].as_array().map_or(2, Vec::len), 2);
        assert_eq!(row["digest"], rows[0]["digest"], "threads do not change bits");
    }
    assert_eq!(document["comparison"]["exit_code"], run.code);
    let samples = fs::read_to_string(dir.join("samples.csv")).unwrap();
    assert!(samples.lines().any(|line| line.contains(",decode/t2,b,1,")), "{samples}");
}

#[test]
fn two_formats_are_two_arms() {
    let run = measured(&["--kv-cache=on", "--format=f32", "--versus-format=w8", "--processes=2", "--json"]);
    let json: Value = serde_json::from_str(&run.out).unwrap();
    let formats: Vec<_> =
        json["rows"].as_array().unwrap().iter().map(|row| (&row["arm"], &row["params"]["format"])).collect();
    let [a, b, f32, w8] = ["a", "b", "f32", "w8"].map(Value::from);
    assert_eq!(formats, [(&a, &f32), (&a, &f32), (&b, &w8), (&b, &w8)]);
}

/// Arms whose cases differ in the parameter that the arms set.
#[test]
fn without_and_with_a_cache_are_compared() {
    let off_on =
        ["--kv-cache=off", "--versus", "--kv-cache on", "--processes=2", "--threshold=100", "--json"];
    let run = bench(&off_on);
    let json: Value = serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {}", run.err));
    // Any verdict is right; the exit code is that of the worst.
    assert_eq!(json["comparison"]["exit_code"], run.code);
    let lines = json["comparison"]["lines"].as_array().unwrap();
    let rate = |line: &&Value| {
        line["case"] == "decode-recompute/t1 -> decode/t1" && line["metric"] == "tokens_per_s"
    };
    let rate = lines.iter().find(rate).unwrap_or_else(|| panic!("{lines:?}"));
    assert!(rate["ratio"].is_number() && rate["verdict"].is_string(), "{rate}");
    let alone = |line: &&Value| ["missing", "new"].iter().any(|word| line["verdict"] == *word);
    assert!(!lines.iter().any(|line| alone(&line)), "{lines:?}");
}

#[test]
fn an_arm_against_itself_has_equal_outputs() {
    let run = measured(&["--versus", "", "--processes", "2", "--json"]);
    let json: Value = serde_json::from_str(&run.out).unwrap();
    let outputs = &json["comparison"]["outputs"];
    assert_eq!(outputs["equal"].as_array().unwrap().len(), 3, "{outputs}");
    assert!(json["comparison"]["lines"].as_array().unwrap().iter().all(|line| line["basis"] != "samples"));
}

#[test]
fn flags_of_arms_are_refused_before_anything_runs() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--versus", "--no-such-flag 1"], &["--no-such-flag", "`redline bench generate --help` lists"]),
        (&["--versus", "--num-rnus 1"], &["did you mean `--num-runs`? `redline bench generate --help`"]),
        (&["--versus", "--format f8"], &["f8"]),
        (&["--versus", "--kv-cache maybe"], &["`--kv-cache` is `maybe`", "on, off, both"]),
        (&["--versus-format", "f8"], &["f8"]),
        (&["--versus-format", "w8", "--baseline", "x"], &["--baseline", "cannot be used with"]),
        (&["--versus", "word"], &["word"]),
        (&["--versus", "'open"], &["a quote that does not end", "in `--versus`"]),
        (&["--versus", "--json"], &["`--json` says what becomes of both arms"]),
        (&["--versus", "-o /tmp/x"], &["`-o`", "both arms"]),
        (&["--versus", "--processes=2"], &["both arms"]),
        (&["--versus", "--help"], &["both arms"]),
        (&["--versus", "", "--processes", "3"], &["`--processes` is 3", "an even number from 2"]),
        (&["--versus", "", "--threshold", "0"], &["--threshold", "percent above 0"]),
        (&["--versus", "", "--output", "x.csv"], &["--output", "cannot be used with"]),
        (&["--versus", "--help-all"], &["both arms"]),
        (&["--versus", "", "--baseline", "x"], &["--baseline", "cannot be used with"]),
        (&["--processes", "0"], &["--processes", "no process"]),
        (&["--threshold", "5"], &["for a comparison, but there is none"]),
        (&["--allow-different-machine"], &["for a comparison, but there is none"]),
        (&["--allow-different-param", "format"], &["for a comparison, but there is none"]),
    ];
    for (arguments, expect) in cases {
        let run = bench(arguments);
        run.usage(expect);
        assert!(!run.err.contains("process 1"), "{}", run.err);
    }
}

/// A program that answers `--version` and `bench ..` with fixed text.
#[cfg(unix)]
fn program(folder: &Path, name: &str, bench: &str) -> String {
    let version = "if [ \"$1\" = --version ]; then echo 'redline 9.9'; exit; fi";
    script(folder, name, &format!("{version}\n{bench}"))
}

/// A shell script. Another process writes it, so that this process holds no open handle when it is started.
#[cfg(unix)]
fn script(folder: &Path, name: &str, commands: &str) -> String {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let path = folder.join(name);
    let mut shell = Command::new("/bin/sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let text = format!("#!/bin/sh\n{commands}\n");
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
    path.to_str().unwrap().to_owned()
}

#[cfg(unix)]
#[test]
fn another_binary_is_an_arm() {
    let folder = tempfile::tempdir().unwrap();
    let mut printed: Value = serde_json::from_str(&measured(&["--json"]).out).unwrap();
    for row in printed["rows"].as_array_mut().unwrap() {
        row["digest"] = "0123456789abcdef".into();
        for (name, metric) in row["metrics"].as_object_mut().unwrap().iter_mut() {
            // The machine is the same.
            if name == "limit" {
                continue;
            }
            // So much better, in the metric's own direction, that no load of the machine can hide it.
            let factor = if metric["direction"] == "lower" { 1e-9 } else { 1e9 };
            let samples = metric["samples"].as_array().unwrap();
            metric["samples"] = samples.iter().map(|s| s.as_f64().unwrap() * factor).collect();
            metric["processes"] = Value::Null;
        }
    }
    printed["machine"] = "another version's".into();
    fs::write(folder.path().join("printed"), printed.to_string()).unwrap();
    // A process with invalid rows leaves its document too.
    let other = program(folder.path(), "other", "cat \"${0%/*}/printed\"; exit 5");
    let run = bench(&["--versus-binary", &other, "--processes", "2", "--portable", "--json"]);
    assert_eq!(run.code, 6, "{}", run.err);
    let json: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(json["arms"]["b"]["engine"]["version"], "9.9");
    assert_eq!(json["comparison"]["new"]["engine"], "redline 9.9");
    assert_eq!(json["comparison"]["outputs"]["different"].as_array().unwrap().len(), 3);
    let lines = json["comparison"]["lines"].as_array().unwrap();
    let judged = lines.iter().filter(|line| line["direction"].as_str().is_some_and(|way| way != "info"));
    let ratios: Vec<Option<f64>> = judged.map(|line| line["ratio"].as_f64()).collect();
    assert!(ratios.len() >= 3 && ratios.iter().all(|&ratio| ratio > Some(10.0)), "{lines:?}");
}

#[cfg(unix)]
#[test]
fn an_arm_that_fails_is_told_with_its_complaint() {
    let folder = tempfile::tempdir().unwrap();
    let against = |name: &str, script: &str| {
        bench(&["--versus-binary", &program(folder.path(), name, script), "--processes", "2"])
    };
    against("broken", "echo 'out of luck' >&2; exit 7").failed(&["exit status: 7", "arm b", "| out of luck"]);
    against("silent", "echo 'no memory' >&2; exit 1").failed(&["exit status: 1", "arm b", "| no memory"]);
    against("killed", "kill -9 $$").failed(&["signal: 9", "arm b"]);
    against("garbage", "echo no document").failed(&["its document cannot be read", "arm b"]);
    against("strict", "echo 'error: no such flag' >&2; exit 2")
        .usage(&["the process refused its flags", "no such flag"]);
    let wrong = against("wrong", "echo 'ids differ' >&2; exit 6");
    assert_eq!(wrong.code, 6);
    assert!(wrong.err.contains("outputs are wrong") && wrong.err.contains("ids differ"), "{}", wrong.err);
    let row = r#"{"case":"a","checked":true,"digest":"'$$'","metrics":{}}"#;
    let unstable = against("unstable", &format!("echo '{{\"rows\":[{row}]}}'"));
    assert_eq!(unstable.code, 6);
    assert!(
        unstable.err.contains("outputs of `a` differ between processes with equal flags"),
        "{}",
        unstable.err
    );
    bench(&["--versus-binary", "/nonexistent/redline"]).failed(&["/nonexistent/redline", "built elsewhere"]);
    bench(&["--versus-binary", "/bin/false"]).failed(&["/bin/false", "no version"]);
    for (name, commands, expect) in [
        ("unsure", "echo redline 9.9; exit 3", "exit status: 3 and no version"),
        ("chatty", "echo redline 9.9; echo built today", "exit status: 0 and no version"),
    ] {
        let other = script(folder.path(), name, commands);
        bench(&["--versus-binary", &other]).failed(&[&other, expect]);
    }
    // Without a number of processes there are four for each arm.
    let other = program(folder.path(), "early", "exit 7");
    bench(&["--versus-binary", &other]).failed(&["exit status: 7", "in process 2 of 8, arm b"]);
}

#[cfg(unix)]
#[test]
fn a_comparison_that_ends_early_keeps_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let to = ["--processes", "2", "-o", dir.to_str().unwrap()];
    let broken = program(folder.path(), "broken", "exit 7");
    bench(&[&to[..], &["--versus-binary", broken.as_str()]].concat()).failed(&["exit status: 7", "arm b"]);
    let run = document(&dir.join("run.json"));
    let rows = run["rows"].as_array().unwrap();
    assert_eq!((&run["finished"], rows.len()), (&false.into(), 3));
    assert!(rows.iter().all(|row| row["arm"] == "a"), "{run}");
    // Of a comparison whose first process fails, nothing is left.
    fs::remove_dir_all(&dir).unwrap();
    bench(&[&to[..], &["--versus", "", "--kv-cache", "off", "--batch", "2"]].concat()).usage(&["arm a"]);
    assert!(!dir.exists());
}

#[test]
fn further_processes_write_no_traces() {
    let folder = tempfile::tempdir().unwrap();
    let [precision, profile] = ["precision", "profile"].map(|name| folder.path().join(name));
    let quick = ["--prompt-tokens", "5", "--new-tokens", "3", "--num-runs", "2", "--threads", "1"];
    let mut alone = command(
        &[&["bench", "generate", "--model", GOLDEN, "--portable", "--processes=1"], &quick[..]].concat(),
    );
    alone.env("REDLINE_PRECISION_TRACE", &precision).env("REDLINE_PROFILE_TRACE", &profile);
    finish(alone.output().unwrap()).ok();
    assert!(!precision.exists() && !profile.exists());
}
