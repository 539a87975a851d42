//! The columns of `results.csv` and `samples.csv`: each number is under its name.

use std::collections::BTreeMap;

use crate::small_machine;
use redline_lab::conditions::{Condition, Taint};
use redline_lab::result::LaneResult;
use redline_lab::run::{Build, Start};
use redline_lab::warmup::Warmup;
use redline_lab::{Direction, Row, Run, Samples};
use serde_json::Value;

fn run(rows: Vec<Row>) -> Run {
    let result = LaneResult { lane: "generate".into(), machine: small_machine(), rows };
    let build = Build {
        name: "redline".into(),
        version: Some("0.1.0".into()),
        git: Some("abc".into()),
        dirty: Some(false),
        ..Build::default()
    };
    let run = Run::new(build, Start::default(), result).unwrap();
    Run { profile: Some("smoke".into()), ..run }
}

/// A line of comma-separated values by column name. Only the last cell may contain a comma.
fn line(csv: &str, number: usize) -> BTreeMap<&str, &str> {
    let mut lines = csv.lines().map(|line| line.split(','));
    let header = lines.next().unwrap();
    header.zip(lines.nth(number).unwrap()).collect()
}

#[track_caller]
fn holds(line: &BTreeMap<&str, &str>, expect: &[(&str, &str)]) {
    for (column, text) in expect {
        assert_eq!(line[column], *text, "{column}");
    }
}

/// Squares of 0 to 399 in another order: every statistic of them is a different number.
fn squares() -> Vec<f64> {
    (0..400).map(|i| f64::from((i * 7 + 300) % 400).powi(2)).collect()
}

/// A percentile of those squares, computed by hand: ranks from 0 to 399, linear between neighbours.
fn percentile(p: f64) -> f64 {
    let place = 399.0 * p / 100.0;
    let (below, above) = (place.floor().powi(2), place.ceil().powi(2));
    below * (1.0 - place.fract()) + above * place.fract()
}

#[test]
fn statistics_stand_in_their_columns() {
    let metric = Samples::new("s", Direction::Lower, squares()).unwrap();
    let csv = run(vec![Row::new("a").metric("seconds", metric.clone())]).results_csv();
    let cells = line(&csv, 0);
    let number = |column: &str| -> f64 { cells[column].parse().unwrap_or_else(|_| panic!("{column}")) };
    let interval = metric.interval().unwrap();
    let median = f64::midpoint(199.0 * 199.0, 200.0 * 200.0);
    let mean = (399.0 * 400.0 * 799.0 / 6.0) / 400.0;
    let expect = [
        ("value", median),
        ("ci_low", interval.low),
        ("ci_high", interval.high),
        ("n_process", 1.0),
        ("n_sample", 400.0),
        ("mean", mean),
        ("std", metric.std().unwrap()),
        ("median", median),
        ("mad", metric.mad().unwrap()),
        ("cv", metric.std().unwrap() / mean),
        ("min", 0.0),
        ("max", 399.0 * 399.0),
        ("p50", percentile(50.0)),
        ("p90", percentile(90.0)),
        ("p95", percentile(95.0)),
        ("p99", percentile(99.0)),
        ("lag1_autocorr", metric.autocorrelation().unwrap()),
    ];
    let wrong: Vec<String> = expect
        .iter()
        .map(|(column, value)| (column, value, number(column)))
        .filter(|(_, value, found)| (found - *value).abs() > 1e-9 * value.abs())
        .map(|(column, value, found)| format!("{column} is {found}, not {value}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(number("ci_low") < median && median < number("ci_high"));
    // All values differ enough that swapping two columns would be noticed, except the two medians, which are equal.
    for (i, (a, x)) in expect.iter().enumerate() {
        for (b, y) in &expect[i + 1..] {
            let one = ["value", "median", "p50"];
            assert!((one.contains(a) && one.contains(b)) || (x - y).abs() > 1e-6 * x.abs(), "{a} {b}");
        }
    }
    holds(
        &cells,
        &[
            ("metric", "seconds"),
            ("unit", "s"),
            ("direction", "lower"),
            ("estimator", "median_of_process_medians"),
            ("ci_level", "0.95"),
            ("ci_method", "order statistics"),
        ],
    );
}

#[test]
fn the_headline_is_not_the_median_of_all_samples() {
    let metric = Samples::by_process("s", Direction::Lower, &[vec![1.0; 5], vec![2.0], vec![4.0]]).unwrap();
    let csv = run(vec![Row::new("a").metric("seconds", metric)]).results_csv();
    holds(&line(&csv, 0), &[("value", "2"), ("median", "1"), ("n_process", "3"), ("n_sample", "7")]);
    holds(&line(&csv, 0), &[("ci_method", "t on log process medians"), ("p50", "1"), ("p90", "")]);
}

#[test]
fn parameters_stand_in_the_columns_of_their_names() {
    let named = [
        ("scenario", "scenario"),
        ("arrival", "arrival"),
        ("rate_rps", "rate_rps"),
        ("concurrency", "concurrency"),
        ("streams", "concurrency"),
        ("batch_size", "batch_size"),
        ("batch", "batch_size"),
        ("m", "batch_size"),
        ("prompt_tokens", "prompt_tokens"),
        ("length", "prompt_tokens"),
        ("output_tokens", "output_tokens"),
        ("new_tokens", "output_tokens"),
        ("cached_tokens", "cached_tokens"),
        ("num_labels", "num_labels"),
        ("labels", "num_labels"),
        ("diffusion_steps", "diffusion_steps"),
        ("block_len", "block_len"),
        ("model", "model_id"),
        ("model_sha256", "model_sha256"),
        ("architecture", "arch"),
        ("parameters", "n_params"),
        ("format", "weight_format"),
        ("weights_bytes", "weight_bytes"),
        ("kv_format", "kv_format"),
        ("adapters_n", "adapters_n"),
        ("adapter_rank", "adapter_rank"),
        ("zipf_alpha", "zipf_alpha"),
        ("threads", "threads"),
        ("cpu_list", "cpu_list"),
        ("numa", "numa"),
        ("seed", "seed"),
        ("dataset_sha256", "dataset_sha256"),
    ];
    let metric = || Samples::new("s", Direction::Lower, vec![1.0]).unwrap();
    for (param, column) in named {
        let row = Row::new("a").param(param, format!("<{param}>")).metric("seconds", metric());
        let csv = run(vec![row]).results_csv();
        let cells = line(&csv, 0);
        assert_eq!(cells[column], format!("<{param}>"));
        let filled = named.iter().filter(|(_, other)| *other != column && !cells[other].is_empty());
        assert_eq!(filled.count(), 0, "{param} stands in one column");
    }
    let row = Row { kernel_path: Some("avx512".into()), arm: Some("b".into()), ..Row::new("case") };
    let csv = run(vec![row.metric("seconds", metric())]).results_csv();
    holds(&line(&csv, 0), &[("kernel_path", "avx512"), ("case_id", "case"), ("arm", "b"), ("seed", "")]);
    let machine = small_machine();
    holds(
        &line(&csv, 0),
        &[
            ("host_fp", machine.fingerprint().as_deref().unwrap()),
            ("engine", "redline"),
            ("engine_version", "0.1.0"),
            ("git_sha", "abc"),
            ("git_dirty", "false"),
            ("suite", "smoke"),
            ("bench", "generate"),
        ],
    );
}

#[test]
fn what_the_system_counted_stands_in_its_columns() {
    let first = Condition {
        start_ns: 10,
        canary_ns: Some(4.0),
        steal: Some(0.5),
        mhz: Some(3100.0),
        major_faults: Some(3),
        voluntary_switches: Some(5),
        involuntary_switches: Some(7),
        ..Condition::default()
    };
    let mut tainted = Condition { start_ns: 20, ..Condition::default() };
    tainted.tainted.insert(Taint::Steal);
    let last = Condition { start_ns: 30, canary_ns: Some(5.0), ..Condition::default() };
    let metric = Samples::new("s", Direction::Lower, vec![1.0, 2.0, 1.0, 2.0, 30.0]).unwrap();
    let once = Samples::new("x", Direction::Info, vec![7.0]).unwrap();
    let row = Row::new("a").metric("seconds", metric).metric("once", once);
    let row = row.conditions(vec![first, tainted, first, first, last]);
    let run = run(vec![row.warmed(Warmup { runs: 9, seconds: 0.5, converged: false })]);
    let csv = run.samples_csv();
    let expect = [
        ("start_ns", "10"),
        ("order", "0"),
        ("metric", "seconds"),
        ("value", "1"),
        ("process", "0"),
        ("sample", "0"),
        ("freq_mhz", "3100"),
        ("steal_pct", "50"),
        ("majflt", "3"),
        ("nvcsw", "5"),
        ("nivcsw", "7"),
        ("canary_ns", "4"),
        ("tainted", "false"),
    ];
    holds(&line(&csv, 0), &expect);
    let second = [("start_ns", "20"), ("order", "1"), ("sample", "1"), ("value", "2")];
    holds(&line(&csv, 1), &[&second[..], &[("tainted", "true"), ("taint_reasons", "steal")]].concat());
    holds(&line(&csv, 4), &[("start_ns", "30"), ("order", "2"), ("sample", "4"), ("canary_ns", "5")]);
    // A metric of the whole case has no sample that could be tainted.
    holds(&line(&csv, 5), &[("metric", "once"), ("tainted", "")]);
    assert_eq!(Run::parse(&run.json().unwrap()).unwrap(), run);
    let csv = run.results_csv();
    let cells =
        [("warmup_runs", "9"), ("warmup_converged", "false"), ("canary_drift_pct", "25"), ("tainted_n", "1")];
    holds(&line(&csv, 0), &cells);
    holds(&line(&csv, 0), &[("outliers_mild", "0"), ("outliers_severe", "1")]);
}

#[test]
fn what_must_not_be_believed_is_marked() {
    let row = |share| {
        let metric = Samples::new("s", Direction::Lower, vec![3.0]).unwrap();
        let row = Row::new("a").metric("seconds", metric).limit("f32_peak", Some(share));
        Row { checked: true, ..row }
    };
    let rows = vec![row(1.0), row(1.2), row(1.0).at_most("seconds", 2.0)];
    let run = run(rows);
    let csv = run.results_csv();
    holds(&line(&csv, 0), &[("valid", "true"), ("invalid_reasons", ""), ("share_of_limit", "1")]);
    holds(&line(&csv, 1), &[("valid", "false"), ("invalid_reasons", "120.0 % of the limit")]);
    holds(&line(&csv, 2), &[("valid", "false")]);
    assert!(csv.contains(",false,\"seconds is 3.000, but at most 2.000 is required\",f32_peak,1,"), "{csv}");
    assert!(!run.summary.valid && run.summary.invalid.len() == 2, "{:?}", run.summary);
}

#[test]
fn a_summary_has_the_interval_the_right_way_round() {
    let metric = Samples::new("s", Direction::Lower, squares()).unwrap();
    let interval = metric.interval().unwrap();
    let run = run(vec![Row::new("a").metric("seconds", metric.clone())]);
    let summary: Value = serde_json::from_str(&run.summary_json().unwrap()).unwrap();
    let figure = &summary["rows"][0]["metrics"]["seconds"];
    let number = |name: &str| figure[name].as_f64();
    assert_eq!((number("low"), number("high")), (Some(interval.low), Some(interval.high)));
    assert_eq!((number("value"), figure["n"].as_u64()), (metric.headline(), Some(400)));
}

#[test]
fn the_order_is_over_all_cases_of_a_process() {
    let started = |starts: &[u64]| -> Vec<Condition> {
        starts.iter().map(|&start_ns| Condition { start_ns, ..Condition::default() }).collect()
    };
    let row = |case: &str, processes: [&[u64]; 2]| {
        let values: Vec<Vec<f64>> = processes.iter().map(|starts| vec![1.0; starts.len()]).collect();
        let metric = Samples::by_process("s", Direction::Lower, &values).unwrap();
        let conditions = processes.iter().map(|starts| started(starts)).collect();
        Row { conditions, ..Row::new(case).metric("seconds", metric) }
    };
    let run = run(vec![row("a", [&[5, 15], &[5, 10]]), row("b", [&[10], &[7]])]);
    let csv = run.samples_csv();
    let expected = [
        ["a", "0", "5", "0"],
        ["a", "0", "15", "2"],
        ["a", "1", "5", "0"],
        ["a", "1", "10", "2"],
        ["b", "0", "10", "1"],
        ["b", "1", "7", "1"],
    ];
    for (number, [case, process, start_ns, order]) in expected.into_iter().enumerate() {
        let cells = [("case_id", case), ("process", process), ("start_ns", start_ns), ("order", order)];
        holds(&line(&csv, number), &cells);
    }
}

#[test]
fn rows_with_the_same_samples_share_their_places() {
    let row = |case: &str, arm: &str, starts: [u64; 2]| {
        let conditions = starts.map(|start_ns| Condition { start_ns, ..Condition::default() }).to_vec();
        let metric = Samples::new("s", Direction::Lower, vec![1.0, 2.0]).unwrap();
        let row = Row::new(case).metric("seconds", metric).conditions(conditions);
        Row { arm: Some(arm.into()), ..row }
    };
    // Prefill and decode are parts of the same runs. The clock of an arm's process says nothing about that of the other arm.
    let rows =
        vec![row("prefill", "a", [10, 20]), row("decode", "a", [10, 20]), row("prefill", "b", [15, 30])];
    let csv = run(rows).samples_csv();
    let orders: Vec<&str> = (0..6).map(|number| line(&csv, number)["order"]).collect();
    assert_eq!(orders, ["0", "1", "0", "1", "0", "1"]);
}

#[test]
fn what_was_not_observed_is_blank() {
    let metric = || Samples::new("s", Direction::Lower, vec![1.0]).unwrap();
    let observed = Condition { canary_ns: Some(4.0), ..Condition::default() };
    let rows = vec![
        Row::new("a").metric("seconds", metric()),
        Row::new("b").metric("seconds", metric()).conditions(vec![observed]),
        Row::new("c").metric("seconds", metric()).conditions(vec![Condition::default()]),
    ];
    let run = run(rows);
    let csv = run.results_csv();
    let blank = ["tainted_n", "canary_drift_pct", "warmup_runs", "warmup_converged", "verify", "limit"];
    holds(&line(&csv, 0), &blank.map(|column| (column, "")));
    // A single reading of the canary does not drift.
    holds(&line(&csv, 1), &[("tainted_n", "0"), ("canary_drift_pct", "0")]);
    holds(&line(&csv, 2), &[("tainted_n", "0"), ("canary_drift_pct", "")]);
    let csv = run.samples_csv();
    let blank = ["order", "start_ns", "tainted", "taint_reasons", "canary_ns"];
    holds(&line(&csv, 0), &blank.map(|column| (column, "")));
}

#[test]
fn a_process_without_values_keeps_its_number() {
    let metric = Samples::by_process("s", Direction::Lower, &[vec![], vec![1.0]]).unwrap();
    let started = |start_ns| vec![Condition { start_ns, ..Condition::default() }];
    let row = Row { conditions: vec![started(5), started(7)], ..Row::new("a").metric("seconds", metric) };
    let before = run(vec![row]);
    let document = before.json().unwrap();
    for run in [before, Run::parse(&document).unwrap()] {
        holds(&line(&run.samples_csv(), 0), &[("process", "1"), ("start_ns", "7")]);
    }
}
