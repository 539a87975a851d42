//! Two arms in one run: their order, and merging of processes.

use redline_lab::conditions::Condition;
use redline_lab::versus::{Arm, MergeError, merge, printed_rows, schedule};
use redline_lab::warmup::Warmup;
use redline_lab::{Direction, Row, Samples};

fn row(values: &[f64], share: f64, digest: &str) -> Row {
    let rate = Samples::new("tokens/s", Direction::Higher, values.to_vec()).unwrap();
    let row = Row::new("decode").metric("rate", rate).limit("read_bandwidth", Some(share)).digest(digest);
    Row { checked: true, ..row }
}

#[test]
fn the_order_is_abba() {
    let order = |n| schedule(n).map(Arm::name).collect::<String>();
    assert_eq!((order(2), order(4)), ("abba".to_owned(), "abbaabba".to_owned()));
    for n in [2, 4, 6, 8] {
        let places =
            |arm| schedule(n).enumerate().filter(move |(_, a)| *a == arm).map(|(at, _)| at).sum::<usize>();
        assert_eq!(places(Arm::A), places(Arm::B), "what drifts evenly cancels");
    }
}

#[test]
fn processes_become_one_arm() {
    let arm =
        merge(&[vec![row(&[1.0, 3.0], 0.5, "x")], vec![row(&[5.0], 0.9, "x")], vec![row(&[2.0], 0.6, "x")]])
            .unwrap();
    let rate = arm[0].metrics.get("rate").unwrap();
    assert_eq!(rate.process_medians(), [2.0, 5.0, 2.0]);
    assert_eq!(
        (arm[0].share_of_limit, arm[0].checked, arm[0].digest.as_deref()),
        (Some(0.6), true, Some("x"))
    );
    let unchecked =
        merge(&[vec![row(&[1.0], 0.5, "x")], vec![Row { checked: false, ..row(&[1.0], 0.5, "x") }]]).unwrap();
    assert!(!unchecked[0].checked);
    assert!(merge(&[]).unwrap().is_empty());
}

#[test]
fn an_arm_keeps_every_process_condition_and_the_longest_warm_up() {
    let warmed = |runs, seconds, converged, start_ns| {
        let condition = Condition { start_ns, ..Condition::default() };
        vec![row(&[1.0], 0.5, "x").warmed(Warmup { runs, seconds, converged }).conditions(vec![condition])]
    };
    let arm = merge(&[warmed(3, 2.0, true, 1), warmed(5, 1.0, true, 2)]).unwrap();
    assert_eq!(arm[0].warmup, Some(Warmup { runs: 5, seconds: 2.0, converged: true }));
    let starts: Vec<Vec<u64>> =
        arm[0].conditions.iter().map(|process| process.iter().map(|c| c.start_ns).collect()).collect();
    assert_eq!(starts, [[1], [2]]);
    let open = merge(&[warmed(3, 2.0, false, 1), warmed(5, 1.0, true, 2)]).unwrap();
    assert!(!open[0].warmup.unwrap().converged);
    let lane_of = |arm: &[Row]| arm[0].metrics.get("rate").unwrap().direction();
    assert_eq!(lane_of(&arm), Direction::Higher);
}

#[test]
fn processes_that_do_not_agree_are_refused() {
    let one = vec![row(&[1.0], 0.5, "x")];
    let refused = |other: Vec<Row>| merge(&[one.clone(), other]).unwrap_err();
    let digests = refused(vec![row(&[1.0], 0.5, "y")]);
    assert!(matches!(digests, MergeError::Outputs(_)));
    assert!(digests.to_string().contains("digests x and y"), "{digests}");
    assert!(matches!(refused(vec![]), MergeError::Cases(_)));
    assert!(matches!(refused(vec![Row { case: "prefill".into(), ..one[0].clone() }]), MergeError::Cases(_)));
    let metricless = Row { metrics: redline_lab::result::Ordered::default(), ..one[0].clone() };
    assert!(matches!(refused(vec![metricless]), MergeError::Cases(_)));
}

#[test]
fn a_process_without_a_digest_does_not_agree() {
    let bare = Row { digest: None, ..row(&[1.0], 0.5, "x") };
    let error = merge(&[vec![row(&[1.0], 0.5, "x")], vec![bare]]).unwrap_err();
    assert!(matches!(error, MergeError::Outputs(_)));
    assert!(error.to_string().contains("digests x and none"), "{error}");
}

#[test]
fn the_longest_warm_up_need_not_be_the_last() {
    let warmed =
        |runs, seconds| vec![row(&[1.0], 0.5, "x").warmed(Warmup { runs, seconds, converged: true })];
    let arm = merge(&[warmed(3, 1.0), warmed(5, 2.0), warmed(4, 1.5)]).unwrap();
    assert_eq!(arm[0].warmup, Some(Warmup { runs: 5, seconds: 2.0, converged: true }));
}

#[test]
fn what_a_process_printed_is_read() {
    let text = r#"{"lane":"generate","machine":{"of":"another version"},"rows":[{"case":"a","metrics":{}}]}"#;
    assert_eq!(printed_rows(text).unwrap(), [Row::new("a")]);
    for bad in ["", "{}", "warning: x", "{\"rows\":1}"] {
        assert!(printed_rows(bad).is_err(), "{bad}");
    }
}
