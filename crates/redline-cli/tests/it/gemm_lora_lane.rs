//! Lane `gemm` with adapters: its arms, what it reports of the tax, its gates and files.

use std::fs;

use serde_json::Value;

use crate::harness::{measured, redline, tiers};

const LANE: &[&str] = &["bench", "gemm", "--profile", "smoke"];

#[track_caller]
fn rows(arguments: &[&str]) -> Vec<Value> {
    let ranks = if arguments.contains(&"--rank") { &[][..] } else { &["--rank", "6"] };
    let shapes = ["--rows", "1,5", "--formats", "f32,w8"];
    let run = measured(LANE, &[arguments, ranks, &shapes, &["--json"]].concat());
    let document: Value = serde_json::from_str(&run.out).unwrap();
    document["rows"].as_array().unwrap().clone()
}

#[track_caller]
fn samples(row: &Value, metric: &str) -> Vec<f64> {
    let samples = row["metrics"][metric]["samples"].as_array().unwrap_or_else(|| panic!("{metric}: {row}"));
    samples.iter().map(|sample| sample.as_f64().unwrap()).collect()
}

fn cases(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["case"].as_str().unwrap()).collect()
}

#[track_caller]
fn near(own: f64, expected: f64, row: &Value) {
    assert!((own / expected - 1.0).abs() < 1e-9, "{own} {expected}: {row}");
}

#[test]
fn arms_have_the_same_bits_on_all_threads_and_tiers() {
    let all = rows(&["--threads", "1,2"]);
    let mut expected = Vec::new();
    for threads in [1, 2] {
        for format in ["f32", "w8"] {
            for shape in ["m1/n40/k96/r6/a1", "m5/n40/k96/r6/a1", "m5/n40/k96/r6/a2"] {
                for arm in ["fused", "two-call"] {
                    expected.push(format!("gemm/{arm}/{format}/{shape}/t{threads}"));
                }
            }
        }
    }
    assert_eq!(cases(&all), expected);
    let (first, second) = all.split_at(all.len() / 2);
    for (one, two) in first.iter().zip(second) {
        assert_eq!(one["digest"], two["digest"], "threads do not change bits");
    }
    // Rows with another adapter have other outputs.
    assert_ne!(first[2]["digest"], first[4]["digest"]);
    for tier in tiers() {
        let other = rows(&["--threads", "1", &format!("--force_path={tier}")]);
        for (one, other) in first.iter().zip(&other) {
            assert_eq!(one["digest"], other["digest"], "tiers do not change bits");
            assert!(other["kernel_path"].as_str().unwrap().starts_with(tier), "{other}");
        }
    }
}

#[test]
fn the_tax_and_the_speedup_follow_from_the_times() {
    let all = rows(&["--threads", "1", "--rank", "6,20"]);
    for pair in all.chunks(2) {
        let [fused, two_call] = pair else { panic!() };
        for (row, own) in [(fused, "fused_ms"), (two_call, "baseline_ms")] {
            let tokens = row["params"]["m"].as_f64().unwrap();
            let [own, base, apart] = [own, "base_ms", "baseline_ms"].map(|name| samples(row, name));
            for (i, &ms) in own.iter().enumerate() {
                near(samples(row, "seconds")[i], ms * 1e-3, row);
                near(samples(row, "tokens_per_s")[i], tokens / (ms * 1e-3), row);
                near(samples(row, "speedup")[i], apart[i] / ms, row);
                assert!(
                    (samples(row, "lora_tax_pct")[i] - 100.0 * (ms / base[i] - 1.0)).abs() < 1e-6,
                    "{row}"
                );
            }
            // A layer of 40 x 96 has three strips of 96 weights; an adapter has the strips of its rank and as many of 40 x rank.
            let params = ["adapter_rank", "adapters_n"].map(|name| row["params"][name].as_f64().unwrap());
            let [rank, adapters] = params;
            let padded = (rank / 16.0).ceil() * 16.0;
            if row["params"]["format"] == "f32" {
                let floor = 100.0 * adapters * (padded * 96.0 + 48.0 * rank) / (48.0 * 96.0);
                near(samples(row, "lora_tax_floor_pct")[0], floor, row);
            }
            let (l2, nmse) = (samples(row, "l2_diff")[0], samples(row, "nmse")[0]);
            near(l2 * l2, nmse, row);
            assert!(nmse > 0.0 && nmse < 1e-4, "{row}");
        }
        for name in ["fused_ms", "base_ms", "baseline_ms", "lora_tax_floor_pct", "adapter_bytes"] {
            assert_eq!(samples(fused, name), samples(two_call, name), "{name}");
        }
    }
}

#[test]
fn what_the_gates_ask_decides_the_exit_code() {
    let small = ["--threads", "1", "--rows", "8", "--formats", "f32", "--num-runs", "1"];
    let with = |arguments: &[&str]| redline(&[LANE, &small, arguments].concat());
    let slow = with(&["--rank", "32", "--adapters", "1", "--min-speedup", "1e12"]);
    assert_eq!(slow.code, 1, "{}", slow.err);
    let missed = "missed: gemm/fused/f32/m8/n40/k96/r32/a1/t1: speedup is";
    assert!(slow.err.contains(missed), "{}", slow.err);
    let rank = with(&["--rank", "16", "--adapters", "1", "--min-speedup", "1e12", "--portable"]);
    assert_eq!(rank.code, 0, "only rank 32 has a minimum: {}", rank.err);
    let gates = |arguments: &[&str]| {
        let words = [&small[..], &["--rank", "6", "--json"], arguments].concat();
        let document: Value = serde_json::from_str(&redline(&[LANE, &words].concat()).out).unwrap();
        document["rows"][0]["gates"].clone()
    };
    // Eight adapters of rank 6 are 1824 values each, the layer 4608.
    let most = gates(&["--adapters", "8", "--max-over-floor", "1e6"])[0]["most"].as_f64().unwrap();
    near(most, 1e6 + 100.0 * 8.0 * 1824.0 / 4608.0, &Value::Null);
    assert_eq!(gates(&["--adapters", "8"]), Value::Null, "the smoke form has no gates");
    assert_eq!(gates(&["--adapters", "1", "--max-tax", "1e6"]), Value::Null, "the layer is small");
    let large = ["--adapters", "1", "--n", "4096", "--k", "4096", "--max-tax", "1e6"];
    assert_eq!(gates(&large)[0]["most"].as_f64(), Some(1e6));
}

#[test]
fn files_have_the_columns_of_the_seed() {
    const SEED: &str = "bench,rows,cols,batch,rank,fused_ms,baseline_ms,base_ms,speedup,lora_tax_pct,tokens_per_s,\
                        baseline_tokens_per_s,l2_diff";
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let small = ["--threads", "1", "--formats", "w8", "--rows", "5", "--rank", "6", "--adapters", "2"];
    let with = |arguments: &[&str]| measured(LANE, &[&small[..], arguments].concat());
    let alone = with(&["--output", "-", "--csv-style", "gemm-lora"]).out;
    let lines: Vec<&str> = alone.lines().collect();
    assert_eq!((lines[0], lines.len()), (SEED, 3));
    assert!(lines[1].starts_with("fused_base_lora,40,96,5,6,"), "{alone}");
    assert!(lines[2].starts_with("baseline_two_call,40,96,5,6,"), "{alone}");
    assert!(lines.iter().all(|line| line.split(',').count() == 13 && !line.contains(",,")), "{alone}");
    // The seed's names of files.
    with(&["--out", &path("gemm_lora.csv"), "--summary", &path("gemm_summary.json")]);
    let csv = fs::read_to_string(path("gemm_lora.csv")).unwrap();
    assert!(
        csv.starts_with("name,iterations,") && csv.contains(",bench,rows,cols,batch,rank,adapters,"),
        "{csv}"
    );
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(path("gemm_summary.json")).unwrap()).unwrap();
    assert_eq!(summary["lane"], "gemm");
    assert!(summary["rows"][0]["metrics"]["lora_tax_pct"]["value"].is_number(), "{summary}");
    assert!(!folder.path().join("gemm_lora_summary.json").exists(), "there is one summary");
    // Such a file is a baseline.
    let judged = |rate: &str| {
        let name = csv.lines().nth(1).unwrap().split(',').next().unwrap();
        fs::write(path("base.csv"), format!("name,tokens_per_s\n{name},{rate}\n")).unwrap();
        redline(&[LANE, &small, &["--baseline", &path("base.csv")]].concat())
    };
    assert!(judged("1e-9").out.contains("OK"));
    let slower = judged("1e30");
    assert!(slower.code == 1 && slower.out.contains("REGRESSION"), "{} {}", slower.code, slower.out);
    let nowhere = path("nowhere/summary.json");
    redline(&[LANE, &small, &["--out", &path("x.csv"), "--summary", &nowhere]].concat())
        .usage(&["its directory is not there", &nowhere]);
}
