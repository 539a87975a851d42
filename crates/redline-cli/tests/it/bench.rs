//! `bench`.

use crate::harness::{Run, redline};

const QUICK: &[&str] = &["--prompt-tokens", "5", "--new-tokens", "3", "--num-runs", "2", "--threads", "1,2"];

/// Runs a lane on the demo model.
#[track_caller]
fn generate(arguments: &[&str]) -> Run {
    redline(&[&["bench", "generate", "--model", "demo", "--portable"], QUICK, arguments].concat()).ok()
}

#[test]
fn lanes_are_listed() {
    let list = redline(&["bench", "--list"]).ok().out;
    assert!(list.lines().any(|line| line.starts_with("generate ")), "{list}");
    for (lane, asks) in list.lines().filter_map(|line| line.split_once(' ')) {
        let help = redline(&["bench", lane, "--help"]).ok().out;
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&help).starts_with(&words(asks)), "{help}");
    }
}

#[test]
fn a_lane_gives_rows_as_json() {
    let value: serde_json::Value = serde_json::from_str(&generate(&["--json"]).out).unwrap();
    assert_eq!((&value["schema"], &value["lane"]), (&"redline.bench.result/1".into(), &"generate".into()));
    assert!(value["machine"].is_object());
    let rows = value["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "prefill, decode and recomputing decode for each number of threads");
    for row in rows {
        assert_eq!(row["checked"], true);
        assert!(row["limit"].is_string() && row["share_of_limit"].as_f64() > Some(0.0), "{row}");
        for (name, metric) in row["metrics"].as_object().unwrap() {
            assert!(metric["samples"].as_array().is_some_and(|s| !s.is_empty()), "{name}: {metric}");
        }
    }
}

#[test]
fn quiet_lanes_print_results_only() {
    let run = generate(&["--quiet"]);
    assert!(run.err.is_empty() && run.out.starts_with("case"), "{}", run.err);
    assert!(!generate(&[]).err.is_empty(), "progress, and warnings if there are any");
    let all =
        redline(&["bench", "all", "--profile", "smoke", "--only", "limits", "--quiet", "--portable"]).ok();
    assert!(all.err.is_empty() && all.out.contains("limits"), "{}", all.err);
    let arms = ["--versus", "", "--processes", "2", "--quiet", "--num-runs", "2", "--threshold", "100"];
    let words =
        [&["bench", "limits", "--profile", "smoke", "--threads", "1", "--portable"][..], &arms].concat();
    assert_eq!(redline(&words).err, "");
}

#[test]
fn a_lane_gives_a_table_and_a_file() {
    let table = generate(&[]).out;
    assert!(table.starts_with("case") && table.contains("decode_tokens_per_s"), "{table}");
    let csv = generate(&["--output", "-"]).out;
    assert!(csv.starts_with("case,batch_size,prompt_tokens,") && csv.lines().count() == 7, "{csv}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    generate(&["--output", path.to_str().unwrap()]);
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("case,batch_size,"));
    // One flag writes both forms: the name decides.
    let run = folder.path().join("run");
    std::fs::write(&path, "replaced").unwrap();
    generate(&["-o", run.to_str().unwrap(), "-o", path.to_str().unwrap()]);
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("case,batch_size,"));
    assert!(folder.path().join("out_summary.json").exists());
    assert!(std::fs::read_to_string(run.join("run.json")).unwrap().contains("redline.bench.run/1"));
}
