//! Import and export of other tools' formats.

use std::fs;

use redline_lab::compare::{Rules, compare};
use redline_lab::exchange::{self, Said};
use redline_lab::{Direction, Metric, Row, Run, Samples};
use serde_json::{Value, json};

const GBENCH_JSON: &str = include_str!("fixtures/exchange/gbench.json");
const GBENCH_CSV: &str = include_str!("fixtures/exchange/gbench.csv");
const LLAMA_JSON: &str = include_str!("fixtures/exchange/llama-bench.json");
const LLAMA_JSONL: &str = include_str!("fixtures/exchange/llama-bench.jsonl");
const LLAMA_CSV: &str = include_str!("fixtures/exchange/llama-bench.csv");

#[track_caller]
fn import(text: &str, trust: bool) -> Run {
    exchange::import(text, None, &Said { engine: None, trust }).expect("the file is good")
}

#[track_caller]
fn export(run: &Run, format: &str) -> String {
    let format = exchange::format(format).expect("the format is known");
    exchange::export(run, format, true).expect("the run has a form in it").text
}

#[track_caller]
fn values<'a>(row: &'a Row, metric: &str) -> &'a [f64] {
    row.metrics.get(metric).map(Metric::samples).map(Samples::values).unwrap_or_default()
}

fn near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{found:?} {expected:?}");
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= 1e-12 * b.abs(), "{found:?} {expected:?}");
    }
}

fn cases(run: &Run) -> Vec<&str> {
    run.rows.iter().map(|row| row.case.as_str()).collect()
}

/// A run of this engine with hostile names, several metrics and arms.
fn ours() -> Run {
    let row = |case: &str, rate: &str, rates: &[f64]| {
        let rates = Samples::new("tokens/s", Direction::Higher, rates.to_vec()).unwrap();
        let mut row = Row::new(case)
            .param("model", "a \"b\", c'; DROP TABLE test; --|x")
            .param("threads", 2)
            .param("format", "w4")
            .param("kv_format", "bf16")
            .metric(rate, rates);
        row.checked = true;
        row.kernel_path = Some("avx512 \"x\",\n|y".to_owned());
        row
    };
    let seconds = Samples::new("s", Direction::Lower, vec![0.125, 0.3, 1.0 / 3.0]).unwrap();
    let rows = vec![
        row("prefill/t2", "prefill_tokens_per_s", &[100.1, 200.7, 1e3 / 7.0])
            .param("prompt_tokens", 64)
            .param("new_tokens", 9),
        row("decode/t2", "decode_tokens_per_s", &[10.1, 20.7, 1e2 / 7.0])
            .param("prompt_tokens", 64)
            .param("new_tokens", 9)
            .param("kv_cache", true)
            .metric("decode_s", seconds),
    ];
    let document = json!({
        "schema": redline_lab::run::SCHEMA, "engine": {"name": "redline", "version": "0.1.0", "git": "abc'\"d"},
        "machine": {"summary": "a, b | c", "fingerprint": "f"}, "lane": "generate", "started_at": "2026-01-01T00:00:00Z", "rows": rows,
    });
    Run::parse(&document.to_string()).unwrap()
}

#[test]
fn google_benchmark_tells_repetitions_and_machine() {
    let run = import(GBENCH_JSON, true);
    assert_eq!((run.engine.name.as_str(), run.lane.as_str()), ("bench_gemm", "google-benchmark"));
    assert_eq!(run.started_at.as_deref(), Some("2026-03-02T10:11:12+00:00"));
    assert_eq!(run.machine.summary(), Some("bench-01, 16 processors, 3400 MHz"));
    assert_eq!(run.machine.fingerprint(), None);
    assert_eq!(cases(&run), ["BM_gemm/64", "BM_only/8", "BM_broken"]);
    near(values(&run.rows[0], "real_time"), &[1502.25e-6, 1498.5e-6, 1510.75e-6]);
    assert_eq!(values(&run.rows[0], "flops"), [2.5, 3.5, 4.5]);
    let unit = |name: &str| {
        run.rows[0].metrics.get(name).map(|m| (m.samples().unit().to_owned(), m.samples().direction()))
    };
    assert_eq!(unit("items_per_second"), Some(("items/s".to_owned(), Direction::Higher)));
    assert_eq!(unit("real_time"), Some(("s".to_owned(), Direction::Lower)));
    assert_eq!(unit("flops"), Some((String::new(), Direction::Info)));
    // Only statistics: the median stands for the case and is marked as such.
    near(values(&run.rows[1], "real_time"), &[2.25e-3]);
    assert_eq!(run.rows[1].params.get("aggregate"), Some(&"median".into()));
    assert_eq!(run.rows[1].params.get("threads"), Some(&8.into()));
    // The caller's trust does not extend to failed cases.
    assert_eq!(run.rows.iter().map(|row| row.checked).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(run.rows[2].params.get("error"), Some(&"no such file".into()));
    assert!(import(GBENCH_JSON, false).rows.iter().all(|row| row.invalid().is_some()));
}

#[test]
fn google_benchmark_csv_tells_the_same() {
    let (json, csv) = (import(GBENCH_JSON, true), import(GBENCH_CSV, true));
    assert_eq!(cases(&csv), cases(&json));
    assert_eq!(csv.engine.name, "unknown");
    for (a, b) in csv.rows.iter().zip(&json.rows) {
        for name in ["real_time", "items_per_second", "flops"] {
            near(values(a, name), values(b, name));
        }
        assert_eq!((a.params.get("aggregate"), a.checked), (b.params.get("aggregate"), b.checked));
    }
    assert_eq!(csv.rows[1].params.get("label"), Some(&"a \"w4\", packed".into()));
}

#[test]
fn llama_bench_becomes_the_cases_of_our_lanes() {
    let run = import(LLAMA_JSON, true);
    assert_eq!(run.engine.one_line(), "llama.cpp b6123 (4f1c2aa9)");
    assert_eq!(run.lane, "generate");
    assert_eq!(run.machine.summary(), Some("Example 16-Core Processor"));
    assert_eq!(
        cases(&run),
        ["prefill/t8", "decode/t8/prompt_tokens:0", "decode/t8/prompt_tokens:512", "prompt-and-generate/t8"]
    );
    assert_eq!(values(&run.rows[0], "prefill_tokens_per_s"), [319.753, 320.247, 317.55]);
    assert_eq!(values(&run.rows[0], "seconds"), [1.601234567, 1.598765432, 1.612345678]);
    let param = |row: usize, name: &str| run.rows[row].params.get(name).cloned().unwrap_or_default();
    assert_eq!(
        (param(0, "prompt_tokens"), param(0, "format"), param(0, "kv_format")),
        (512.into(), "Q4_0".into(), "f16".into())
    );
    // 128 passes after 512 stored tokens: a decoding of 129 tokens, the first of which comes from the prompt's pass.
    assert_eq!(
        (param(2, "prompt_tokens"), param(2, "new_tokens"), param(2, "kv_cache")),
        (512.into(), 129.into(), true.into())
    );
    assert_eq!(values(&run.rows[2], "decode_s"), [3.403456789, 3.398765432, 3.42456789]);
    assert_eq!(run.rows[0].kernel_path.as_deref(), Some("CPU"));
    assert_eq!(import(LLAMA_JSONL, true), run);
}

#[test]
fn prompts_alone_are_the_lane_forward() {
    let mut tests: Value = serde_json::from_str(LLAMA_JSON).unwrap();
    tests.as_array_mut().unwrap().truncate(1);
    let run = import(&tests.to_string(), false);
    assert_eq!((run.lane.as_str(), cases(&run)), ("forward", vec!["forward/b1/l512/t8"]));
    assert_eq!(run.rows[0].params.get("length"), Some(&512.into()));
    let told: Vec<&str> = run.rows[0].metrics.iter().map(|(name, _)| name).collect();
    assert_eq!(told, ["tokens_per_s", "seconds"]);
    // The same test at another time is another process.
    let mut again = tests[0].clone();
    again["test_time"] = "2026-03-03T00:00:00Z".into();
    again["stddev_ts"] = 5.0.into();
    tests.as_array_mut().unwrap().push(again);
    let run = import(&tests.to_string(), false);
    assert_eq!(
        (run.rows.len(), run.rows[0].metrics.get("tokens_per_s").unwrap().samples().processes().len()),
        (1, 2)
    );
    assert_eq!(run.started_at.as_deref(), Some("2026-03-02T10:20:00Z"));
}

#[test]
fn comma_separated_values_say_that_they_have_a_mean() {
    let (full, run) = (import(LLAMA_JSON, true), import(LLAMA_CSV, true));
    assert_eq!((cases(&run), &run.engine), (cases(&full), &full.engine));
    for (mean, all) in run.rows.iter().zip(&full.rows) {
        let (name, samples) = all.metrics.iter().next().map(|(n, m)| (n, m.samples())).unwrap();
        let found = values(mean, name);
        assert!(found.len() == 1 && (found[0] - samples.mean().unwrap()).abs() < 0.006, "{found:?}");
        assert_eq!(mean.params.get("aggregate"), Some(&"mean".into()));
        assert_eq!(values(mean, "deviation").len(), 1);
    }
}

#[test]
fn an_engine_stands_in_the_same_table() {
    let peer = import(LLAMA_JSON, true);
    let mut mine = peer.clone();
    mine.engine.name = "redline".to_owned();
    let told = compare(&peer, &mine, &Rules { different_machine: true, ..Rules::new(0.03) });
    assert_eq!((told.exit_code, told.judged), (0, 7), "{}", told.table());
    assert_eq!(
        compare(&peer, &mine, &Rules::new(0.03)).exit_code,
        4,
        "machines that nobody knows are not the same"
    );
    let unchecked = import(LLAMA_JSON, false);
    assert_eq!(
        compare(&unchecked, &mine, &Rules { different_machine: true, ..Rules::new(0.03) }).exit_code,
        5
    );
}

#[test]
fn every_format_gives_back_the_samples_it_was_given() {
    let run = ours();
    for format in ["gbench-json", "gbench-csv"] {
        let back = import(&export(&run, format), true);
        assert_eq!(cases(&back), cases(&run), "{format}");
        for (a, b) in back.rows.iter().zip(&run.rows) {
            for (name, metric) in b.metrics.iter() {
                assert_eq!(values(a, name), metric.samples().values(), "{format} {name}");
                assert_eq!(
                    a.metrics.get(name).unwrap().samples().unit(),
                    metric.samples().unit(),
                    "{format} {name}"
                );
            }
        }
        assert_eq!(values(&back.rows[1], "real_time"), values(&run.rows[1], "decode_s"), "{format}");
    }
    let back = import(&export(&run, "gbench-json"), true);
    assert_eq!(
        (&back.engine.name, &back.engine.git, &back.lane),
        (&run.engine.name, &run.engine.git, &run.lane)
    );
    for format in ["llama-bench-json", "llama-bench-jsonl"] {
        let back = import(&export(&run, format), true);
        assert_eq!(
            (cases(&back), &back.engine.name, &back.engine.version),
            (cases(&run), &run.engine.name, &run.engine.version)
        );
        for (row, name) in [(0, "prefill_tokens_per_s"), (1, "decode_tokens_per_s")] {
            assert_eq!(values(&back.rows[row], name), values(&run.rows[row], name), "{format}");
        }
        for name in ["model", "threads", "format", "kv_format", "prompt_tokens"] {
            assert_eq!(back.rows[0].params.get(name), run.rows[0].params.get(name), "{format} {name}");
        }
        assert_eq!(back.rows[1].params.get("new_tokens"), Some(&9.into()));
        assert_eq!(back.rows[1].kernel_path, run.rows[1].kernel_path);
    }
    let back = import(&export(&run, "llama-bench-csv"), true);
    assert_eq!(cases(&back), cases(&run));
    let mean = run.rows[1].metrics.get("decode_tokens_per_s").unwrap().samples().mean();
    assert_eq!(values(&back.rows[1], "decode_tokens_per_s"), [mean.unwrap()]);
}

#[test]
fn what_was_read_is_written_as_it_was() {
    let given: Value = serde_json::from_str(LLAMA_JSON).unwrap();
    let written: Value =
        serde_json::from_str(&export(&import(LLAMA_JSON, true), "llama-bench-json")).unwrap();
    for (a, b) in given.as_array().unwrap().iter().zip(written.as_array().unwrap()) {
        for (name, value) in a.as_object().unwrap() {
            match name.as_str() {
                // A run has only one time; values that follow from the samples are recomputed.
                "test_time" | "avg_ns" | "stddev_ns" | "avg_ts" | "stddev_ts" | "samples_ns" => {}
                _ => assert_eq!(&b[name], value, "{name}"),
            }
        }
    }
    let read = import(LLAMA_CSV, true);
    assert_eq!(cases(&import(&export(&read, "llama-bench-csv"), true)), cases(&read));
}

#[test]
fn comma_separated_values_quote_what_is_hostile() {
    let csv = export(&ours(), "llama-bench-csv");
    assert!(csv.contains("\"a \"\"b\"\", c'; DROP TABLE test; --|x\""), "{csv}");
}

#[test]
fn trackers_get_headlines_and_intervals() {
    let run = ours();
    let bmf: Value = serde_json::from_str(&export(&run, "bmf")).unwrap();
    assert_eq!(bmf["generate/decode/t2"]["decode_s"]["value"], 0.3);
    assert_eq!(bmf["generate/decode/t2"]["decode_tokens_per_s"]["value"], 1e2 / 7.0);
    assert!(
        bmf["generate/decode/t2"]["decode_s"].get("lower_value").is_none(),
        "three samples have no interval"
    );
    let bigger: Value = serde_json::from_str(&export(&run, "github-action")).unwrap();
    let names: Vec<&str> = bigger.as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["generate/prefill/t2: prefill_tokens_per_s", "generate/decode/t2: decode_tokens_per_s"]
    );
    assert_eq!(bigger[0]["unit"], "tokens/s");
    let smaller: Value = serde_json::from_str(&export(&run, "github-action-smaller")).unwrap();
    assert_eq!((smaller.as_array().unwrap().len(), &smaller[0]["value"]), (1, &json!(0.3)));
}

#[test]
fn an_imported_run_is_a_run_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("peer");
    let run = import(LLAMA_JSON, true);
    run.write(&dir).unwrap();
    assert_eq!(Run::read(&dir).unwrap(), run);
    assert!(fs::read_to_string(dir.join("samples.csv")).unwrap().lines().count() > 12);
}

fn samples(unit: &str, direction: Direction, values: &[f64]) -> Samples {
    Samples::new(unit, direction, values.to_vec()).unwrap()
}

/// A run of lane `generate` with these rows.
fn run_of(rows: Vec<Row>) -> Run {
    let engine = json!({"name": "redline"});
    let document =
        json!({"schema": redline_lab::run::SCHEMA, "engine": engine, "lane": "generate", "rows": rows});
    Run::parse(&document.to_string()).unwrap()
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_file() {
    for text in [GBENCH_JSON, GBENCH_CSV, LLAMA_JSON, LLAMA_JSONL, LLAMA_CSV] {
        assert_eq!(import(&format!("\u{feff}{text}"), true), import(text, true));
    }
}

#[test]
fn what_is_not_known_is_blank_and_read_as_unknown() {
    // Without a number of threads, a model, a machine and a start.
    let rate = samples("tokens/s", Direction::Higher, &[50.0]);
    let row = Row::new("decode").param("prompt_tokens", 64).param("new_tokens", 9);
    let run = run_of(vec![row.metric("decode_tokens_per_s", rate)]);
    for format in ["llama-bench-json", "llama-bench-jsonl", "llama-bench-csv"] {
        let back = import(&export(&run, format), true);
        assert_eq!((cases(&back), back.rows[0].params.get("threads")), (vec!["decode"], None), "{format}");
        assert_eq!(values(&back.rows[0], "decode_tokens_per_s"), [50.0], "{format}");
    }
    // A single sample deviates by 0, which is a number like any other.
    let back = import(&export(&run, "llama-bench-csv"), true);
    assert_eq!(values(&back.rows[0], "deviation"), [0.0]);
}

#[test]
fn a_rate_without_a_time_gives_the_time_of_an_item() {
    let rate = samples("tokens/s", Direction::Higher, &[4.0, 8.0]);
    // Lower is better, but this is no time.
    let memory = samples("bytes", Direction::Lower, &[1e6, 2e6]);
    let run = run_of(vec![Row::new("a").metric("peak_memory", memory).metric("tokens_per_s", rate)]);
    for format in ["gbench-json", "gbench-csv"] {
        let back = import(&export(&run, format), true);
        assert_eq!(values(&back.rows[0], "real_time"), [0.25, 0.125], "{format}");
        assert!(back.rows[0].metrics.get("cpu_time").is_none(), "{format}: it was not measured");
        assert_eq!(values(&back.rows[0], "peak_memory"), [1e6, 2e6], "{format}");
    }
}

#[test]
fn processor_time_is_kept_beside_elapsed_time() {
    let seconds = samples("s", Direction::Lower, &[0.25, 0.125]);
    let cpu = samples("s", Direction::Info, &[0.5, 0.375]);
    let run = run_of(vec![Row::new("a").metric("seconds", seconds).metric("cpu_time", cpu)]);
    for format in ["gbench-json", "gbench-csv"] {
        let back = import(&export(&run, format), true);
        assert_eq!(values(&back.rows[0], "real_time"), [0.25, 0.125], "{format}");
        assert_eq!(values(&back.rows[0], "cpu_time"), [0.5, 0.375], "{format}");
    }
}

#[test]
fn google_benchmark_keeps_the_build_the_start_and_the_threads() {
    let run = ours();
    let back = import(&export(&run, "gbench-json"), true);
    assert_eq!((&back.engine, &back.started_at), (&run.engine, &run.started_at));
    assert!(back.rows.iter().all(|row| row.params.get("threads") == Some(&2.into())));
}

#[test]
fn what_llama_bench_does_not_do_is_left_out() {
    let row = |case: &str| {
        let row = Row::new(case).param("prompt_tokens", 64).param("new_tokens", 9);
        row.metric("tokens_per_s", samples("tokens/s", Direction::Higher, &[5.0]))
    };
    let run = run_of(vec![
        row("decode/t1").param("batch", 1),
        row("decode/b3/t1").param("batch", 3),
        row("decode-recompute/t1").param("kv_cache", false),
    ]);
    for name in ["llama-bench-json", "llama-bench-jsonl", "llama-bench-csv"] {
        let exported = exchange::export(&run, exchange::format(name).unwrap(), true).unwrap();
        let notes = [
            "`decode/b3/t1` is left out: 3 sequences together, but llama-bench runs one",
            "`decode-recompute/t1` is left out: it ran without a KV cache, but llama-bench has one",
        ];
        assert_eq!(exported.notes, notes, "{name}");
        assert_eq!(cases(&import(&exported.text, true)), ["decode"], "{name}");
    }
}

#[test]
fn prompts_keep_the_number_of_tokens_stored_before_them() {
    let tests = json!([{
        "n_prompt": 512, "n_gen": 0, "n_depth": 1024, "n_threads": 2, "avg_ts": 100.0, "samples_ts": [99.0, 101.0]
    }]);
    let run = import(&tests.to_string(), true);
    assert_eq!(
        (cases(&run), run.rows[0].params.get("n_depth")),
        (vec!["forward/b1/l512/d1024/t2"], Some(&1024.into()))
    );
    let written: Value = serde_json::from_str(&export(&run, "llama-bench-json")).unwrap();
    assert_eq!((&written[0]["n_prompt"], &written[0]["n_depth"]), (&512.into(), &1024.into()));
}

#[test]
fn trackers_get_each_end_of_an_interval() {
    let six = [1.0, 2.0, 3.0, 4.0, 5.0, 9.0];
    let row = Row::new("a")
        .metric("seconds", samples("s", Direction::Lower, &six))
        .metric("rate", samples("tokens/s", Direction::Higher, &six))
        .metric("share", samples("share", Direction::Info, &six));
    let run = run_of(vec![row]);
    let bmf: Value = serde_json::from_str(&export(&run, "bmf")).unwrap();
    let measure = &bmf["generate/a"]["seconds"];
    assert_eq!(
        (&measure["lower_value"], &measure["value"], &measure["upper_value"]),
        (&1.0.into(), &3.5.into(), &9.0.into())
    );
    assert!(bmf["generate/a"].get("share").is_none(), "nobody knows which share is better");
    let format = exchange::format("github-action-smaller").unwrap();
    let exported = exchange::export(&run, format, true).unwrap();
    let smaller: Value = serde_json::from_str(&exported.text).unwrap();
    assert_eq!(
        (smaller.as_array().map(Vec::len), &smaller[0]["range"]),
        (Some(1), &"± 5.500".into()),
        "the end that is further away"
    );
    assert_eq!(exported.notes, ["1 metric left out: `--to github-action` writes them"]);
}

#[test]
fn a_rate_of_streams_and_prompts_together_is_no_test_of_llama_bench() {
    let rate = samples("tokens/s", Direction::Higher, &[900.0]);
    let row = Row::new("mixed/s8/p2000/t1")
        .param("streams", 8)
        .param("prompt_tokens", 2000)
        .param("new_tokens", 64);
    let run = run_of(vec![row.metric("total_tokens_per_s", rate)]);
    let format = exchange::format("llama-bench-json").unwrap();
    assert!(exchange::export(&run, format, true).is_err());
}

#[test]
fn the_name_of_a_model_is_no_format_of_weights() {
    let rate = samples("tokens/s", Direction::Higher, &[50.0]);
    let row = Row::new("decode").param("model", "Qwen3-0.6B").param("format", "w8");
    let row = row.param("prompt_tokens", 64).param("new_tokens", 9).metric("decode_tokens_per_s", rate);
    let back = import(&export(&run_of(vec![row]), "llama-bench-json"), true);
    assert_eq!(back.rows[0].params.get("format"), Some(&"w8".into()));
}

/// A test of llama-bench with these fields, next to its samples.
fn test_of(fields: Value) -> Value {
    let mut test = json!({"n_prompt": 512, "n_gen": 0, "samples_ts": [5.0]});
    test.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    test
}

#[test]
fn google_benchmark_is_told_the_machine_and_each_repetition() {
    let written: Value = serde_json::from_str(&export(&ours(), "gbench-json")).unwrap();
    let context = &written["context"];
    assert_eq!((&context["machine"], &context["fingerprint"]), (&"a, b | c".into(), &"f".into()));
    let entries = written["benchmarks"].as_array().unwrap();
    let numbers = |name: &str| entries.iter().map(|e| e[name].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(numbers("family_index"), [0, 0, 0, 1, 1, 1]);
    assert_eq!(numbers("repetition_index"), [0, 1, 2, 0, 1, 2]);
    assert_eq!(numbers("repetitions"), [3; 6]);
}

#[test]
fn parameters_are_a_label_of_plain_words() {
    let row = Row::new("a").param("format", "w4").param("threads", 2);
    let run = run_of(vec![row.metric("seconds", samples("s", Direction::Lower, &[1.0]))]);
    let written: Value = serde_json::from_str(&export(&run, "gbench-json")).unwrap();
    assert_eq!(written["benchmarks"][0]["label"], "format=w4 threads=2");
}

#[test]
fn a_time_of_zero_is_a_time() {
    let run = run_of(vec![Row::new("a").metric("seconds", samples("s", Direction::Lower, &[0.0, 1.0]))]);
    let back = import(&export(&run, "gbench-json"), true);
    assert_eq!(values(&back.rows[0], "real_time"), [0.0, 1.0]);
}

#[test]
fn the_time_of_the_processor_is_kept_apart() {
    let run = import(GBENCH_JSON, true);
    for format in ["gbench-json", "gbench-csv"] {
        let back = import(&export(&run, format), true);
        for name in ["real_time", "cpu_time"] {
            near(values(&back.rows[0], name), values(&run.rows[0], name));
        }
    }
}

#[test]
fn what_a_list_of_repetitions_cannot_hold_is_told() {
    let seconds = Samples::by_process("s", Direction::Lower, &[vec![1.0], vec![2.0]]).unwrap();
    let tokens = samples("tokens", Direction::Info, &[1.0, 2.0, 3.0]);
    let run = run_of(vec![Row::new("a").metric("seconds", seconds).metric("tokens", tokens)]);
    let exported = exchange::export(&run, exchange::format("gbench-json").unwrap(), true).unwrap();
    let notes = [
        "`a` has 2 repetitions: `tokens` is cut to as many samples",
        "`cpu_time` is left out where lane `generate` does not measure it",
        "samples of 2 processes stand in one list: this format does not tell them apart",
    ];
    assert_eq!(exported.notes, notes);
}

#[test]
fn a_case_that_cannot_be_tracked_is_no_benchmark() {
    let told = Row::new("told").metric("share", samples("share", Direction::Info, &[0.5]));
    let timed = Row::new("a").metric("seconds", samples("s", Direction::Lower, &[1.0]));
    let bmf: Value = serde_json::from_str(&export(&run_of(vec![timed, told.clone()]), "bmf")).unwrap();
    assert_eq!(bmf.as_object().unwrap().keys().collect::<Vec<_>>(), ["generate/a"]);
    let error = exchange::export(&run_of(vec![told]), exchange::format("bmf").unwrap(), true).unwrap_err();
    assert!(error.fact.contains("no metric of lane `generate`"), "{error}");
}

#[test]
fn a_range_reaches_to_the_end_that_is_further_away() {
    let seconds = samples("s", Direction::Lower, &[1.0, 6.0, 7.0, 8.0, 9.0, 9.5]);
    let run = run_of(vec![Row::new("a").metric("seconds", seconds)]);
    let smaller: Value = serde_json::from_str(&export(&run, "github-action-smaller")).unwrap();
    assert_eq!(
        (&smaller[0]["value"], &smaller[0]["range"], &smaller[0]["extra"]),
        (&7.5.into(), &"± 6.500".into(), &"redline, 6 samples".into())
    );
}

#[test]
fn a_run_starts_with_its_earliest_test() {
    let test = |tokens: u64, time: &str| test_of(json!({"n_prompt": tokens, "test_time": time}));
    let tests = json!([test(8, "2026-03-02T10:30:00Z"), test(16, "2026-03-02T10:20:00Z")]);
    let run = import(&tests.to_string(), true);
    assert_eq!(run.started_at.as_deref(), Some("2026-03-02T10:20:00Z"));
    for format in ["llama-bench-json", "llama-bench-jsonl", "llama-bench-csv"] {
        assert_eq!(import(&export(&run, format), true).started_at, run.started_at, "{format}");
    }
}

#[test]
fn a_machine_has_both_its_processors_and_a_build_may_be_unknown() {
    let facts = json!({"build_commit": "unknown", "cpu_info": "a processor", "gpu_info": "a card"});
    let run = import(&json!([test_of(facts)]).to_string(), true);
    assert_eq!((run.engine.git.as_deref(), run.machine.summary()), (None, Some("a processor, a card")));
}

#[test]
fn a_setting_that_one_test_alone_has_tells_it_apart() {
    let bound = test_of(json!({"cpu_mask": "0x1", "test_time": "b"}));
    let tests = json!([test_of(json!({"test_time": "a"})), bound]);
    assert_eq!(cases(&import(&tests.to_string(), true)), ["forward/b1/l512", "forward/b1/l512/cpu_mask:0x1"]);
}

#[test]
fn lists_that_are_null_are_no_samples() {
    let tests = json!([test_of(json!({"samples_ts": null, "samples_ns": null, "avg_ts": 7.0}))]);
    let run = import(&tests.to_string(), true);
    assert_eq!(values(&run.rows[0], "tokens_per_s"), [7.0]);
    assert_eq!(run.rows[0].params.get("aggregate"), Some(&"mean".into()));
}

#[test]
fn switches_are_numbers_where_all_is_text() {
    let back = import(&export(&import(LLAMA_JSON, true), "llama-bench-csv"), true);
    let switch = |name: &str| back.rows[0].params.get(name).cloned();
    assert_eq!((switch("cpu_strict"), switch("use_mmap")), (Some("0".into()), Some("1".into())));
}

#[test]
fn settings_that_were_text_get_their_types_back() {
    let given: Value = serde_json::from_str(LLAMA_JSON).unwrap();
    let written: Value = serde_json::from_str(&export(&import(LLAMA_CSV, true), "llama-bench-json")).unwrap();
    for name in
        ["model_type", "model_size", "n_batch", "n_threads", "tensor_split", "cpu_strict", "use_mmap", "poll"]
    {
        assert_eq!(written[0][name], given[0][name], "{name}");
    }
}

#[test]
fn settings_of_later_versions_are_parameters() {
    let run = import(&json!([test_of(json!({"n_cpu_moe": 4, "devices": ""}))]).to_string(), true);
    let params = &run.rows[0].params;
    assert_eq!((params.get("n_cpu_moe"), params.get("devices")), (Some(&4.into()), None));
}

#[test]
fn the_format_of_weights_stands_behind_the_name_of_the_model() {
    for (kind, format) in [
        ("qwen3 8B IQ4_NL - 4.5 bpw", Some("IQ4_NL - 4.5 bpw")),
        ("llama 1B TQ1_0 - 1.69 bpw ternary", Some("TQ1_0 - 1.69 bpw ternary")),
        ("gpt-oss 20B MXFP4 MoE", Some("MXFP4 MoE")),
        ("Qwen3 0.6B BF16", Some("BF16")),
        ("Qwen3 8B", None),
    ] {
        let run = import(&json!([test_of(json!({"model_type": kind}))]).to_string(), true);
        let params = &run.rows[0].params;
        assert_eq!(params.get("format"), format.map(Value::from).as_ref(), "{kind}");
        assert_eq!(params.get("model"), Some(&kind.into()), "a file has no other name");
    }
}

#[test]
fn keys_and_values_may_have_formats_of_their_own() {
    for (fields, format) in [
        (json!({"type_k": "f16", "type_v": "q8_0"}), "f16/q8_0"),
        (json!({"type_k": "f16", "type_v": "f16"}), "f16"),
        (json!({"type_v": "q8_0"}), "q8_0"),
    ] {
        let run = import(&json!([test_of(fields)]).to_string(), true);
        assert_eq!(run.rows[0].params.get("kv_format"), Some(&format.into()));
    }
}

#[test]
fn prompts_with_generation_keep_the_tokens_stored_before_them() {
    let tests = json!([test_of(json!({"n_gen": 128, "n_depth": 256, "n_threads": 2}))]);
    let run = import(&tests.to_string(), true);
    assert_eq!(cases(&run), ["prompt-and-generate/d256/t2"]);
    let written: Value = serde_json::from_str(&export(&run, "llama-bench-json")).unwrap();
    let numbers = ["n_prompt", "n_gen", "n_depth"].map(|name| written[0][name].as_u64());
    assert_eq!(numbers, [Some(512), Some(128), Some(256)]);
}

/// A decoding of eight passes at these rates.
fn decoding(case: &str, rates: &[f64]) -> Row {
    let row = Row::new(case).param("prompt_tokens", 64).param("new_tokens", 9);
    row.metric("decode_tokens_per_s", samples("tokens/s", Direction::Higher, rates))
}

#[test]
fn a_rate_that_takes_no_time_is_left_out() {
    let rows = vec![decoding("decode", &[50.0]), decoding("halted", &[0.0]), decoding("fast", &[1e12])];
    let format = exchange::format("llama-bench-json").unwrap();
    let exported = exchange::export(&run_of(rows), format, true).unwrap();
    let notes = ["halted", "fast"]
        .map(|name| format!("`{name}` is left out: a rate of 0, or no tokens, has no time"));
    assert_eq!(exported.notes, notes);
    assert_eq!(cases(&import(&exported.text, true)), ["decode"]);
}

#[test]
fn means_and_deviations_of_times_and_rates_stand_in_their_fields() {
    // Eight passes take 80, 40 and 20 ms.
    let run = run_of(vec![decoding("decode", &[100.0, 200.0, 400.0])]);
    let written: Value = serde_json::from_str(&export(&run, "llama-bench-json")).unwrap();
    let number = |name: &str| written[0][name].as_f64().unwrap();
    assert_eq!((number("avg_ns"), number("stddev_ns")), (46_666_667.0, 30_550_505.0));
    let rates = run.rows[0].metrics.get("decode_tokens_per_s").unwrap().samples();
    near(&[number("avg_ts"), number("stddev_ts")], &[rates.mean().unwrap(), rates.std().unwrap()]);
}
