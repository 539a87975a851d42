//! Runs that are written case by case, baselines, and `bench all`.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use redline_lab::lanes::{self, Lane};
use redline_lab::run::Run;
use redline_system::Machine;
use serde_json::Value;

use crate::harness::{self, command, measured, redline};

const GEMM: &[&str] =
    &["bench", "gemm", "--profile", "smoke", "--threads", "1", "--formats", "f32,w8", "--m", "1,3"];
const SCORE: &[&str] = &["bench", "score", "--profile", "smoke", "--threads", "1"];

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Edits a document in place.
fn change(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut document: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    change(&mut document);
    fs::write(path, document.to_string()).unwrap();
}

#[test]
fn the_seeds_layouts_are_theirs_to_the_column() {
    const SCORE_SEED: &str = "batch_size,num_labels,num_runs,total_items,throughput_items_per_sec,latency_p50_ms,latency_p95_ms,\
                              latency_p99_ms,latency_mean_ms,latency_std_ms";
    const BENCHMARK: &str = "name,iterations,real_time,cpu_time,time_unit,bytes_per_second,items_per_second,label,\
                             error_occurred,error_message";
    for (lane, style, header) in
        [("score", "score", SCORE_SEED), ("gemm", "gemm", BENCHMARK), ("tokenizer", "tokenizer", BENCHMARK)]
    {
        let words =
            ["bench", lane, "--profile", "smoke", "--threads", "1", "--output", "-", "--csv-style", style];
        let csv = measured(&words, &[]).out;
        let mut lines = csv.lines();
        assert_eq!(lines.next(), Some(header), "{lane}");
        let numbers: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
        assert!(!numbers.is_empty() && numbers.iter().all(|n| n.len() == 10), "{csv}");
        let number = |cell: &str| cell.parse::<f64>().unwrap_or_else(|_| panic!("{cell} in {csv}"));
        for cells in &numbers {
            let at: &[usize] = if style == "score" { &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9] } else { &[1, 2, 3, 6] };
            assert!(at.iter().all(|&i| number(cells[i]) >= 0.0), "{csv}");
            if style == "score" {
                assert!((number(cells[0]) * number(cells[2]) - number(cells[3])).abs() < 1e-9, "{csv}");
                assert!(
                    number(cells[5]) <= number(cells[6]) && number(cells[6]) <= number(cells[7]),
                    "{csv}"
                );
            }
        }
    }
    let known: Vec<&str> = lanes::ALL.iter().flat_map(|lane| lane.styles).map(|(name, _)| *name).collect();
    assert_eq!(
        known,
        ["score", "gemm", "gemm-lora", "attn-decode", "attn-prefill", "sched-zipf", "tokenizer"]
    );
}

#[test]
fn values_have_a_summary_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gemm_base.csv");
    measured(GEMM, &["--output", text(&path)]);
    let summary = fs::read_to_string(folder.path().join("gemm_base_summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!((&summary["lane"], summary["rows"].as_array().unwrap().len()), (&"gemm".into(), 4));
    assert!(summary["rows"][0]["metrics"]["tokens_per_s"]["value"].as_f64() > Some(0.0), "{summary}");
    let nowhere = folder.path().join("nowhere/x.csv");
    redline(&[GEMM, &["--output", text(&nowhere)]].concat())
        .usage(&["its directory is not there", text(&nowhere)]);
    let nowhere = folder.path().join("nowhere/base.json");
    let accept = ["--baseline", text(&nowhere), "--update-baseline", "--reason", "why"];
    redline(&[GEMM, &accept].concat()).usage(&["its directory is not there", text(&nowhere)]);
    let full = redline(&[GEMM, &["--output", "/dev/full"]].concat());
    assert!(full.code == 1 && full.err.contains("No space left"), "{} {}", full.code, full.err);
    assert!(full.out.contains("gemm/w8/m3"), "what was measured is shown: {}", full.out);
    // A closed standard output does not turn a failure into a success.
    let gate = [GEMM, &["--min-speedup", "1e9"]].concat();
    let mut child = command(&gate).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn a_run_that_is_killed_has_every_case_that_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    // More cases than can finish before the signal.
    let formats = vec!["f32"; 5000].join(",");
    let words = [&GEMM[..6], &["--m", "1,3", "--formats", formats.as_str(), "-o", text(&dir)]].concat();
    let mut child = command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let done = loop {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        match Run::read(&dir) {
            Ok(run) if run.rows.len() >= 4 => break run.rows.len(),
            // The file does not exist yet, or is only partly written.
            _ => std::thread::yield_now(),
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();
    let run = Run::read(&dir).unwrap();
    assert!(run.rows.len() >= done && !run.finished && run.lane == "gemm", "{}", run.rows.len());
    assert!(run.rows.iter().all(|row| row.checked && !row.metrics.is_empty()));
    let results = fs::read_to_string(dir.join("results.csv")).unwrap();
    assert!(results.lines().count() > done, "{results}");
    // An unfinished run can be compared, and says that it is unfinished; it cannot be overwritten.
    let compared = redline(&["compare", text(&dir), text(&dir)]);
    assert!(compared.out.contains("NOT FINISHED"), "{} {}", compared.out, compared.err);
    assert_eq!(compared.code, 5, "{}", compared.out);
    // A base without rows can have no new rows.
    change(&dir.join("run.json"), |run| run["rows"] = Value::Array(Vec::new()));
    let whole = folder.path().join("whole");
    measured(GEMM, &["-o", text(&whole)]);
    assert_eq!(redline(&["compare", text(&dir), text(&whole)]).code, 5);
    assert_eq!(redline(&["compare", "--portable", text(&dir), text(&whole)]).code, 5);
    redline(&[GEMM, &["-o", text(&dir)]].concat()).usage(&["there is a run already", text(&dir)]);
}

#[test]
fn a_run_that_measures_nothing_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let nothing = [GEMM, &["--n", "0", "-o", text(&dir)]].concat();
    redline(&nothing).usage(&["`--n` is `0`"]);
    assert!(!dir.exists());
    fs::create_dir(&dir).unwrap();
    redline(&nothing).usage(&["`--n` is `0`"]);
    assert!(dir.is_dir() && fs::read_dir(&dir).unwrap().next().is_none(), "it was there before");
    fs::write(folder.path().join("file"), "").unwrap();
    let under = folder.path().join("file/run");
    redline(&[GEMM, &["-o", text(&under)]].concat()).failed(&[text(&under)]);
}

#[test]
fn a_baseline_is_accepted_with_a_reason_and_compared_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let (run, base) = (folder.path().join("run"), folder.path().join("score.json"));
    let accept = ["--baseline", text(&base), "--update-baseline", "--reason", "the first"];
    measured(SCORE, &["-o", text(&run)]);
    let first = Run::read(&run).unwrap();
    redline(&[SCORE, &accept[..4], &[" "]].concat()).usage(&["`--reason` says nothing"]);
    if first.engine.dirty == Some(true) {
        // A build with uncommitted changes cannot become a baseline.
        redline(&[SCORE, &accept].concat()).usage(&["changes that no commit names"]);
        fs::copy(run.join("run.json"), &base).unwrap();
    } else {
        let accepted = redline(&[SCORE, &accept].concat());
        // An invalid run is rejected and leaves the file unchanged.
        if accepted.code == 5 {
            assert!(!base.exists() && accepted.err.contains("was to become"), "{}", accepted.err);
            fs::copy(run.join("run.json"), &base).unwrap();
        } else {
            let meta = Run::read(&base).unwrap().meta.unwrap();
            assert_eq!((accepted.code, meta.reason.as_str()), (0, "the first"));
            assert!(meta.hardware.is_some() && meta.accepted_at.is_some());
        }
    }
    let portable = ["--baseline", text(&base), "--portable"];
    let same = redline(&[SCORE, &portable].concat()).ok().out;
    assert!(same.contains("computed_tokens") && same.contains("exit code 0"), "{same}");
    // A portable comparison ignores another machine and much slower figures, but not other outputs and counts.
    change(&base, |run| {
        run["machine"]["fingerprint"] = "elsewhere".into();
        for sample in run["rows"][0]["metrics"]["items_per_s"]["samples"].as_array_mut().unwrap() {
            *sample = 1e12.into();
        }
        let samples = run["rows"][0]["metrics"]["items_per_s"]["samples"].clone();
        run["rows"][0]["metrics"]["items_per_s"]["processes"] = Value::Array(vec![samples]);
    });
    redline(&[SCORE, &portable].concat()).ok();
    assert_eq!(redline(&[SCORE, &portable[..2]].concat()).code, 4);
    let wrong = redline(&[
        "bench",
        "gemm",
        "--profile=smoke",
        "--baseline",
        text(&base),
        "--update-baseline",
        "--reason=x",
    ]);
    assert!(
        wrong.code == 2 && (wrong.err.contains("of lane score") || first.engine.dirty == Some(true)),
        "{}",
        wrong.err
    );
    change(&base, |run| run["rows"][0]["digest"] = "0".into());
    let other = redline(&[SCORE, &portable].concat());
    assert!(other.code == 6 && other.out.contains("--update-baseline"), "{} {}", other.code, other.out);
}

#[test]
fn counts_gate_on_any_machine() {
    let folder = tempfile::tempdir().unwrap();
    let (base, new) = (folder.path().join("base"), folder.path().join("new"));
    measured(SCORE, &["-o", text(&base)]);
    fs::create_dir(&new).unwrap();
    fs::copy(base.join("run.json"), new.join("run.json")).unwrap();
    let compare = || redline(&["compare", "--portable", text(&base), text(&new)]);
    assert_eq!(compare().code, 0);
    let count = |run: &mut Value, value: f64| {
        let metric = &mut run["rows"][1]["metrics"]["computed_tokens"];
        let n = metric["samples"].as_array().unwrap().len();
        metric["samples"] = vec![value; n].into();
        metric["processes"] = Value::Array(vec![metric["samples"].clone()]);
    };
    change(&new.join("run.json"), |run| count(run, 1e6));
    let more = compare();
    assert!(more.code == 1 && more.out.contains("a count that must agree"), "{} {}", more.code, more.out);
    change(&new.join("run.json"), |run| {
        run["rows"].as_array_mut().unwrap().truncate(1);
    });
    let fewer = compare();
    assert!(fewer.code == 1 && fewer.out.contains("missing"), "{} {}", fewer.code, fewer.out);
    // A missing digest says nothing about the outputs.
    fs::copy(base.join("run.json"), new.join("run.json")).unwrap();
    change(&new.join("run.json"), |run| run["rows"][0]["digest"] = Value::Null);
    assert_eq!(compare().code, 1);
    // A stored gate that was missed still counts.
    fs::copy(base.join("run.json"), new.join("run.json")).unwrap();
    let gate = serde_json::json!([{"metric": "items_per_s", "least": 1e15}]);
    change(&new.join("run.json"), |run| run["rows"][0]["gates"] = gate);
    let missed = compare();
    assert!(missed.code == 1 && missed.out.contains("gate missed"), "{} {}", missed.code, missed.out);
    change(&new.join("run.json"), |run| run["lane"] = "gemm".into());
    assert_eq!(compare().code, 4);
}

#[test]
fn one_arm_may_be_several_processes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    measured(GEMM, &["--processes", "3", "-o", text(&dir)]);
    let run = Run::read(&dir).unwrap();
    assert_eq!((run.rows.len(), run.finished, run.profile.as_deref()), (4, true, Some("smoke")));
    for row in &run.rows {
        let samples = row.samples_of("seconds").unwrap();
        assert_eq!((samples.processes().len(), samples.n()), (3, 6));
        assert!(row.conditions.len() == 3 && row.warmup.is_some(), "{row:?}");
    }
    let samples = fs::read_to_string(dir.join("samples.csv")).unwrap();
    assert!(samples.lines().next().unwrap().contains("tainted,taint_reasons"), "{samples:.200}");
}

/// A directory of baselines is named after the processor and the number of cores of the machine that measured them.
#[test]
fn baselines_lie_in_the_directory_of_their_machine() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../baselines");
    let mut lanes: Vec<_> = lanes::ALL.iter().map(|lane| lane.name).collect();
    for machine in fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()) {
        assert!(machine.is_dir(), "{}: baselines lie in directories of machines", machine.display());
        for file in fs::read_dir(&machine).unwrap().map(|entry| entry.unwrap().path()) {
            let document: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            let meta = &document["_meta"];
            let hardware = meta["hardware"].as_str().unwrap();
            // Such as "AMD EPYC (Zen 4), 2 cores, 32 MiB L3, 24 GiB".
            let processor = hardware.split_once('(').and_then(|(_, rest)| rest.split_once(')')).unwrap().0;
            let name = format!("{}-{}", processor.to_lowercase().replace(' ', "-"), meta["cores"]);
            assert_eq!(
                machine.file_name().unwrap().to_str(),
                Some(name.as_str()),
                "{}: {hardware}",
                file.display()
            );
            // The lane, or the lane and what is measured with it.
            let (stem, lane) =
                (file.file_stem().unwrap().to_str().unwrap(), document["lane"].as_str().unwrap());
            assert!(stem == lane || stem == format!("{lane}-sweep"), "{}: lane {lane}", file.display());
            lanes.retain(|name| *name != stem);
        }
    }
    assert!(lanes.is_empty(), "no baseline of {lanes:?}: see \"A lane\" in docs/start-here.md");
}

#[test]
fn all_lanes_run_each_into_its_own_directory() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("all");
    let words = ["bench", "all", "--profile", "smoke", "--threads", "1", "--only", "limits,gemm,memory"];
    let run = measured(&words, &["-o", text(&dir)]);
    for name in ["limits", "gemm", "memory"] {
        let found = Run::read(&dir.join(name)).unwrap();
        assert!(found.finished && !found.rows.is_empty() && found.lane == name);
        assert!(run.out.contains(&format!("\n{name}")), "{}", run.out);
    }
    redline(&[&words[..], &["-o", text(&dir)]].concat()).usage(&["there is a run already"]);
    // A missing baseline is an error.
    let none = redline(&["bench", "all", "--only", "gemm", "--portable", "--baseline", text(folder.path())]);
    assert!(none.code == 1 && none.err.contains("there is no baseline"), "{} {}", none.code, none.err);
    // What is portable may be compared with the baseline of any machine.
    let baselines = concat!(env!("CARGO_MANIFEST_DIR"), "/../../baselines");
    let gemm = ["bench", "all", "--profile", "smoke", "--threads", "2", "--only", "gemm", "--backend", "cpu"];
    let any = measured(&gemm, &["--baseline", baselines]);
    assert!(any.out.contains("8 equal, 0 different"), "{}", any.out);
    let own = redline(&[&gemm[..], &["--baseline", baselines]].concat());
    assert!(own.code == 1 && own.err.contains("there is no baseline"), "{} {}", own.code, own.err);
}

#[test]
fn flags_may_be_written_as_elsewhere() {
    let with = |flag: &str| {
        measured(&GEMM[..6], &["--formats", "w8", "--m", "1", "--n=40", "--k=96", flag, "--json"])
    };
    for flag in ["--num_runs=2", "--repeats=2", "--trials=2", "--num-runs=2"] {
        let document: Value = serde_json::from_str(&with(flag).out).unwrap();
        assert_eq!(document["rows"][0]["metrics"]["seconds"]["n"], 2, "{flag}");
    }
    let tier = |flag: &str| redline(&["bench", "gemm", flag, "no-tier"]);
    for flag in ["--isa", "--force-path", "--force_path"] {
        tier(flag).usage(&["no-tier"]);
    }
    redline(&["bench", "generate", "--tp_size", "0"]).usage(&["--tp"]);
    let lane = |name: &str| Lane::named(name).unwrap();
    assert!(lane("gemm").about().contains("bit for bit") && lane("score").about().contains("items_per_s"));
}

#[test]
fn the_environment_gives_a_lane_its_threads_and_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let words = [
        "bench",
        "gemm",
        "--profile",
        "smoke",
        "--formats",
        "f32",
        "--m",
        "1",
        "--portable",
        "-o",
        text(&dir),
    ];
    // Another number than that of a lane without the variable.
    let threads: usize = if Machine::here().default_threads() == 1 { 2 } else { 1 };
    let mut lane = command(&words);
    harness::finish(lane.env("REDLINE_THREADS", threads.to_string()).output().unwrap()).ok();
    let run = Run::read(&dir).unwrap();
    assert!(!run.rows.is_empty());
    for row in &run.rows {
        assert_eq!(row.params.get("threads"), Some(&Value::from(threads)), "{row:?}");
    }
    let set: Vec<(String, String)> = run.environment.into_iter().collect();
    assert_eq!(set, [("REDLINE_THREADS".to_owned(), threads.to_string())]);
}

#[test]
fn a_directory_of_baselines_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("new/baselines");
    let words = ["bench", "all", "--only", "gemm", "--profile", "smoke", "--threads", "1", "--portable"];
    let accept = ["--update-baseline", "--reason", "the first", "--baseline", text(&dir)];
    let run = redline(&[&words[..], &accept].concat());
    // A build with uncommitted changes is not accepted.
    let dirty = option_env!("REDLINE_BUILT_DIRTY") == Some("true");
    assert_eq!((run.code, dir.is_dir()), (if dirty { 2 } else { 0 }, true), "{}", run.err);
    assert_eq!(dir.join("gemm.json").exists(), !dirty, "{}", run.err);
}
