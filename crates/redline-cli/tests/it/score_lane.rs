//! Lane `score`: its columns, its table, and comma-separated values of an earlier run as a baseline.

use serde_json::Value;

use crate::harness::{Run, redline};

/// A small sweep with token ids, so that the number of tokens is known.
fn sweep(arguments: &[&str]) -> Run {
    let small = ["--query-tokens", "20", "--item-tokens", "3", "--num-runs", "2", "--warmup-runs", "1"];
    redline(&[&["bench", "score", "--model", "demo", "--threads", "1"], &small[..], arguments].concat())
}

#[test]
fn a_warm_query_is_known_and_its_items_are_new() {
    let run = sweep(&["--batch-sizes", "1,4", "--num-labels", "2,3", "--json"]);
    let document: Value = serde_json::from_str(&run.out).unwrap_or_else(|e| panic!("{e}: {}", run.err));
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * 2);
    for row in rows {
        let items = row["params"]["batch_size"].as_u64().unwrap();
        let counts = |name: &str| -> Vec<u64> {
            let samples = row["metrics"][name]["samples"].as_array().unwrap();
            samples.iter().map(|n| n.as_f64().unwrap() as u64).collect()
        };
        let (computed, cached) = match row["params"]["prefix"].as_str().unwrap() {
            "cold" => (20 + 3 * items, 0),
            _ => (3 * items, 20 * items),
        };
        assert_eq!(
            (counts("computed_tokens"), counts("cached_tokens")),
            (vec![computed; 2], vec![cached; 2]),
            "{row}"
        );
        assert_eq!(counts("prompt_tokens"), [23 * items; 2]);
    }
}

#[test]
fn values_of_an_earlier_run_are_a_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let cases = ["--batch-sizes", "1,2", "--num-labels", "2", "--prefix", "cold"];
    let first = sweep(&[&cases[..], &["--output", &path("first.csv")]].concat());
    assert!(first.out.starts_with("batch") && first.out.contains("items/s"), "{}", first.out);
    let csv = std::fs::read_to_string(path("first.csv")).unwrap();
    let seeds = "batch_size,num_labels,num_runs,total_items,throughput_items_per_sec,latency_p50_ms,latency_p95_ms,\
                 latency_p99_ms,latency_mean_ms,latency_std_ms,";
    assert!(csv.starts_with(seeds), "{csv}");
    // Impossible throughputs, so that the verdict does not depend on timing.
    let with = |throughput: &str, lines: usize| -> String {
        let mut text = String::from("batch_size,num_labels,throughput_items_per_sec\n");
        for batch in ["1", "2", "16"].iter().take(lines) {
            text.push_str(&format!("{batch},2,{throughput}\n"));
        }
        text
    };
    for (text, code, words) in [
        (with("0.000001", 2), 0, &["OK", "0 regressions, 0 missing, of 2"][..]),
        (with("0.000001", 1), 0, &["OK", "NEW"]),
        (with("1e15", 2), 1, &["REGRESSION", "2 regressions"]),
        (with("0.000001", 3), 1, &["MISSING", "1 missing, of 3"]),
    ] {
        std::fs::write(path("base.csv"), text).unwrap();
        let run = sweep(&[&cases[..], &["--baseline", &path("base.csv")]].concat());
        // An implausible share of the limit has an exit code of its own.
        assert!(run.code == code || run.code == 5, "{} {}", run.out, run.err);
        assert!(words.iter().all(|word| run.out.contains(word)), "{}", run.out);
    }
    for (text, words) in [
        ("a,b\n1,2\n", &["`throughput_items_per_sec` is missing", "base.csv"][..]),
        ("batch_size,throughput_items_per_sec\n1,fast\n", &["line 2: `fast`"]),
        (
            "batch_size,num_labels,prefix,threads,format,throughput_items_per_sec\n1,2,cold,1,f32,2\n1,2,cold,1,f32,3\n",
            &["line 3: batch_size 1, num_labels 2, prefix cold", "stands twice"],
        ),
    ] {
        std::fs::write(path("base.csv"), text).unwrap();
        sweep(&[&cases[..], &["--baseline", &path("base.csv")]].concat()).usage(words);
    }
    sweep(&[&cases[..], &["--baseline", &path("none.csv")]].concat()).usage(&["none.csv"]);
}

#[test]
fn what_the_prefix_cache_does_not_keep_is_told() {
    let short =
        ["bench", "score", "--model", "demo", "--threads", "1", "--query-tokens", "5", "--num-runs", "1"];
    redline(&short).usage(&["of prompts of 9 tokens", "`--prefix cold`"]);
    redline(&[&short[..], &["--num-labels", "5000"]].concat())
        .usage(&["`--num-labels` is 5000", "4096 tokens"]);
}

#[test]
fn values_on_standard_output_stand_alone() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base.csv");
    std::fs::write(&base, "batch_size,num_labels,throughput_items_per_sec\n1,2,0.000001\n").unwrap();
    let case = ["--batch-sizes", "1", "--num-labels", "2", "--prefix", "cold", "--output", "-"];
    let run = sweep(&[&case[..], &["--portable", "--baseline", base.to_str().unwrap()]].concat()).ok();
    let columns: Vec<usize> = run.out.lines().map(|line| line.split(',').count()).collect();
    assert!(columns.len() == 2 && columns[0] == columns[1], "{}", run.out);
    assert!(run.err.contains("0 regressions, 0 missing, of 1 cases"), "{}", run.err);
}
