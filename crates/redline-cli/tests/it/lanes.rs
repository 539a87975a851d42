//! Every lane of `bench` with smoke values: documents, files, refusals.

use redline_lab::lanes::{self, Lane, LaneFunction as Subject, LaneProfile};
use serde_json::Value;

use crate::harness::{Run, command, finish, redline, tiers};

const DEMO: &[&str] = &["--model", "demo"];

/// Runs a lane with its smoke values. Further arguments override them.
fn smoke(lane: &Lane, arguments: &[&str]) -> Run {
    let given = |name: &str| arguments.iter().any(|a| a.split('=').next() == Some(&format!("--{name}")));
    let values = lane.values(LaneProfile::Smoke).filter(|(name, _)| !given(name));
    let values: Vec<String> = values.map(|(name, value)| format!("--{name}={value}")).collect();
    let mut words = vec!["bench", lane.name];
    words.extend(values.iter().map(String::as_str));
    match lane.run {
        Subject::Model(_) | Subject::Text(_) if !given("model") => words.extend(DEMO),
        // These lanes have their own embedded model, or need none.
        _ => {}
    }
    if !given("threads") {
        words.extend(["--threads", "1"]);
    }
    words.extend(["--portable"]);
    words.extend(arguments);
    redline(&words)
}

fn lane(name: &str) -> &'static Lane {
    lanes::ALL.iter().find(|lane| lane.name == name).unwrap()
}

/// The rows of a lane's document.
#[track_caller]
fn rows(name: &str, arguments: &[&str]) -> Vec<Value> {
    let run = smoke(lane(name), &[arguments, &["--json"]].concat()).ok();
    let document: Value = serde_json::from_str(&run.out).unwrap();
    document["rows"].as_array().unwrap().clone()
}

fn median(row: &Value, metric: &str) -> f64 {
    row["metrics"][metric]["median"].as_f64().unwrap_or_else(|| panic!("no {metric} in {row}"))
}

fn samples(row: &Value, metric: &str) -> Vec<f64> {
    let samples = row["metrics"][metric]["samples"].as_array().unwrap();
    samples.iter().map(|sample| sample.as_f64().unwrap()).collect()
}

/// Checks that in every sample the rate times the seconds is that number of tokens.
#[track_caller]
fn adds_up(row: &Value, tokens: f64) {
    for (rate, seconds) in samples(row, "tokens_per_s").iter().zip(samples(row, "seconds")) {
        assert!((rate * seconds / tokens - 1.0).abs() < 1e-9, "{row}");
    }
}

#[test]
fn every_lane_gives_a_document() {
    for lane in lanes::ALL {
        let run = smoke(lane, &["--json"]).ok();
        let document: Value = serde_json::from_str(&run.out).unwrap();
        assert_eq!(document["lane"], lane.name);
        assert!(document["machine"]["identity"].is_object());
        let rows = document["rows"].as_array().unwrap();
        let cases: std::collections::BTreeSet<_> = rows.iter().map(|row| row["case"].as_str()).collect();
        assert!(!rows.is_empty() && cases.len() == rows.len(), "{}: {cases:?}", lane.name);
        for row in rows {
            assert_eq!((&row["checked"], &row["params"]["threads"]), (&true.into(), &1.into()), "{row}");
            assert!(row["kernel_path"].is_string(), "{row}");
            assert_eq!(row["limit"].is_string(), row["share_of_limit"].is_number(), "{row}");
            let metrics = row["metrics"].as_object().unwrap();
            assert!(metrics.values().any(|m| m["direction"] != "info"), "nothing to judge: {row}");
            for (name, metric) in metrics {
                let told =
                    lane.metric(name).unwrap_or_else(|| panic!("{} does not declare {name}", lane.name));
                assert!(told.unit.is_empty() || metric["unit"] == told.unit, "{name}: {metric}");
                assert_eq!(metric["direction"], told.direction.name(), "{}: {name}", lane.name);
                assert!(metric["unit"].is_string() && metric["samples"].is_array(), "{name}: {metric}");
                let derived = name == "limit" || name.contains("share") || metric["unit"] == "x";
                assert!(!derived || metric["direction"] == "info", "{name} is judged: {metric}");
            }
        }
    }
}

/// The name of a column as a lane writes it: `name=content`, or a content that gives it the name.
fn column_name(column: &str) -> &str {
    column.split('=').next().unwrap_or_default().trim_start_matches(['~', '@'])
}

#[test]
fn every_lane_writes_its_columns() {
    let folder = tempfile::tempdir().unwrap();
    for lane in lanes::ALL {
        let path = folder.path().join(lane.name).with_extension("csv");
        let table = smoke(lane, &["--output", path.to_str().unwrap()]).ok().out;
        let csv = std::fs::read_to_string(&path).unwrap();
        let names: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
        if lane.columns.is_empty() {
            assert_eq!(names[..4], ["lane", "case", "metric", "unit"]);
            continue;
        }
        let columns = lane.columns.join("|");
        assert_eq!(names, columns.split('|').map(column_name).collect::<Vec<_>>());
        let first = lane.shown.split('|').next().filter(|first| !first.is_empty()).unwrap_or("case");
        assert!(table.starts_with(column_name(first)) && csv.lines().count() > 1, "{csv}");
        assert!(csv.lines().all(|line| line.split(',').count() == names.len()), "{csv}");
    }
}

#[test]
fn only_lanes_of_a_model_take_one() {
    for lane in lanes::ALL {
        let help = redline(&["bench", lane.name, "--help-all"]).ok().out;
        let of_model = !matches!(lane.run, Subject::Machine(_));
        assert_eq!(help.contains("--model"), of_model, "{help}");
        assert!(help.contains("--threads"), "{help}");
        assert_eq!(help.contains("--isa"), !matches!(lane.run, Subject::Text(_)), "{help}");
        if of_model {
            // Without the flag the model comes from the environment.
            let elsewhere = command(&["bench", lane.name]).env("REDLINE_MODEL", "no/such-model").output();
            finish(elsewhere.unwrap()).failed(&["no/such-model"]);
        } else {
            redline(&["bench", lane.name, "--model", "demo"]).usage(&["--model"]);
        }
    }
}

#[test]
fn values_without_sense_are_refused() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("limits", &["--streams", "0"], &["`--streams` is `0`", "at least 1"]),
        ("limits", &["--huge-pages", "some"], &["on, off"]),
        ("limits", &["--buffer-mib", "99999999999"], &["two buffers", "of memory are free"]),
        ("limits", &["--num-runs", "0"], &["`--num-runs` is `0`"]),
        ("limits", &["--isa", "sse9"], &["sse9"]),
        ("gemm", &["--m", "0"], &["`--m` is `0`", "at least 1"]),
        ("gemm", &["--m", "1,x"], &["`--m` is `1,x`"]),
        ("gemm", &["--n=-3"], &["`--n` is `-3`"]),
        ("gemm", &["--k", "0"], &["`--k` is `0`"]),
        ("gemm", &["--formats", "w9"], &["`w9`", "f32, bf16, w8, w4", "w8g0", "w4g32"]),
        ("gemm", &["--formats", "w8g7"], &["`w8g7`"]),
        ("gemm", &["--shape", "gpt5"], &["`gpt5`", "llama-3.2-1b"]),
        ("gemm", &["--n", "99999999999", "--k", "99999999999"], &["n = 99999999999", "memory are free"]),
        ("gemm", &["--weights-mib", "99999999999999999"], &["memory are free"]),
        ("gemm", &["--rows-curve=maybe"], &["maybe"]),
        ("gemm", &["--rank", "8,x"], &["`--rank` is `8,x`"]),
        ("gemm", &["--rank", "8", "--adapters", "6,8"], &["`--adapters` is `6,8`", "`--m` is `1,3`"]),
        ("gemm", &["--rank", "99999999999"], &["rank 99999999999", "memory are free"]),
        ("gemm", &["--rank", "8", "--max-tax=-1"], &["`--max-tax` is `-1`"]),
        ("gemm", &["--summary", "s.json"], &["--output"]),
        ("gemm", &["--summary", "s.json", "--output", "-"], &["`--summary` without a file"]),
        ("generate", &["--batch", "257"], &["`--batch` is 257", "places for 256"]),
        ("generate", &["--batch", "2", "--kv-cache", "off"], &["`--kv-cache off`", "with the cache only"]),
        ("generate", &["--max-seconds", "1e-9"], &["no case fits into", "`--max-seconds 0` measures all"]),
        ("generate", &["--prompt-tokens", "999999999999"], &["exceed the context of"]),
        ("forward", &["--batch", "257"], &["places for 256"]),
        ("forward", &["--length", "999999999999"], &["exceed the context of", "in `demo"]),
        ("forward", &["--length", "0"], &["`--length` is `0`"]),
        ("forward", &["--logits", "some"], &["`--logits` is `some`", "last, all, both"]),
        ("forward", &["--model-size", "tiny"], &["'tiny'", "no such shape", "small"]),
        ("generate", &["--prompt", ""], &["the prompt has no token"]),
        ("generate", &["--prompt", "And", "--new-tokens", "999999"], &["exceed the context of"]),
        ("diffusion", &["--steps", "0"], &["`--steps` is `0`"]),
        ("diffusion", &["--algorithm", "best"], &["`--algorithm` is `best`", "auto, origin, maskgit-plus"]),
        ("diffusion", &["--temperature=-1"], &["`--temperature` is `-1`", "at least 0"]),
        ("diffusion", &["--top-k", "few"], &["`--top-k` is `few`", "a whole number"]),
        ("attn-decode", &["--ctx", "0"], &["`--ctx` is `0`", "at least 1"]),
        ("attn-decode", &["--head-dim", "513"], &["`--head-dim` is `513`", "at most 512"]),
        ("attn-decode", &["--tile-tokens", "128"], &["`--tile-tokens` is `128`", "auto, 256", "roundings"]),
        ("attn-decode", &["--kv-format", "f16"], &["`--kv-format` is `f16`", "f32, bf16, w8"]),
        ("attn-decode", &["--batch", "999999", "--ctx", "999999"], &["999999 sequences", "memory are free"]),
        ("attn-prefill", &["--ctx", "300,19"], &["`--ctx` is `300,19`", "20 query rows"]),
        ("attn-prefill", &["--rows", "0"], &["`--rows` is `0`"]),
        ("attn-prefill", &["--tile_tokens=64"], &["`--tile-tokens` is `64`"]),
        ("sched-zipf", &["--adapters", "0"], &["`--adapters` is `0`"]),
        ("sched-zipf", &["--mean-adapters", "7"], &["`--mean-adapters` is 7", "1 to 6"]),
        ("sched-zipf", &["--load-rps", "0"], &["`--load-rps` is `0`", "above 0"]),
        ("sched-zipf", &["--arrivals", "steady"], &["`--arrivals` is `steady`", "poisson, gamma"]),
        ("sched-zipf", &["--adapter-mib", "99999999"], &["6 adapters", "memory are free"]),
        ("sched-zipf", &["--new-tokens", "999999"], &["exceed the context of"]),
        ("memory", &["--batch", "0"], &["`--batch` is `0`"]),
        ("memory", &["--new-tokens", "999999999999"], &["exceed the context of"]),
    ];
    for (name, arguments, expect) in cases {
        smoke(lane(name), arguments).usage(expect);
    }
}

#[test]
fn limits_by_threads_pages_streams_and_tiers() {
    let rows = rows("limits", &["--threads", "1,2"]);
    let cases: Vec<&str> = rows.iter().map(|row| row["case"].as_str().unwrap()).collect();
    for threads in [1, 2] {
        for pages in ["huge", "small"] {
            for streams in [1, 2] {
                assert!(cases.contains(&format!("read/{pages}/s{streams}/t{threads}").as_str()), "{cases:?}");
            }
        }
        for tier in tiers() {
            for arithmetic in ["f32", "bf16", "int8"] {
                assert!(
                    cases.contains(&format!("peak/{arithmetic}/{tier}/t{threads}").as_str()),
                    "{cases:?}"
                );
            }
        }
    }
    assert_eq!(cases.len(), 8 + 2 * 3 * tiers().len());
    let read = &rows[0];
    assert_eq!(
        (&read["params"]["buffer_bytes"], &read["params"]["huge_pages"]),
        (&(4 << 20).into(), &true.into())
    );
    assert!(median(read, "read_bandwidth") > 0.0 && read["metrics"]["read_bandwidth"]["n"] == 2);
    let scalar = self::rows("limits", &["--isa", "scalar", "--huge-pages", "off"]);
    assert!(
        scalar.iter().all(|row| row["kernel_path"].as_str().unwrap().starts_with("scalar")),
        "{scalar:?}"
    );
    assert_eq!(scalar.len(), 2 + 3);
}

#[test]
fn gemm_by_rows_and_formats() {
    let rows = rows("gemm", &["--threads", "1,2"]);
    let formats = ["f32", "bf16", "w8g0", "w4"];
    assert_eq!(rows.len(), 2 * formats.len() * 2);
    for (i, row) in rows.iter().enumerate() {
        let (format, m) = (formats[i / 2 % formats.len()], [1.0, 3.0][i % 2]);
        assert_eq!(row["params"]["format"], format);
        assert!(row["params"]["weights_bytes"].as_u64() >= Some(1 << 20), "{row}");
        assert_eq!(row["digest"], rows[i % 8]["digest"], "threads do not change bits");
        adds_up(row, m);
        assert_eq!(median(row, "l2_diff") == 0.0, format == "f32", "{row}");
        let limit = row["limit"].as_str().unwrap();
        assert!(limit == "read_bandwidth" || limit.ends_with("_peak"), "{limit}");
    }
    let scalar = self::rows("gemm", &["--isa", "scalar"]);
    for (one, other) in scalar.iter().zip(&rows) {
        assert_eq!(one["digest"], other["digest"], "tiers do not change bits");
    }
}

#[test]
fn a_curve_over_rows() {
    let quick = ["--formats", "w8", "--num-runs", "1"];
    for switch in ["--rows-curve", "--rows-curve=true"] {
        let curve = rows("gemm", &[&quick[..], &[switch]].concat());
        let m: Vec<_> = curve.iter().map(|row| row["params"]["m"].as_u64().unwrap()).collect();
        assert_eq!(m, (1..=32).collect::<Vec<_>>());
    }
}

#[test]
fn batches_decode_the_same_ids_with_any_threads() {
    let rows = rows("generate", &["--batch", "1,3,16", "--threads", "1,2"]);
    let cases: Vec<&str> = rows.iter().map(|row| row["case"].as_str().unwrap()).collect();
    let of =
        |t| ["prefill", "decode", "decode-recompute", "decode/b3", "decode/b16"].map(|c| format!("{c}/t{t}"));
    assert_eq!(cases, [of(1), of(2)].concat());
    for (one, two) in rows[..5].iter().zip(&rows[5..]) {
        assert_eq!(one["digest"], two["digest"]);
    }
    assert_ne!(rows[3]["digest"], rows[4]["digest"]);
    assert_eq!(rows[4]["params"]["batch"], 16);
    assert!(median(&rows[4], "decode_tokens_per_s") > 0.0);
}

#[test]
fn rates_of_a_generation_add_up() {
    let rows = rows("generate", &[]);
    let cases: Vec<&str> = rows.iter().map(|row| row["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["prefill/t1", "decode/t1", "decode-recompute/t1", "decode/b3/t1"]);
    let (decode, recompute, batch) = (&rows[1], &rows[2], &rows[3]);
    // Three new tokens of each sequence.
    for (row, tokens) in [(decode, 3.0), (batch, 9.0)] {
        let [rate, prefill, decode] =
            ["tokens_per_s", "prefill_s", "decode_s"].map(|name| samples(row, name));
        for i in 0..2 {
            assert!((rate[i] * (prefill[i] + decode[i]) / tokens - 1.0).abs() < 1e-9, "{row}");
        }
    }
    // Without a KV cache the three tokens take passes over 5, 6 and 7 tokens.
    let [all, new] = ["recomputed_tokens_per_s", "tokens_per_s"].map(|name| samples(recompute, name));
    for (all, new) in all.iter().zip(new) {
        assert!((all / new / 6.0 - 1.0).abs() < 1e-9, "{recompute}");
    }
    let speedup = median(decode, "tokens_per_s") / median(recompute, "tokens_per_s");
    assert!((median(recompute, "kv_cache_speedup") / speedup - 1.0).abs() < 1e-9, "{recompute}");
}

#[test]
fn forward_by_batch_length_and_logits() {
    let both = rows("forward", &["--length", "7,500"]);
    let cases: Vec<&str> = both.iter().map(|row| row["case"].as_str().unwrap()).collect();
    let expected = ["b1/l7", "b3/l7", "b1/l500", "b3/l500"];
    let expected = expected.map(|case| [format!("forward/{case}/t1"), format!("forward/{case}/all/t1")]);
    assert_eq!(cases, expected.concat());
    assert!(median(&both[2], "ms_per_token") > 0.0);
    both.iter().skip(2).take(2).for_each(|row| adds_up(row, 21.0));
    let last = rows("forward", &["--length", "7", "--logits", "last"]);
    let all = rows("forward", &["--length", "7", "--logits", "all", "--threads", "2"]);
    for (i, (last, all)) in last.iter().zip(&all).enumerate() {
        assert_eq!((&last["digest"], &last["params"]["logits"]), (&both[2 * i]["digest"], &"last".into()));
        assert_eq!((&all["digest"], &all["params"]["logits"]), (&both[2 * i + 1]["digest"], &"all".into()));
        assert_ne!(last["digest"], all["digest"], "one probability of each sequence, and one of each token");
    }
    assert_eq!((last.len(), all.len()), (2, 2));
}

#[test]
fn a_prompt_may_be_a_text() {
    let text = "And the king said unto";
    let with = |more: &[&str]| rows("generate", &[&["--prompt", text], more].concat());
    let prompted = with(&["--prompt-tokens", "99", "--new-tokens", "4"]);
    let tokens = redline(&["tokenize", "--model", "demo", text]).ok().out;
    for row in &prompted {
        assert_eq!(row["params"]["prompt"], text);
        assert_eq!(row["params"]["new_tokens"], 4);
        assert_eq!(row["params"]["prompt_tokens"], tokens.split_whitespace().count(), "{tokens}");
    }
    let answer =
        redline(&["generate", "--model", "demo", "--prompt", text, "--max-new-tokens", "4", "--json"]);
    let ids = answer.ok().completion().choices[0].token_ids.clone();
    assert_eq!(prompted[1]["digest"], redline_system::digest::of_ids(&ids), "{prompted:?}");
    assert_ne!(prompted[1]["digest"], with(&[])[1]["digest"], "of three new tokens");
    let filled = rows("diffusion", &["--prompt", text, "--arms", "exact"]);
    assert_eq!(
        (&filled[0]["params"]["prompt"], &filled[0]["params"]["new_tokens"]),
        (&text.into(), &8.into())
    );
}

/// The seed's sampler: its order of masks and its choice of tokens, and how much of the time they take.
#[test]
fn canvases_are_filled_as_the_flags_say() {
    let exact = |more: &[&str]| rows("diffusion", &[&["--arms", "naive,exact"], more].concat());
    let plain = exact(&[]);
    for row in &plain {
        let share = median(row, "sampling_share");
        assert!(share > 0.0 && share < 1.0, "{row}");
        assert_eq!((&row["params"]["steps"], &row["params"]["algorithm"]), (&8.into(), &"entropy".into()));
    }
    assert_eq!(plain[0]["digest"], plain[1]["digest"]);
    let fewer = exact(&["--steps", "4", "--algorithm", "maskgit-plus"]);
    assert_eq!((median(&plain[0], "passes"), median(&fewer[0], "passes")), (8.0, 4.0));
    assert_eq!(fewer[0]["params"]["algorithm"], "maskgit-plus");
    let more = exact(&["--steps", "20"]);
    assert_eq!((median(&more[0], "passes"), &more[0]["digest"]), (20.0, &more[1]["digest"]));
    assert!(median(&more[1], "passes") <= 8.0, "passes that fill nothing are left out: {}", more[1]);
    let sampled = exact(&["--temperature", "3", "--top-p", "0.9", "--top-k", "40", "--alg-temp", "0.5"]);
    assert_eq!(sampled[0]["digest"], sampled[1]["digest"]);
    assert_ne!(sampled[0]["digest"], plain[0]["digest"]);
    for (name, value) in [("temperature", 3.0), ("top_k", 40.0), ("alg_temp", 0.5)] {
        assert_eq!(sampled[0]["params"][name].as_f64(), Some(value), "{name}");
    }
    assert_ne!(exact(&["--temperature", "3", "--top-k", "1"])[0]["digest"], sampled[0]["digest"]);
    // Steps and order are those of the threshold.
    let threshold = rows("diffusion", &["--arms", "threshold", "--steps", "4", "--algorithm", "entropy"]);
    assert_eq!(threshold[0]["params"]["algorithm"], "maskgit-plus");
    assert_eq!(threshold[0]["params"]["steps"], Value::Null);
}

#[test]
fn memory_of_a_model_and_of_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("packed");
    let packed = packed.to_str().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo");
    redline(&["convert", source, packed, "--format", "w8"]).ok();
    let [whole, small] = [rows("memory", &[]), rows("memory", &["--model", packed])];
    for (whole, small) in whole.iter().zip(&small) {
        assert!(median(small, "weights") < 0.6 * median(whole, "weights"), "w8 against bf16");
        for row in [whole, small] {
            let batch = row["params"]["batch"].as_f64().unwrap();
            assert!(median(row, "loaded") >= median(row, "weights") + median(row, "activations"), "{row}");
            assert!(median(row, "load_peak") >= median(row, "loaded"), "{row}");
            assert!(median(row, "peak") >= median(row, "loaded") + median(row, "kv"), "{row}");
            assert!(median(row, "average") <= median(row, "peak"), "{row}");
            let grown = samples(row, "peak").into_iter().zip(samples(row, "loaded")).map(|(p, l)| p - l);
            for (grown, item) in grown.zip(samples(row, "per_item")) {
                assert_eq!(item * batch, grown + median(row, "activations"), "{row}");
            }
            assert!(median(row, "load_s") > 0.0);
        }
    }
    assert_eq!(whole.len(), 2);
    assert_eq!(median(&whole[1], "kv"), 2.0 * median(&whole[0], "kv"));
    // Two prompts in one pass need twice as much as one, but the memory is reserved for the largest pass.
    assert_eq!(median(&whole[1], "activations"), 2.0 * median(&whole[0], "activations"));
    let reserved = [0, 1].map(|i| median(&whole[i], "activations_reserved"));
    assert!(reserved[0] == reserved[1] && reserved[0] > median(&whole[1], "activations"), "{reserved:?}");
}

/// Models that fill masks: canvases are filled in one step, and their rows are not the rows of texts.
#[test]
fn lanes_of_a_model_that_fills_masks() {
    let masked = ["--model", "demo-diffusion"];
    let rows_of = |name, more: &[&str]| rows(name, &[&masked[..], more].concat());
    let both = rows_of("forward", &["--length", "7,40"]);
    let (forward, all): (Vec<Value>, Vec<Value>) =
        both.into_iter().partition(|row| row["params"]["logits"] == "last");
    let cases: Vec<&str> = forward.iter().map(|row| row["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["forward/b1/l7/t1", "forward/b3/l7/t1", "forward/b1/l40/t1", "forward/b3/l40/t1"]);
    adds_up(&forward[3], 120.0);
    let digests: Vec<&Value> = forward.iter().map(|row| &row["digest"]).collect();
    assert!(digests.iter().enumerate().all(|(i, digest)| !digests[..i].contains(digest)), "{digests:?}");
    let again = rows_of("forward", &["--length", "7,40", "--threads", "2", "--logits", "last"]);
    for ((one, two), all) in forward.iter().zip(&again).zip(&all) {
        assert_eq!(one["digest"], two["digest"], "with two threads");
        assert_eq!(one["digest"], all["digest"], "the same mask, with the logits of all rows");
    }
    let memory = rows_of("memory", &[]);
    assert_eq!(median(&memory[1], "kv"), 2.0 * median(&memory[0], "kv"));
    assert!(memory.iter().all(|row| median(row, "peak") >= median(row, "loaded") + median(row, "kv")));
}

#[test]
fn the_embedded_model_judges_what_the_other_one_filled_in() {
    for row in rows("diffusion", &[]) {
        assert!(median(&row, "perplexity") > 1.0, "{row}");
    }
}
