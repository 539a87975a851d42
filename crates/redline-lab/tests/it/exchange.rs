//! Import and export of other tools' formats.

use std::fs;

use redline_lab::compare::{Rules, compare};
use redline_lab::exchange::{self, Said};
use redline_lab::{Direction, Row, Run, Samples};
use serde_json::{Value, json};

const GBENCH_JSON: &str = include_str!("fixtures/exchange/gbench.json");
const GBENCH_CSV: &str = include_str!("fixtures/exchange/gbench.csv");

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
    row.metrics.get(metric).map(Samples::values).unwrap_or_default()
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
    let unit = |name: &str| run.rows[0].metrics.get(name).map(|m| (m.unit().to_owned(), m.direction()));
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
fn an_engine_stands_in_the_same_table() {
    let peer = import(GBENCH_JSON, true);
    let mut mine = peer.clone();
    mine.engine.name = "redline".to_owned();
    let told = compare(&peer, &mine, &Rules { different_machine: true, ..Rules::new(0.03) });
    assert_eq!(told.judged, 5, "{}", told.table());
    assert_eq!(
        compare(&peer, &mine, &Rules::new(0.03)).exit_code,
        4,
        "machines that nobody knows are not the same"
    );
    let unchecked = import(GBENCH_JSON, false);
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
            for (name, metric) in &b.metrics {
                assert_eq!(values(a, name), metric.values(), "{format} {name}");
                assert_eq!(a.metrics.get(name).unwrap().unit(), metric.unit(), "{format} {name}");
            }
        }
        assert_eq!(values(&back.rows[1], "real_time"), values(&run.rows[1], "decode_s"), "{format}");
    }
    let back = import(&export(&run, "gbench-json"), true);
    assert_eq!((&back.engine, &back.started_at, &back.lane), (&run.engine, &run.started_at, &run.lane));
    assert!(back.rows.iter().all(|row| row.params.get("threads") == Some(&2.into())));
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
}

#[test]
fn an_imported_run_is_a_run_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("peer");
    let run = import(GBENCH_JSON, true);
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
    for text in [GBENCH_JSON, GBENCH_CSV] {
        assert_eq!(import(&format!("\u{feff}{text}"), true), import(text, true));
    }
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
