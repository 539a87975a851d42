//! Comparisons of two runs: every exit code, and the other output.

use redline_lab::compare::{Comparison, Rules, compare};
use redline_lab::result::LaneResult;
use redline_lab::run::{Build, Start};
use redline_lab::{Direction, Row, Run, Samples, Verdict, lanes};
use redline_system::Machine;
use redline_testing::trees::two_sockets;

use crate::small_machine;

fn row(case: &str, values: &[f64]) -> Row {
    let rate = Samples::new("tokens/s", Direction::Higher, values.to_vec()).unwrap();
    let told = Samples::new("GB/s", Direction::Info, vec![20.0]).unwrap();
    Row { checked: true, ..Row::new(case).param("tokens", 5).metric("rate", rate).metric("limit", told) }
}

fn run(rows: Vec<Row>) -> Run {
    let build = Build { name: "redline".into(), ..Build::default() };
    let result = LaneResult { lane: "generate".into(), machine: small_machine(), rows };
    Run::new(build, Start::default(), result).unwrap()
}

const BASE: &[f64] = &[100.0, 101.0, 99.0];

fn against(rows: Vec<Row>) -> Comparison {
    compare(&run(vec![row("a", BASE)]), &run(rows), &Rules::new(0.03))
}

fn verdicts(comparison: &Comparison) -> Vec<(String, Verdict)> {
    comparison.lines.iter().filter_map(|l| Some((l.case.clone(), l.verdict?))).collect()
}

#[test]
fn each_code_is_reached() {
    let code = |new: Vec<Row>| against(new).exit_code;
    assert_eq!(code(vec![row("a", BASE)]), 0);
    assert_eq!(code(vec![row("a", &[120.0, 121.0, 119.0])]), 0);
    assert_eq!(code(vec![row("a", BASE), row("b", BASE)]), 0, "a new case is no harm");
    assert_eq!(code(vec![row("a", &[80.0, 81.0, 79.0])]), 1);
    assert_eq!(code(vec![]), 1, "a missing case is");
    assert_eq!(code(vec![row("a", &[100.0, 96.0, 104.0])]), 3);
    assert_eq!(code(vec![row("a", &[50.0, 100.0, 200.0])]), 5);
    assert_eq!(code(vec![Row { checked: false, ..row("a", BASE) }]), 5);
    assert_eq!(
        code(vec![row("a", BASE), Row { checked: false, ..row("b", BASE) }]),
        5,
        "new, and not to be believed"
    );
    assert_eq!(code(vec![row("a", BASE).param("tokens", 6)]), 4);
    assert_eq!(compare(&run(vec![]), &run(vec![]), &Rules::new(0.03)).exit_code, 4);
}

#[test]
fn a_share_that_cannot_be_is_invalid_on_either_side() {
    let of = |share: f64| row("a", BASE).limit("read_bandwidth", Some(share));
    let judged = |base: Row, new: Vec<Row>, portable| {
        compare(&run(vec![base]), &run(new), &Rules { portable, ..Rules::new(0.03) })
    };
    assert_eq!(judged(of(1.15), vec![of(1.15)], false).exit_code, 0);
    for (base, new, side) in [(1.16, 1.0, "base"), (1.0, 1.16, "new"), (-0.01, 1.0, "base")] {
        let found = judged(of(base), vec![of(new)], false);
        assert_eq!((found.exit_code, found.lines[0].verdict), (5, Some(Verdict::Invalid)), "{base} {new}");
        let why = found.lines[0].why.as_deref().unwrap();
        assert!(why.starts_with(&format!("{side}: ")) && why.ends_with("% of the limit"), "{why}");
        // The share of a limit depends on speed, which is not judged in portable mode.
        assert_eq!(judged(of(base), vec![of(new)], true).exit_code, 0);
    }
    // The same for a new case, with any other finding.
    let more = Row { case: "b".into(), ..of(1.16) };
    assert_eq!(judged(of(1.0), vec![of(1.0), more.clone()], false).exit_code, 5);
    assert_eq!(judged(of(1.0), vec![row("a", &[50.0, 51.0, 49.0]), more], false).exit_code, 5);
    let unchecked = Row { checked: false, ..of(1.0) };
    assert_eq!(judged(of(1.0), vec![unchecked], true).exit_code, 5);
}

#[test]
fn gates_hold_from_either_side() {
    let with = |row: Row| against(vec![row]);
    let missed = |row: Row, why: &str| {
        let found = with(row);
        let line = found.lines.last().unwrap();
        assert_eq!((found.exit_code, line.verdict), (1, Some(Verdict::Slower)));
        assert_eq!(line.why.as_deref(), Some(format!("gate missed: {why}").as_str()));
    };
    // The headline is 100, which both gates allow.
    assert_eq!(with(row("a", BASE).at_most("rate", 100.0)).exit_code, 0);
    assert_eq!(with(row("a", BASE).gate("rate", 100.0)).exit_code, 0);
    missed(row("a", BASE).at_most("rate", 99.9), "rate is 100.0, but at most 99.90 is required");
    missed(row("a", BASE).gate("rate", 100.1), "rate is 100.0, but at least 100.1 is required");
    missed(row("a", BASE).at_most("other", 1.0), "other is unknown, but at most 1.000 is required");
    assert_eq!(with(row("a", BASE).gate("rate", 99.0).at_most("rate", 101.0)).exit_code, 0);
    // A gate is stored with its row.
    let gated = row("a", BASE).at_most("rate", 99.9);
    let back: Row = serde_json::from_str(&serde_json::to_string(&gated).unwrap()).unwrap();
    assert_eq!((back.missed(), back), (gated.missed(), gated));
}

#[test]
fn what_matters_is_the_lanes_own_threshold() {
    // 6 % less in two processes with almost no spread: it matters in lane generate (5 %), not in lane score (10 %).
    let rows = |lane: &str, rate: f64| {
        let processes = [vec![rate, rate], vec![rate * 1.0001, rate]];
        let rates = Samples::by_process("tokens/s", Direction::Higher, &processes).unwrap();
        Run { lane: lane.into(), ..run(vec![Row { checked: true, ..Row::new("a").metric("rate", rates) }]) }
    };
    for (lane, threshold, verdict) in [
        ("generate", 0.05, Verdict::Slower),
        ("score", 0.10, Verdict::Same),
        ("a lane of another engine", 0.03, Verdict::Slower),
    ] {
        let found = compare(&rows(lane, 100.0), &rows(lane, 94.0), &Rules::default());
        assert_eq!((found.threshold, found.lines[0].verdict), (threshold, Some(verdict)), "{lane}");
        // A given threshold overrides the lane's.
        let given = compare(&rows(lane, 100.0), &rows(lane, 94.0), &Rules::new(0.07));
        assert_eq!((given.threshold, given.lines[0].verdict), (0.07, Some(Verdict::Same)), "{lane}");
    }
    assert!(lanes::ALL.iter().all(|lane| (0.03..=0.10).contains(&lane.threshold)), "as `--threshold` says");
}

#[test]
fn a_count_that_differs_in_one_sample_differs() {
    let counted = |samples: &[f64]| {
        let count = Samples::new("tokens", Direction::Info, samples.to_vec()).unwrap();
        let run = run(vec![row("a", BASE).digest("d").metric("computed_tokens", count)]);
        Run { lane: "score".into(), ..run }
    };
    let rules = Rules { portable: true, ..Rules::default() };
    let judged = |base: &[f64], new: &[f64]| {
        let found = compare(&counted(base), &counted(new), &rules);
        let line = found.lines.iter().find(|l| l.metric.as_deref() == Some("computed_tokens")).unwrap();
        (found.exit_code, line.verdict.unwrap(), line.why.is_some())
    };
    let (same, differs) = ((0, Verdict::Same, false), (1, Verdict::Slower, true));
    assert_eq!(judged(&[5.0, 5.0, 5.0], &[5.0, 5.0, 5.0]), same);
    assert_eq!(judged(&[5.0, 5.0, 5.0], &[5.0, 5.0]), same, "more samples of the same");
    // The median is the same, but the minimum or the maximum is not.
    assert_eq!(judged(&[5.0, 5.0, 5.0], &[5.0, 5.0, 6.0]), differs);
    assert_eq!(judged(&[5.0, 5.0, 5.0], &[4.0, 5.0, 5.0]), differs);
    assert_eq!(judged(&[4.0, 5.0, 6.0], &[4.0, 5.0, 6.0]), same);
    assert_eq!(judged(&[4.0, 5.0, 6.0], &[4.0, 4.0, 6.0]), differs, "another median");
    assert_eq!(judged(&[5.0], &[]), (1, Verdict::Missing, false));
    assert_eq!(judged(&[], &[5.0]), (0, Verdict::New, false));
    assert_eq!(judged(&[], &[]), same, "no samples on either side are no difference");
}

#[test]
fn portable_comparisons_judge_outputs_and_leave_speed_alone() {
    let rules = Rules { portable: true, ..Rules::default() };
    let with = |digest: &str, values: &[f64]| run(vec![row("a", values).digest(digest)]);
    let base = with("1", BASE);
    let code = |new: &Run| compare(&base, new, &rules).exit_code;
    let slow = compare(&base, &with("1", &[1.0, 1.0, 1.0]), &rules);
    assert_eq!((slow.exit_code, slow.judged), (0, 0), "other speeds are told");
    assert!(slow.lines.iter().any(|l| l.metric.as_deref() == Some("rate") && l.verdict.is_none()));
    assert_eq!(code(&with("2", BASE)), 6);
    assert_eq!(code(&run(vec![row("a", BASE)])), 1, "no digest any more");
    assert_eq!(code(&run(vec![])), 1, "no case any more");
    assert_eq!(compare(&run(vec![row("a", BASE)]), &base, &rules).exit_code, 0, "a digest is new");
    // A case that depends only on the machine, without outputs, may be missing on another one.
    let machine = run(vec![row("a", BASE).digest("1"), row("avx512", BASE)]);
    assert_eq!(compare(&machine, &base, &rules).exit_code, 0);
    assert_eq!(code(&Run { lane: "score".into(), ..base.clone() }), 4);
    assert_eq!(code(&Run { finished: false, ..base.clone() }), 5);
}

#[test]
fn lines_tell_what_happened() {
    let comparison = against(vec![row("a", &[80.0, 81.0, 79.0]), row("b", BASE)]);
    assert_eq!(verdicts(&comparison), [("a".to_owned(), Verdict::Slower), ("b".to_owned(), Verdict::New)]);
    let slower = &comparison.lines[0];
    let (base, new, ratio) = (slower.base.unwrap(), slower.new.unwrap(), slower.effect.unwrap().ratio);
    assert!((base - 100.0).abs() < 0.01 && (new - 80.0).abs() < 0.01, "{slower:?}");
    assert!((new / base - ratio).abs() < 1e-12 && (ratio - 0.8).abs() < 1e-3, "one statistic: {slower:?}");
    assert_eq!(comparison.lines[1].verdict, None, "`limit` is told, not judged");
    assert!((comparison.geometric_mean.unwrap() - 0.8).abs() < 1e-3);
    assert_eq!(comparison.judged, 1);
    let text = comparison.table();
    for expect in
        ["✗ slower", "+ new", "reported", "3+3 samples", "geometric mean of 1 ratios: 0.8000", "exit code 1"]
    {
        assert!(text.contains(expect), "no `{expect}` in {text}");
    }
    let line = text.lines().find(|line| line.starts_with("a ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..6], ["a", "rate", "100.0", "80.00", "tokens/s", "0.8000"]);
}

#[test]
fn a_metric_of_one_side_is_missing_or_new() {
    let other = Samples::new("s", Direction::Lower, vec![1.0, 1.0]).unwrap();
    let comparison = against(vec![row("a", BASE).metric("other", other.clone())]);
    assert_eq!((comparison.exit_code, comparison.lines[2].verdict), (0, Some(Verdict::New)));
    let base = run(vec![row("a", BASE).metric("other", other)]);
    let back = compare(&base, &run(vec![row("a", BASE)]), &Rules::new(0.03));
    assert_eq!((back.exit_code, back.lines[2].verdict), (1, Some(Verdict::Missing)));
}

#[test]
fn different_machines_are_not_comparable_unless_allowed() {
    let base = run(vec![row("a", BASE)]);
    let machine = Machine::read(two_sockets().path());
    let other = Run { machine: redline_lab::run::Host::of(&machine).unwrap(), ..run(vec![row("a", BASE)]) };
    let comparison = compare(&base, &other, &Rules::new(0.03));
    assert_eq!(comparison.exit_code, 4);
    let fields: Vec<&str> = comparison.differs.iter().map(|d| d.field.as_str()).collect();
    assert!(fields.starts_with(&["fingerprint"]) && fields.contains(&"cpu"), "{fields:?}");
    assert!(comparison.lines[0].effect.is_some(), "the ratio is still told");
    assert!(
        comparison.table().contains("not comparable: cpu is AMD EPYC against Intel"),
        "{}",
        comparison.table()
    );
    let allowed = Rules { different_machine: true, ..Rules::new(0.03) };
    assert_eq!(compare(&base, &other, &allowed).exit_code, 0);
    // Unknown machines could be different ones.
    let unknown = Run { machine: redline_lab::run::Host::default(), ..base.clone() };
    assert_eq!(compare(&unknown, &unknown, &Rules::new(0.03)).exit_code, 4);
    assert_eq!(compare(&base, &unknown, &Rules::new(0.03)).exit_code, 4);
}

#[test]
fn other_lanes_and_parameters_are_not_comparable() {
    let base = run(vec![row("a", BASE)]);
    let lane = Run { lane: "score".into(), ..base.clone() };
    let comparison = compare(&base, &lane, &Rules { different_machine: true, ..Rules::new(0.03) });
    assert_eq!((comparison.exit_code, comparison.differs[0].field.as_str()), (4, "lane"));
    let other = run(vec![row("a", BASE).param("tokens", 6).param("version", "2")]);
    let comparison = compare(&base, &other, &Rules::new(0.03));
    assert_eq!(comparison.lines[0].why.as_deref(), Some("tokens is 5 against 6"));
    let rules = Rules { different_params: vec!["tokens".into()], ..Rules::new(0.03) };
    assert_eq!(compare(&base, &other, &rules).exit_code, 0);
    // 5 and 5.0 are the same number; the engine and its version may differ.
    let same = run(vec![row("a", BASE).param("tokens", 5.0).param("engine", "x")]);
    assert_eq!(
        compare(&run(vec![row("a", BASE).param("engine", "y")]), &same, &Rules::new(0.03)).exit_code,
        0
    );
}

#[test]
fn other_engines_are_comparable() {
    let other = Build { name: "other".into(), version: Some("7".into()), ..Build::default() };
    let comparison = compare(
        &Run { engine: other, ..run(vec![row("a", BASE)]) },
        &run(vec![row("a", BASE)]),
        &Rules::new(0.03),
    );
    assert_eq!((comparison.exit_code, comparison.base.engine.as_str()), (0, "other 7"));
}

#[test]
fn outputs_are_told_apart() {
    let with = |case: &str, digest: &str| row(case, BASE).digest(digest);
    let base = run(vec![with("a", "1"), with("b", "2"), row("c", BASE)]);
    let comparison =
        compare(&base, &run(vec![with("a", "1"), with("b", "3"), with("c", "4")]), &Rules::new(0.03));
    let o = &comparison.outputs;
    assert_eq!(
        (&o.equal[..], &o.different[..], &o.unknown[..]),
        (&["a".to_owned()][..], &["b".to_owned()][..], &["c".to_owned()][..])
    );
    assert!(comparison.table().contains("outputs: 1 equal, 1 different (b), 1 unknown"));
    assert_eq!(comparison.exit_code, 0, "other formats may give other outputs: they are told, not judged");
}

#[test]
fn arms_are_steadied_where_that_finds_more_and_only_there() {
    // Times that follow the machine's speed: corrected for the speed they agree.
    let row = |seconds: &[f64], speeds: &[f64]| {
        let seconds = Samples::new("s", Direction::Lower, seconds.to_vec()).unwrap();
        let speeds = Samples::new("GB/s", Direction::Info, speeds.to_vec()).unwrap();
        let row = Row::new("a").param("threads", 1).metric("seconds", seconds).metric("limit", speeds);
        Row { checked: true, ..row.limit("read_bandwidth", None) }
    };
    let (base, new) = (
        row(&[1.0, 2.0, 4.0, 1.0], &[40.0, 20.0, 10.0, 40.0]),
        row(&[2.0, 1.0, 1.0, 4.0], &[20.0, 40.0, 40.0, 10.0]),
    );
    let judged = |base: &Row, new: &Row, arms| {
        let found =
            compare(&run(vec![base.clone()]), &run(vec![new.clone()]), &Rules { arms, ..Rules::new(0.03) });
        (found.lines[0].verdict.unwrap(), found.lines[0].effect.unwrap().steadied)
    };
    assert_eq!(judged(&base, &new, true), (Verdict::Same, true));
    assert_eq!(judged(&base, &new, false), (Verdict::TooNoisy, false), "of two runs the speed is not known");
    // Times that do not follow the speed: the correction would only add scatter.
    let steady = row(&[1.0, 1.0, 1.0, 1.0001], &[40.0, 20.0, 10.0, 40.0]);
    assert_eq!(judged(&steady, &steady, true), (Verdict::Same, false));
}

#[test]
fn the_mean_is_over_what_was_judged() {
    let case = |name: &str, factor: f64| row(name, &[100.0 * factor, 101.0 * factor, 99.0 * factor]);
    let base = run(["a", "b", "c", "d"].map(|name| case(name, 1.0)).to_vec());
    let new = run(vec![
        case("a", 2.0),
        case("b", 0.5),
        case("c", 4.0),
        // Invalid or not comparable: their ratios do not count.
        Row { checked: false, ..case("d", 1000.0) },
    ]);
    let found = compare(&base, &new, &Rules::new(0.03));
    assert_eq!(found.judged, 3);
    assert!((found.geometric_mean.unwrap() - 4f64.cbrt()).abs() < 1e-9, "{:?}", found.geometric_mean);
    assert_eq!(compare(&base, &run(vec![]), &Rules::new(0.03)).geometric_mean, None);
}

#[test]
fn of_a_base_that_is_not_whole_nothing_can_be_new() {
    let (empty, one) = (run(vec![]), run(vec![row("a", BASE)]));
    let code =
        |base: &Run, new: &Run, arms| compare(base, new, &Rules { arms, ..Rules::new(0.03) }).exit_code;
    assert_eq!((code(&empty, &one, false), code(&empty, &one, true)), (5, 0));
    let open = Run { finished: false, ..one.clone() };
    assert_eq!((code(&open, &one, false), code(&one, &open, false), code(&one, &one, false)), (5, 5, 0));
    // The engine's name and version identify the engine; any other parameter identifies the case.
    let with = |name: &str, value: &str| run(vec![row("a", BASE).param(name, value)]);
    for (name, expect) in [("engine", 0), ("version", 0), ("format", 4), ("model", 4)] {
        assert_eq!(code(&with(name, "x"), &with(name, "y"), false), expect, "{name}");
    }
}

#[test]
fn arms_pair_by_place_and_may_differ() {
    let (a, b) = (run(vec![row("w8/t1", BASE)]), run(vec![row("w4/t1", BASE).param("tokens", 6)]));
    let comparison = compare(&a, &b, &Rules { arms: true, ..Rules::new(0.03) });
    assert_eq!(verdicts(&comparison), [("w8/t1 -> w4/t1".to_owned(), Verdict::Same)]);
    assert_eq!(compare(&a, &b, &Rules::new(0.03)).exit_code, 1);
}

#[test]
fn the_document_is_one_object() {
    let json: serde_json::Value =
        serde_json::from_str(&against(vec![row("a", BASE)]).json().unwrap()).unwrap();
    assert_eq!(json["schema"], "redline.bench.compare/1");
    let line = &json["lines"][0];
    assert_eq!(
        (&line["verdict"], &line["basis"], &line["ratio"]),
        (&"same".into(), &"samples".into(), &1.0.into())
    );
    assert_eq!(json["exit_code"], 0);
}

#[test]
fn a_row_with_nothing_to_judge_is_to_be_believed_or_not() {
    let told = |tokens: i32| {
        let limit = Samples::new("GB/s", Direction::Info, vec![20.0]).unwrap();
        Row { checked: true, ..Row::new("b").param("tokens", tokens).metric("limit", limit) }
    };
    let code = |new: Row| {
        let base = run(vec![row("a", BASE), told(5)]);
        compare(&base, &run(vec![row("a", BASE), new]), &Rules::new(0.03)).exit_code
    };
    assert_eq!(code(told(5)), 0);
    assert_eq!(code(Row { checked: false, ..told(5) }), 5);
    assert_eq!(code(told(6)), 4);
}

#[test]
fn a_metric_without_samples_on_both_sides_is_not_judged() {
    let with = |values: &[f64]| {
        let gaps = Samples::new("ms", Direction::Lower, values.to_vec()).unwrap();
        run(vec![row("a", BASE).metric("gap", gaps)])
    };
    let judged = |base: &[f64], new: &[f64]| {
        let found = compare(&with(base), &with(new), &Rules::new(0.03));
        (found.exit_code, found.lines[2].verdict)
    };
    assert_eq!(judged(&[], &[]), (0, None));
    assert_eq!(judged(&[5.0, 5.0], &[]), (1, Some(Verdict::Missing)));
    assert_eq!(judged(&[], &[5.0, 5.0]), (0, Some(Verdict::New)));
}

#[test]
fn a_metric_that_one_side_only_tells_is_not_comparable() {
    let with = |direction: Direction| {
        let other = Samples::new("s", direction, vec![1.0, 1.0]).unwrap();
        run(vec![row("a", BASE).metric("other", other)])
    };
    let code = |base, new| compare(&with(base), &with(new), &Rules::new(0.03)).exit_code;
    let (judged, told) = (Direction::Lower, Direction::Info);
    assert_eq!((code(told, judged), code(judged, told), code(told, told)), (4, 4, 0));
}

#[test]
fn a_metric_that_is_only_told_may_go() {
    let rate = Samples::new("tokens/s", Direction::Higher, BASE.to_vec()).unwrap();
    let bare = Row { checked: true, ..Row::new("a").param("tokens", 5).metric("rate", rate) };
    let found = against(vec![bare]);
    assert_eq!(found.lines[1].metric.as_deref(), Some("limit"));
    assert_eq!((found.exit_code, found.lines[1].verdict), (0, None));
}

#[test]
fn a_case_with_counts_is_missed_on_any_machine() {
    let counted = |case: &str| {
        let tokens = Samples::new("tokens", Direction::Info, vec![5.0]).unwrap();
        row(case, BASE).metric("computed_tokens", tokens)
    };
    let of = |rows: Vec<Row>| Run { lane: "score".into(), ..run(rows) };
    let rules = Rules { portable: true, ..Rules::default() };
    let code = |only_in_base: Row| {
        let both = || row("a", BASE).digest("d");
        compare(&of(vec![both(), only_in_base]), &of(vec![both()]), &rules).exit_code
    };
    assert_eq!((code(counted("b")), code(row("b", BASE))), (1, 0));
}

#[test]
fn at_one_speed_nothing_is_steadied() {
    let seconds = Samples::new("s", Direction::Lower, vec![1.0, 1.1, 0.9]).unwrap();
    let speeds = Samples::new("GB/s", Direction::Info, vec![40.0; 3]).unwrap();
    let row = Row::new("a").param("threads", 1).metric("seconds", seconds).metric("limit", speeds);
    let arm = run(vec![Row { checked: true, ..row.limit("read_bandwidth", None) }]);
    let found = compare(&arm, &arm, &Rules { arms: true, ..Rules::new(0.03) });
    assert!(!found.lines[0].effect.unwrap().steadied);
    assert!(!found.table().contains("steadied"), "{}", found.table());
}

#[test]
fn a_metric_that_is_only_told_has_its_ratio() {
    let with = |speed: f64| {
        let limit = Samples::new("GB/s", Direction::Info, vec![speed]).unwrap();
        run(vec![row("a", BASE).metric("limit", limit)])
    };
    let found = compare(&with(20.0), &with(30.0), &Rules::new(0.03));
    let line = &found.lines[1];
    assert_eq!((line.metric.as_deref(), line.verdict), (Some("limit"), None));
    assert!((line.effect.unwrap().ratio - 1.5).abs() < 1e-9, "{line:?}");
    assert_eq!((found.judged, found.exit_code), (1, 0));
}
