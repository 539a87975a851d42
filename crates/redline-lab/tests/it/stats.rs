//! Statistics compared with golden values and with each other.

use proptest::prelude::*;
use redline_lab::stats::{Direction, Samples};

fn samples(values: &[f64]) -> Samples {
    Samples::new("s", Direction::Lower, values.to_vec()).expect("the values are finite")
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
}

#[test]
fn golden_values() {
    let s = samples(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
    assert_eq!((s.n(), s.min(), s.max()), (8, Some(2.0), Some(9.0)));
    assert_eq!((s.median(), s.mean(), s.mad()), (Some(4.5), Some(5.0), Some(0.5)));
    assert!(near(s.std().unwrap(), (32.0_f64 / 7.0).sqrt()));
    assert!(near(s.variation().unwrap(), (32.0_f64 / 7.0).sqrt() / 5.0));
    assert!(near(s.spread().unwrap(), 7.0 / 4.5));
}

#[test]
fn no_sample_says_nothing() {
    let s = samples(&[]);
    let all = [s.min(), s.max(), s.median(), s.mean(), s.std(), s.mad(), s.variation(), s.spread()];
    assert_eq!((s.n(), all, s.percentile(50.0)), (0, [None; 8], None));
}

#[test]
fn one_sample_has_a_place_but_no_deviation() {
    let s = samples(&[3.0]);
    assert_eq!([s.min(), s.max(), s.median(), s.mean()], [Some(3.0); 4]);
    assert_eq!((s.std(), s.variation()), (None, None));
    assert_eq!((s.mad(), s.spread()), (Some(0.0), Some(0.0)));
}

#[test]
fn around_zero_nothing_is_relative() {
    let s = samples(&[-1.0, 0.0, 1.0]);
    assert_eq!((s.mean(), s.std(), s.variation(), s.spread()), (Some(0.0), Some(1.0), None, None));
    let below = samples(&[-4.0, -2.0]);
    assert!(near(below.variation().unwrap(), 2.0_f64.sqrt() / 3.0), "a spread is never negative");
}

#[test]
fn what_is_no_number_is_refused() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = Samples::new("s", Direction::Higher, vec![1.0, bad, 2.0]).unwrap_err();
        assert_eq!(error.index, 1);
        assert_eq!(error.value.to_bits(), bad.to_bits());
        assert!(error.to_string().starts_with("sample 1 is "), "{error}");
    }
}

#[test]
fn order_of_measurement_is_kept() {
    assert_eq!(samples(&[3.0, 1.0, 2.0]).values(), [3.0, 1.0, 2.0]);
}

fn by_process(processes: &[&[f64]]) -> Samples {
    let processes: Vec<Vec<f64>> = processes.iter().map(|p| p.to_vec()).collect();
    Samples::by_process("s", Direction::Lower, &processes).expect("the values are finite")
}

#[test]
fn the_headline_is_the_median_of_process_medians() {
    let s = by_process(&[&[1.0, 1.0, 1.0, 1.0, 9.0], &[5.0], &[], &[7.0, 3.0, 8.0]]);
    assert_eq!(s.processes().collect::<Vec<_>>(), [&[1.0, 1.0, 1.0, 1.0, 9.0][..], &[5.0], &[7.0, 3.0, 8.0]]);
    assert_eq!(s.process_medians(), [1.0, 5.0, 7.0]);
    assert_eq!((s.headline(), s.median(), s.n()), (Some(5.0), Some(3.0), 9));
    assert_eq!(by_process(&[&[], &[]]), samples(&[]));
    assert_eq!(samples(&[]).headline(), None);
    assert_eq!(samples(&[2.0, 4.0]).headline(), Some(3.0));
    let error = Samples::by_process("s", Direction::Lower, &[vec![1.0], vec![2.0, f64::NAN]]).unwrap_err();
    assert_eq!(error.index, 2);
}

#[test]
fn intervals_of_the_headline() {
    assert_eq!(samples(&[1.0, 2.0, 3.0]).interval(), None);
    let one = samples(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).interval().unwrap();
    assert_eq!((one.low, one.high, one.method), (1.0, 6.0, "order statistics"));
    // ln: -0.1, 0, 0.1; standard error 0.1 / sqrt(3); t(0.975, 2) = 4.302653.
    let three = by_process(&[&[(-0.1_f64).exp()], &[1.0], &[0.1_f64.exp()]]).interval().unwrap();
    let reach = 4.302653 * 0.1 / 3.0_f64.sqrt();
    assert!((three.high.ln() - reach).abs() < 1e-6 && (three.low.ln() + reach).abs() < 1e-6, "{three:?}");
    assert_eq!(three.method, "t on log process medians");
    assert_eq!(by_process(&[&[0.0], &[1.0]]).interval(), None);
}

#[test]
fn small_differences_of_large_numbers_are_not_lost() {
    let s = samples(&[1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0]);
    assert_eq!((s.mean(), s.std()), (Some(1e9 + 10.0), Some(30.0_f64.sqrt())));
}

#[test]
fn the_ends_of_the_number_line_are_numbers() {
    let huge = samples(&[f64::MAX, f64::MAX, f64::MAX]);
    assert_eq!((huge.mean(), huge.std(), huge.median()), (Some(f64::MAX), Some(0.0), Some(f64::MAX)));
    let wide = samples(&[f64::MAX, -f64::MAX]);
    assert_eq!((wide.mean(), wide.median(), wide.std()), (Some(0.0), Some(0.0), Some(f64::MAX)));
    assert_eq!(wide.spread(), None);
    let tiny = f64::from_bits(1);
    assert_eq!(samples(&[tiny, tiny]).mean(), Some(tiny));
    let subnormal = samples(&[1e-310, 3e-310]);
    assert!((subnormal.std().unwrap() / 2e-310 - 0.5_f64.sqrt()).abs() < 1e-9);
}

#[test]
fn percentiles_need_their_samples() {
    for (percent, enough) in [(50.0, 6), (90.0, 36), (95.0, 72), (99.0, 368), (99.9, 3688), (10.0, 36)] {
        let first = |n: usize| samples(&(0..n).map(|i| i as f64).collect::<Vec<_>>());
        assert_eq!(first(enough - 1).percentile(percent), None, "p{percent} of {}", enough - 1);
        assert!(first(enough).percentile(percent).is_some(), "p{percent} of {enough}");
    }
    let s = samples(&[1.0; 1000]);
    for percent in [0.0, 100.0, -1.0, 101.0, f64::NAN] {
        assert_eq!(s.percentile(percent), None);
    }
}

#[test]
fn intervals_of_the_median_are_those_of_the_tables() {
    // Ranks (from 1) of the two-sided 95 % interval of the median, from printed tables of the sign test.
    for (n, low, high) in [(6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (15, 4, 12), (20, 6, 15), (25, 8, 18)]
    {
        let p = samples(&(1..=n).map(f64::from).collect::<Vec<_>>()).percentile(50.0).unwrap();
        assert_eq!((p.low, p.high), (f64::from(low), f64::from(high)), "n = {n}");
    }
}

#[test]
fn many_samples_have_percentiles_too() {
    let p = samples(&(0..100_000).map(f64::from).collect::<Vec<_>>()).percentile(99.0).unwrap();
    assert!(near(p.value, 98_999.01));
    // 1.96 standard deviations of binomial(100000, 0.99) are 61.7.
    assert!((p.low - (99_000.0 - 61.7)).abs() < 3.0 && (p.high - (99_000.0 + 61.7)).abs() < 3.0, "{p:?}");
}

proptest! {
    #[test]
    fn statistics_stay_in_their_bounds(
        values in prop::collection::vec(prop::num::f64::NORMAL | prop::num::f64::ZERO, 1..50),
    ) {
        let s = samples(&values);
        let (min, max) = (s.min().unwrap(), s.max().unwrap());
        for value in [s.median().unwrap(), s.mean().unwrap()] {
            prop_assert!(min <= value && value <= max);
        }
        for spread in [s.std(), s.mad(), s.variation(), s.spread()].into_iter().flatten() {
            prop_assert!(spread >= 0.0 && spread.is_finite());
        }
    }

    #[test]
    fn order_does_not_matter(values in prop::collection::vec(-1e6..1e6, 0..50)) {
        let backwards: Vec<f64> = values.iter().rev().copied().collect();
        let (a, b) = (samples(&values), samples(&backwards));
        prop_assert_eq!(a.median(), b.median());
        prop_assert_eq!(a.mean(), b.mean());
        prop_assert_eq!(a.std(), b.std());
        prop_assert_eq!(a.mad(), b.mad());
    }

    #[test]
    fn statistics_follow_scale(values in prop::collection::vec(0.1..1e3, 2..50), power in -100_i32..100) {
        let factor = 2.0_f64.powi(power);
        let a = samples(&values);
        let b = samples(&values.iter().map(|v| v * factor).collect::<Vec<_>>());
        prop_assert_eq!(a.mean().unwrap() * factor, b.mean().unwrap());
        prop_assert_eq!(a.std().unwrap() * factor, b.std().unwrap());
        prop_assert_eq!(a.variation(), b.variation());
        prop_assert_eq!(a.spread(), b.spread());
    }

    #[test]
    fn percentiles_lie_in_their_intervals(
        values in prop::collection::vec(-1e3..1e3, 1..600),
        percent in 0.5..99.5,
    ) {
        let s = samples(&values);
        if let Some(p) = s.percentile(percent) {
            prop_assert!(p.low <= p.value && p.value <= p.high, "{:?}", p);
            prop_assert!(values.contains(&p.low) && values.contains(&p.high));
        }
        if let Some(p) = s.percentile(50.0) {
            prop_assert!((p.value - s.median().unwrap()).abs() <= 1e-9);
        }
    }
}

#[test]
fn an_interval_without_bounds_ends_at_the_largest_number() {
    let wide = by_process(&[&[1e-300], &[1e300]]).interval().unwrap();
    assert_eq!((wide.low, wide.high), (0.0, f64::MAX));
}
