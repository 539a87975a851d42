//! Lane `sched-zipf`: its answers, its figures under different loads, its warnings and files.

use std::fs;

use serde_json::Value;

use crate::harness::{measured, redline};

const LANE: &[&str] = &["bench", "sched-zipf", "--profile", "smoke"];

#[track_caller]
fn row(arguments: &[&str]) -> Value {
    let run = measured(LANE, &[arguments, &["--json"]].concat());
    let document: Value = serde_json::from_str(&run.out).unwrap();
    document["rows"][0].clone()
}

#[track_caller]
fn median(row: &Value, metric: &str) -> f64 {
    row["metrics"][metric]["median"].as_f64().unwrap_or_else(|| panic!("no {metric} in {row}"))
}

#[test]
fn answers_do_not_depend_on_threads_and_memory() {
    let one = row(&["--threads", "1"]);
    let mut ways = vec![
        vec!["--decode_threads", "2"],
        vec!["--threads", "1", "--adapter_threads", "3"],
        vec!["--threads", "1", "--adapter-mib", "64"],
    ];
    if cfg!(target_os = "linux") {
        ways.push(vec!["--threads", "1", "--pin_cores"]);
    }
    for way in ways {
        let other = row(&way);
        assert_eq!(other["digest"], one["digest"], "{way:?}");
        assert_eq!(median(&other, "requests"), median(&one, "requests"), "{way:?}");
        if way.contains(&"64") {
            assert_eq!(median(&other, "cold_loads"), 0.0, "all adapters fit");
        }
    }
    assert!(median(&one, "cold_loads") > 0.0, "some adapters were evicted");
    assert_ne!(row(&["--threads", "1", "--seed", "1"])["digest"], one["digest"]);
}

#[test]
fn figures_vary_with_the_load() {
    let small = ["--threads", "1", "--num-runs", "1", "--adapters", "40"];
    let with = |rps: &str| row(&[&small[..], &["--load_rps", rps]].concat());
    // A hundred times as many requests; many of them wait.
    let (light, heavy) = (with("10"), with("1000"));
    for metric in ["requests", "load_rps", "tokens_per_s", "cold_loads", "decode_util", "queue_ms_p95"] {
        let (light, heavy) = (median(&light, metric), median(&heavy, metric));
        assert!(heavy > light, "{metric}: {light} {heavy}");
    }
    for row in [&light, &heavy] {
        for share in ["decode_util", "adapter_util", "overlap_ratio"] {
            assert!((0.0..=1.0).contains(&median(row, share)), "{share}: {row}");
        }
        assert!(median(row, "reloads") > 0.0 && median(row, "hot_reload_ms_p95") > 0.0, "{row}");
    }
}

#[test]
fn a_longer_queue_than_the_baselines_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base.csv");
    let name = row(&["--threads", "1"])["case"].as_str().unwrap().to_owned();
    let warned = |queue: &str| {
        fs::write(&path, format!("name,tokens_per_s,queue_ms_p95\n{name},1e-9,{queue}\n")).unwrap();
        let run = measured(LANE, &["--threads", "1", "--baseline", path.to_str().unwrap()]);
        let fact = format!("warning: {name}: queue_ms_p95 is ");
        run.err.lines().any(|line| line.starts_with(&fact) && line.contains("more than 200.0 ms above"))
    };
    assert!(warned("-1e6"));
    assert!(!warned("1e6"));
}

#[test]
fn files_have_the_columns_of_the_seed() {
    const SEED: &str = "sched,alpha,adapters_N,mean_adapters_per_req,rank,load_rps,duration_s,decode_threads,adapter_threads,\
                        pin_cores,p50_ms,p95_ms,base_p95_ms,lora_tax_pct,hot_reload_ms_p95,tokens_per_s,queue_ms_p95,\
                        decode_util,adapter_util,overlap_ratio";
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let alone = measured(LANE, &["--threads", "1", "--output", "-", "--csv-style", "sched-zipf"]).out;
    let lines: Vec<&str> = alone.lines().collect();
    assert_eq!((lines[0], lines.len()), (SEED, 2));
    assert!(lines[1].starts_with("continuous,1.1,6,") && !lines[1].contains(",,"), "{alone}");
    assert_eq!(lines[1].split(',').count(), 20);
    measured(LANE, &["--threads", "1", "--out", &path("sched_zipf.csv")]);
    let csv = fs::read_to_string(path("sched_zipf.csv")).unwrap();
    assert!(csv.starts_with(&format!("{SEED},name,cold_load_ms_p95,")), "{csv}");
    let summary = fs::read_to_string(path("sched_zipf_summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["lane"], "sched-zipf");
    assert!(summary["rows"][0]["metrics"]["cold_load_ms_p95"]["value"].is_number(), "{summary}");
    // Such a file is a baseline.
    let judged = |rate: &str| {
        let name = csv.lines().nth(1).unwrap().split(',').nth(20).unwrap();
        fs::write(path("base.csv"), format!("name,tokens_per_s\n{name},{rate}\n")).unwrap();
        redline(&[LANE, &["--threads", "1", "--baseline", &path("base.csv")]].concat())
    };
    assert!(judged("1e-9").out.contains("OK"));
    let slower = judged("1e30");
    assert!(slower.code == 1 && slower.out.contains("REGRESSION"), "{} {}", slower.code, slower.out);
}
