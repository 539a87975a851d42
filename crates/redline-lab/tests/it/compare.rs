//! Two runs against each other: every exit code, and what is told beside it.

use redline_lab::compare::{Comparison, Rules, compare};
use redline_lab::result::LaneResult;
use redline_lab::run::{Build, Start};
use redline_lab::{Direction, Row, Run, Samples, Verdict};

use crate::trees::{small_vm, two_sockets};

fn row(case: &str, values: &[f64]) -> Row {
    let rate = Samples::new("tokens/s", Direction::Higher, values.to_vec()).unwrap();
    let told = Samples::new("GB/s", Direction::Info, vec![20.0]).unwrap();
    Row { checked: true, ..Row::new(case).param("tokens", 5).metric("rate", rate).metric("limit", told) }
}

fn run(rows: Vec<Row>) -> Run {
    let build = Build { name: "redline".into(), ..Build::default() };
    let result = LaneResult { lane: "generate".into(), machine: small_vm().machine(), rows };
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
fn lines_tell_what_happened() {
    let comparison = against(vec![row("a", &[80.0, 81.0, 79.0]), row("b", BASE)]);
    assert_eq!(verdicts(&comparison), [("a".to_owned(), Verdict::Slower), ("b".to_owned(), Verdict::New)]);
    let slower = &comparison.lines[0];
    assert_eq!((slower.base, slower.new), (Some(100.0), Some(80.0)));
    assert!((slower.effect.unwrap().ratio - 0.8).abs() < 1e-3);
    assert_eq!(comparison.lines[1].verdict, None, "`limit` is told, not judged");
    assert!((comparison.geometric_mean.unwrap() - 0.8).abs() < 1e-3);
    assert_eq!(comparison.judged, 1);
    let text = comparison.table();
    for expect in
        ["✗ slower", "+ new", "told", "3+3 samples", "geometric mean of 1 ratios: 0.8000", "exit code 1"]
    {
        assert!(text.contains(expect), "no `{expect}` in {text}");
    }
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
    let machine = two_sockets().machine();
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
    // Machines that are not told could be any.
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
    // 5 and 5.0 are one number; an engine and its version may differ.
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
