//! Lanes `attn-decode` and `attn-prefill`: their arms, what they report of quality and memory, their gates and files.

use std::fs;

use serde_json::Value;

use crate::harness::{measured, redline, tiers};

const DECODE: &[&str] = &["bench", "attn-decode", "--profile", "smoke", "--model", "demo"];
const PREFILL: &[&str] = &["bench", "attn-prefill", "--profile", "smoke", "--model", "demo"];

#[track_caller]
fn rows(lane: &[&str], arguments: &[&str]) -> Vec<Value> {
    let run = measured(lane, &[arguments, &["--json"]].concat());
    let document: Value = serde_json::from_str(&run.out).unwrap();
    document["rows"].as_array().unwrap().clone()
}

#[track_caller]
fn samples(row: &Value, metric: &str) -> Vec<f64> {
    let samples = row["metrics"][metric]["samples"].as_array().unwrap_or_else(|| panic!("{metric}: {row}"));
    samples.iter().map(|sample| sample.as_f64().unwrap()).collect()
}

#[track_caller]
fn one(row: &Value, metric: &str) -> f64 {
    let [value] = samples(row, metric)[..] else { panic!("several of {metric}: {row}") };
    value
}

fn cases(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["case"].as_str().unwrap()).collect()
}

#[test]
fn both_arms_run_in_turn_with_the_same_bits_on_all_threads_and_tiers() {
    for (lane, name, batches, query_rows) in
        [(DECODE, "attn-decode", &[1u32, 2][..], 1), (PREFILL, "attn-prefill", &[1], 20)]
    {
        let all = rows(lane, &["--threads", "1,2"]);
        let mut expected = Vec::new();
        for threads in [1, 2] {
            for batch in batches {
                for format in ["w8", "f16"] {
                    let shape = format!("d32/g3/c300/r{query_rows}/b{batch}");
                    expected.push(format!("{name}/{format}/{shape}/t{threads}"));
                }
            }
        }
        assert_eq!(cases(&all), expected);
        let (first, second) = all.split_at(all.len() / 2);
        for (one, two) in first.iter().zip(second) {
            assert_eq!(one["digest"], two["digest"], "threads do not change bits");
        }
        for pair in all.chunks(2) {
            let [own, baseline] = pair else { panic!() };
            assert_ne!(own["digest"], baseline["digest"], "formats differ");
            let rates = samples(own, "baseline_tokens_per_s");
            assert_eq!(rates, samples(baseline, "tokens_per_s"));
            let speedup = samples(own, "tokens_per_s")
                .iter()
                .zip(&rates)
                .map(|(own, base)| own / base)
                .collect::<Vec<_>>();
            for (told, own) in samples(own, "speedup").iter().zip(speedup) {
                assert!((told / own - 1.0).abs() < 1e-9, "{own}");
            }
            let tokens = f64::from(query_rows) * own["params"]["batch"].as_f64().unwrap();
            for (rate, seconds) in samples(own, "tokens_per_s").iter().zip(samples(own, "seconds")) {
                assert!((rate * seconds / tokens - 1.0).abs() < 1e-9, "{own}");
            }
        }
        for tier in tiers() {
            let other = rows(lane, &["--threads", "1", &format!("--force_path={tier}")]);
            for (one, other) in first.iter().zip(&other) {
                assert_eq!(one["digest"], other["digest"], "tiers do not change bits");
                assert!(other["kernel_path"].as_str().unwrap().starts_with(tier), "{other}");
            }
        }
    }
}

#[test]
fn bytes_and_scratch_follow_from_formats() {
    for (lane, query_rows) in [(DECODE, 1.0), (PREFILL, 20.0)] {
        let all = rows(lane, &["--threads", "1", "--batch", "1"]);
        let [own, baseline] = &all[..] else { panic!("{:?}", cases(&all)) };
        // 300 tokens of two KV heads of 32 dimensions: bytes with two scales of four bytes, and pairs of bytes.
        assert_eq!(one(own, "l2_bytes_per_token"), 300.0 * 2.0 * (32.0 + 32.0 + 8.0) / query_rows);
        assert_eq!(one(baseline, "l2_bytes_per_token"), 300.0 * 2.0 * 128.0 / query_rows);
        assert_eq!(one(own, "scratch_ratio"), one(own, "scratch") / one(baseline, "scratch"));
        assert!(one(own, "scratch_ratio") < 1.0 && one(baseline, "scratch_ratio") == 1.0, "{own}");
        let params =
            ["tile_tokens", "acc_width", "csr_outliers", "kv_format"].map(|name| &own["params"][name]);
        assert_eq!(params, [&Value::from(256), &"int32".into(), &false.into(), &"w8".into()]);
        assert_eq!(
            (&baseline["params"]["acc_width"], &baseline["params"]["kv_format"]),
            (&"fp32".into(), &"f16".into())
        );
        let doctor: Value = serde_json::from_str(&redline(&["doctor", "--json"]).ok().out).unwrap();
        let features = doctor.to_string();
        for name in ["has_avx2", "has_vnni"] {
            let told = own["params"][name].as_bool().unwrap();
            assert!(features.contains(&format!("\"{name}\":{told}")), "{name} {told}: {features}");
        }
        assert!(one(own, "nmse") > one(baseline, "nmse") && one(baseline, "nmse") > 0.0, "{own}");
        for (rate, seconds) in samples(own, "read_rate").iter().zip(samples(own, "seconds")) {
            let bytes = one(own, "l2_bytes_per_token") * query_rows;
            assert!((rate * 1e9 * seconds / bytes - 1.0).abs() < 1e-9, "{own}");
        }
        assert!(samples(own, "read_bandwidth").iter().all(|rate| *rate > 0.0));
    }
}

#[test]
fn the_change_of_perplexity_is_that_of_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ids").display().to_string();
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo/held-out.txt");
    let tokens: Value =
        serde_json::from_str(&redline(&["tokenize", "--model", "demo", "--file", text, "--json"]).ok().out)
            .unwrap();
    let ids = tokens["ids"].as_array().unwrap_or_else(|| panic!("{tokens}"));
    // More than one window of 512.
    let ids: Vec<String> = ids.iter().take(700).map(ToString::to_string).collect();
    fs::write(&path, ids.join(" ")).unwrap();
    let perplexity = |kv_format: &str| {
        let words = ["perplexity", "--model", "demo", "--ids", &path, "--kv-format", kv_format, "--json"];
        let answer: Value = serde_json::from_str(&redline(&words).ok().out).unwrap();
        answer["perplexity"]["value"].as_f64().unwrap_or_else(|| panic!("{answer}"))
    };
    let reference = perplexity("f32");
    for kv_format in ["w8", "bf16", "f32"] {
        let arguments =
            ["--threads", "1", "--batch", "1", "--perplexity-tokens", "700", "--kv-format", kv_format];
        let all = rows(DECODE, &arguments);
        for row in &all {
            let own = perplexity(row["params"]["kv_format"].as_str().unwrap());
            assert_eq!(one(row, "perplexity"), own, "{row}");
            assert_eq!(one(row, "perplexity_delta"), own - reference, "{row}");
            assert_eq!(one(row, "perplexity_delta_percent"), 100.0 * (own / reference - 1.0), "{row}");
            assert_eq!(one(row, "perplexity_delta") == 0.0, row["params"]["kv_format"] == "f32", "{row}");
            assert_eq!(
                (&row["params"]["perplexity_window"], &row["params"]["perplexity_tokens"]),
                (&512.into(), &698.into())
            );
        }
        assert_eq!(all[0]["params"]["kv_format"], kv_format);
    }
}

#[test]
fn what_the_gates_ask_decides_the_exit_code() {
    let long = ["--ctx", "2048", "--batch", "1", "--threads", "1", "--num-runs", "1"];
    let with = |arguments: &[&str]| redline(&[DECODE, &long, arguments].concat());
    let missed = with(&["--min-speedup", "1e12", "--json"]);
    assert_eq!(missed.code, 1, "{}", missed.err);
    assert!(
        missed.err.contains("missed: attn-decode/w8/d32/g3/c2048/r1/b1/t1: speedup is"),
        "{}",
        missed.err
    );
    let document: Value = serde_json::from_str(&missed.out).unwrap();
    let gates = |row: &Value| -> Vec<String> {
        let gates = row["gates"].as_array().into_iter().flatten();
        gates.map(|gate| gate["metric"].as_str().unwrap().to_owned()).collect()
    };
    let of_quality = [
        "nmse",
        "scratch_ratio",
        "perplexity_delta",
        "perplexity_delta",
        "perplexity_delta_percent",
        "perplexity_delta_percent",
    ];
    assert_eq!(gates(&document["rows"][0])[..6], of_quality);
    assert_eq!(gates(&document["rows"][0])[6..], ["speedup"]);
    assert!(gates(&document["rows"][1]).is_empty(), "the baseline has none");
    with(&["--min-speedup", "0", "--portable"]).ok();
    // A shorter context may be slower.
    let short = rows(DECODE, &["--ctx", "2047", "--batch", "1", "--threads", "1", "--min-speedup", "1e12"]);
    assert_eq!(gates(&short[0]), of_quality);
}

#[test]
fn files_have_the_columns_of_the_seed() {
    const SEED: &str = "name,tokens_per_s,baseline_tokens_per_s,perplexity_delta,scratch_ratio,tile_tokens,acc_width,has_avx2,\
                        has_vnni,csr_outliers,l2_bytes_per_token";
    let folder = tempfile::tempdir().unwrap();
    for (lane, name) in [(DECODE, "attn_decode"), (PREFILL, "attn_prefill")] {
        let path = |end: &str| folder.path().join(format!("{name}{end}")).display().to_string();
        let style = name.replace('_', "-");
        let alone = measured(lane, &["--threads", "1", "--output", "-", "--csv-style", &style]).out;
        assert_eq!(alone.lines().next(), Some(SEED));
        assert!(alone.lines().all(|line| line.split(',').count() == 11 && !line.contains(",,")), "{alone}");
        measured(lane, &["--threads", "1", "--out", &path(".csv")]);
        let csv = fs::read_to_string(path(".csv")).unwrap();
        assert!(csv.starts_with(&format!("{SEED},kv_format,context,rows,batch,")), "{csv}");
        let summary: Value =
            serde_json::from_str(&fs::read_to_string(path("_summary.json")).unwrap()).unwrap();
        assert_eq!(summary["lane"], style);
        assert!(summary["rows"][0]["metrics"]["speedup"]["value"].as_f64() > Some(0.0), "{summary}");
        // Such a file is a baseline.
        let judged = |rate: &str| {
            let case = csv.lines().nth(1).unwrap().split(',').next().unwrap();
            fs::write(path("_base.csv"), format!("name,tokens_per_s\n{case},{rate}\n")).unwrap();
            redline(&[lane, &["--threads", "1", "--baseline", &path("_base.csv")]].concat())
        };
        assert!(judged("1e-9").out.contains("OK"));
        let slower = judged("1e30");
        assert!(slower.code == 1 && slower.out.contains("REGRESSION"), "{} {}", slower.code, slower.out);
    }
}
