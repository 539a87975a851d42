//! Verdicts: known quantiles, boundary cases of the rule, properties.

use proptest::prelude::*;
use redline_lab::stats::student::quantile;
use redline_lab::verdict::{Basis, Effect, THRESHOLD, Verdict, exit_code, judge};
use redline_lab::{Direction, Samples};

fn samples(direction: Direction, processes: &[Vec<f64>]) -> Samples {
    Samples::by_process("tokens/s", direction, processes).expect("the values are finite")
}

fn higher(values: &[f64]) -> Samples {
    samples(Direction::Higher, &[values.to_vec()])
}

fn verdict(base: &[f64], new: &[f64]) -> Verdict {
    judge(&higher(base), &higher(new), THRESHOLD).verdict
}

/// Reproducible standard normal values: sums of twelve uniform ones, minus six.
fn noise(seed: u64, n: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678;
    let mut uniform = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    (0..n).map(|_| (0..12).map(|_| uniform()).sum::<f64>() - 6.0).collect()
}

/// `n` processes around `centre`, each with five samples; `spread` is relative.
fn arm(seed: u64, n: usize, centre: f64, spread: f64) -> Samples {
    let between = noise(seed, n);
    let process = |(i, z): (usize, &f64)| {
        let within = noise(seed * 1000 + i as u64 + 1, 5);
        within.iter().map(|w| centre * (1.0 + spread * z + spread * w)).collect()
    };
    samples(Direction::Higher, &between.iter().enumerate().map(process).collect::<Vec<Vec<f64>>>())
}

#[test]
fn quantiles_are_those_of_printed_tables() {
    for (freedom, expected) in
        [(1.0, 12.706), (2.0, 4.303), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042), (1e9, 1.960)]
    {
        assert_eq!((quantile(0.975, freedom) * 1e3).round() / 1e3, expected, "{freedom}");
    }
}

#[test]
fn a_worked_example() {
    // ln 2 apart; variances 0.01 and 0.01 over 4 each: error sqrt(0.005), freedom 6, t = 2.446912 and 0.905703.
    let d = 0.01_f64.sqrt() * (3.0_f64 / 4.0).sqrt();
    let at = |m: f64| [-d, -d, d, d].map(|x| (m + x).exp());
    let effect = Effect::between(&higher(&at(0.0)), &higher(&at(2_f64.ln()))).unwrap();
    let error = 0.005_f64.sqrt();
    let near =
        |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
    near(effect.ratio, 2.0);
    near(effect.low.unwrap(), 2.0 * (-2.446912 * error).exp());
    near(effect.high.unwrap(), 2.0 * (2.446912 * error).exp());
    near(1.0 + effect.detectable.unwrap(), ((2.446912 + 0.905703) * error).exp());
    assert_eq!((effect.basis, effect.base_n, effect.new_n), (Basis::Samples, 4, 4));
}

#[test]
fn the_rule() {
    let base = [100.0, 101.0, 99.0, 100.0];
    assert_eq!(verdict(&base, &[100.0, 100.5, 99.5, 100.2]), Verdict::Same);
    assert_eq!(verdict(&base, &[110.0, 111.0, 109.0, 110.0]), Verdict::Faster);
    assert_eq!(verdict(&base, &[90.0, 91.0, 89.0, 90.0]), Verdict::Slower);
    assert_eq!(verdict(&base, &[97.0, 99.0, 95.0, 98.0]), Verdict::Inconclusive);
    assert_eq!(verdict(&base, &[60.0, 150.0, 100.0, 90.0]), Verdict::TooNoisy);
    let lower = |values: &[f64]| samples(Direction::Lower, &[values.to_vec()]);
    assert_eq!(judge(&lower(&base), &lower(&[90.0, 91.0, 89.0, 90.0]), THRESHOLD).verdict, Verdict::Faster);
}

#[test]
fn the_same_is_what_an_interval_of_90_percent_says() {
    // Logarithms of +-s, four times in each arm: a standard error of s * sqrt(2/3) with 6 degrees of freedom, t(0.95) = 1.943180
    // and t(0.975) = 2.446912.
    let arm = |reach: f64, t: f64| {
        let s = reach / t / (2.0f64 / 3.0).sqrt();
        [s.exp(), (-s).exp(), s.exp(), (-s).exp()]
    };
    let band = 1.03f64.ln();
    let (within, beyond) = (arm(0.999 * band, 1.943_180), arm(1.001 * band, 1.943_180));
    assert_eq!(verdict(&within, &within), Verdict::Same);
    assert_eq!(verdict(&beyond, &beyond), Verdict::Inconclusive);
    let effect = Effect::between(&higher(&within), &higher(&within)).unwrap();
    assert!(effect.high > Some(1.03), "the interval that is printed is wider: {effect:?}");
}

#[test]
fn an_alarm_needs_99_percent_and_of_noise_999_of_1000() {
    // As above: half the width of an interval is t times the standard error, with t(0.975) = 2.446912, t(0.995) = 3.707428,
    // t(0.9995) = 5.958816 and t(0.8) = 0.905703 at 6 degrees of freedom. A measurement that would miss 15 % is too noisy: ln 1.15
    // over 2.446912 + 0.905703.
    let arm = |error: f64, log: f64| {
        let s = error / (2.0f64 / 3.0).sqrt();
        [s, -s, s, -s].map(|x| (x + log).exp())
    };
    let judged = |error: f64, log: f64| verdict(&arm(error, 0.0), &arm(error, log));
    for (error, t, otherwise) in
        [(0.02, 3.707_428, Verdict::Inconclusive), (0.05, 5.958_816, Verdict::TooNoisy)]
    {
        for (sign, found) in [(1.0, Verdict::Faster), (-1.0, Verdict::Slower)] {
            assert_eq!(judged(error, sign * 1.001 * t * error), found, "{error}");
            assert_eq!(judged(error, sign * 0.999 * t * error), otherwise, "{error}");
        }
    }
    // The same difference is an alarm just below the noise limit, and none just above it.
    let noisy = 1.15f64.ln() / (2.446_912 + 0.905_703);
    assert_eq!(judged(0.999 * noisy, -0.17), Verdict::Slower);
    assert_eq!(judged(1.001 * noisy, -0.17), Verdict::TooNoisy);
    assert_eq!(judged(0.999 * noisy, 0.0), Verdict::Inconclusive);
    assert_eq!(judged(1.001 * noisy, 0.0), Verdict::TooNoisy);
}

#[test]
fn a_difference_must_reach_the_threshold() {
    // Almost no spread, so only the size of the difference decides: the band is 1 / 1.03 to 1.03.
    let at = |ratio: f64| verdict(&[100.0, 100.0, 100.001], &[100.0 * ratio, 100.0 * ratio, 100.001 * ratio]);
    assert_eq!((at(1.0301), at(1.0299)), (Verdict::Faster, Verdict::Same));
    assert_eq!((at(1.0 / 1.0301), at(1.0 / 1.0299)), (Verdict::Slower, Verdict::Same));
    let exact = judge(&higher(&[2.0, 2.0]), &higher(&[1.0, 1.0]), 1.0);
    assert_eq!(exact.verdict, Verdict::Slower, "a difference of the threshold itself counts");
    assert_eq!(judge(&higher(&[1.0, 1.0]), &higher(&[2.0, 2.0]), 1.0).verdict, Verdict::Faster);
}

#[test]
fn what_differs_by_the_threshold_is_called_the_same_once_in_twenty_times() {
    let same = |seed| {
        let new = arm(seed + 7000, 8, 50.0 * 1.03, 0.01);
        judge(&arm(seed, 8, 50.0, 0.01), &new, 0.03).verdict == Verdict::Same
    };
    let found = (1..=400).filter(|&seed| same(seed)).count();
    assert!((1..=32).contains(&found), "{found} of 400");
}

#[test]
fn a_median_beyond_the_threshold_is_never_the_same() {
    // The geometric means agree within the band, the medians do not.
    let mut new = vec![96.0; 300];
    new.extend(vec![104.0; 250]);
    let mut base = vec![96.0; 250];
    base.extend(vec![104.0; 300]);
    let judged = judge(&higher(&base), &higher(&new), 0.03);
    let effect = judged.effect.unwrap();
    assert!(effect.low > Some(1.0 / 1.03) && effect.high < Some(1.03), "{effect:?}");
    assert_eq!(judged.verdict, Verdict::Inconclusive);
}

#[test]
fn few_values_and_equal_values() {
    assert_eq!(verdict(&[], &[]), Verdict::Inconclusive);
    assert_eq!(verdict(&[], &[1.0]), Verdict::New);
    assert_eq!(verdict(&[1.0], &[]), Verdict::Missing);
    let one = judge(&higher(&[2.0]), &higher(&[1.0]), THRESHOLD);
    assert_eq!((one.verdict, one.effect.unwrap().ratio), (Verdict::Inconclusive, 0.5));
    assert!(one.why.unwrap().contains("1 and 1 samples"));
    assert_eq!(verdict(&[2.0, 2.0], &[2.0, 2.0]), Verdict::Same);
    assert_eq!(verdict(&[2.0, 2.0], &[1.0, 1.0]), Verdict::Slower);
    assert_eq!(verdict(&[0.1, 0.1, 0.1], &[0.2, 0.2, 0.2]), Verdict::Faster);
}

#[test]
fn values_without_a_ratio() {
    assert_eq!(verdict(&[0.0, 0.0], &[0.0, 0.0]), Verdict::Same);
    for (base, new) in [(&[0.0][..], &[0.0][..]), (&[0.0, 0.0], &[0.0]), (&[0.0], &[0.0, 0.0])] {
        assert_eq!(verdict(base, new), Verdict::Inconclusive, "one value is not enough");
    }
    assert_eq!(verdict(&[0.0, 0.0], &[5.0, 5.0]), Verdict::Inconclusive);
    assert_eq!(verdict(&[-1.0, 2.0], &[1.0, 2.0]), Verdict::Inconclusive);
}

#[test]
fn different_things_are_not_comparable() {
    let of = |unit, direction| Samples::new(unit, direction, vec![1.0, 1.0]).unwrap();
    let base = of("s", Direction::Lower);
    let verdict = |new: Samples| judge(&base, &new, THRESHOLD).verdict;
    assert_eq!(verdict(of("ms", Direction::Lower)), Verdict::NotComparable);
    assert_eq!(verdict(of("s", Direction::Higher)), Verdict::NotComparable);
    let told = of("s", Direction::Info);
    assert_eq!(judge(&told, &told, THRESHOLD).verdict, Verdict::NotComparable);
}

#[test]
fn processes_count_where_both_arms_have_them() {
    let two = samples(Direction::Higher, &[vec![1.0, 2.0, 3.0], vec![2.0]]);
    let one = higher(&[1.0, 2.0, 3.0]);
    let basis = |a, b| Effect::between(a, b).map(|e| (e.basis, e.base_n, e.new_n)).unwrap();
    assert_eq!(basis(&two, &two), (Basis::Processes, 2, 2));
    assert_eq!(basis(&two, &one), (Basis::Samples, 4, 3));
}

#[test]
fn an_arm_against_itself_is_the_same_and_a_shift_is_found() {
    let (mut false_alarms, mut same, mut missed) = (0, 0, 0);
    for seed in 1..=200 {
        let base = arm(seed, 8, 50.0, 0.005);
        let again = judge(&base, &arm(seed + 5000, 8, 50.0, 0.005), THRESHOLD).verdict;
        same += i32::from(again == Verdict::Same);
        false_alarms += i32::from(matches!(again, Verdict::Slower | Verdict::Faster));
        let slower = judge(&base, &arm(seed + 9000, 8, 50.0 * 0.95, 0.005), THRESHOLD).verdict;
        missed += i32::from(slower != Verdict::Slower);
    }
    assert_eq!((same, false_alarms, missed), (200, 0, 0));
}

#[test]
fn noise_gives_no_answer_rather_than_a_wrong_one() {
    let mut verdicts = [0; 4];
    for seed in 1..=200 {
        let judged = judge(&arm(seed, 4, 50.0, 0.2), &arm(seed + 5000, 4, 50.0, 0.2), THRESHOLD).verdict;
        let place = [Verdict::TooNoisy, Verdict::Slower, Verdict::Faster, Verdict::Same];
        verdicts[place.iter().position(|v| *v == judged).expect("nothing else is likely")] += 1;
    }
    let [noisy, slower, faster, same] = verdicts;
    assert!(noisy >= 185 && slower + faster <= 15 && same == 0, "{verdicts:?}");
}

#[test]
fn the_worst_verdict_gives_the_code() {
    let code = |verdicts: &[Verdict]| exit_code(verdicts.iter().copied());
    assert_eq!(code(&[Verdict::Same, Verdict::Faster, Verdict::New]), 0);
    assert_eq!(code(&[Verdict::Faster, Verdict::Inconclusive]), 3);
    assert_eq!(code(&[Verdict::Inconclusive, Verdict::TooNoisy]), 5);
    assert_eq!(code(&[Verdict::TooNoisy, Verdict::Slower]), 1);
    assert_eq!(code(&[Verdict::Missing]), 1);
    assert_eq!(code(&[Verdict::Slower, Verdict::Invalid]), 5);
    assert_eq!(code(&[Verdict::Invalid, Verdict::NotComparable]), 4);
    assert_eq!(code(&[Verdict::NotComparable, Verdict::Incorrect]), 6);
    assert_eq!(code(&[]), 4, "nothing was compared");
    for (verdict, expected) in Verdict::BY_SEVERITY {
        assert_eq!(code(&[*verdict]), *expected, "{verdict}");
    }
}

fn swapped(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Faster => Verdict::Slower,
        Verdict::Slower => Verdict::Faster,
        Verdict::Missing => Verdict::New,
        Verdict::New => Verdict::Missing,
        other => other,
    }
}

/// Few or no values, of any magnitude.
fn of_any_magnitude() -> impl Strategy<Value = Vec<Vec<f64>>> {
    let value = prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL;
    prop::collection::vec(prop::collection::vec(value, 0..3), 0..4)
}

fn processes() -> impl Strategy<Value = Vec<Vec<f64>>> {
    prop::collection::vec(prop::collection::vec(1.0..4.0, 0..5), 0..6)
}

fn near(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * (a.abs().max(b.abs()) + 1.0),
        (a, b) => a == b,
    }
}

proptest! {
    #[test]
    fn swapping_the_arms_inverts(a in processes(), b in processes(), threshold in 0.001..0.5) {
        for direction in [Direction::Lower, Direction::Higher] {
            let (a, b) = (samples(direction, &a), samples(direction, &b));
            let (there, back) = (judge(&a, &b, threshold), judge(&b, &a, threshold));
            prop_assert_eq!(back.verdict, swapped(there.verdict));
            if let (Some(there), Some(back)) = (there.effect, back.effect) {
                prop_assert!(near(Some(there.ratio), Some(1.0 / back.ratio)));
                prop_assert!(near(there.low, back.high.map(|h| 1.0 / h)));
                prop_assert_eq!(there.detectable, back.detectable);
            }
        }
    }

    #[test]
    fn units_change_nothing(a in processes(), b in processes(), power in -60_i32..60) {
        let factor = 10_f64.powi(power);
        let scaled = |p: &[Vec<f64>]| {
            let by = |v: &Vec<f64>| v.iter().map(|x| x * factor).collect();
            samples(Direction::Higher, &p.iter().map(by).collect::<Vec<Vec<f64>>>())
        };
        let plain = judge(&samples(Direction::Higher, &a), &samples(Direction::Higher, &b), THRESHOLD);
        let other = judge(&scaled(&a), &scaled(&b), THRESHOLD);
        prop_assert_eq!(plain.verdict, other.verdict);
        let part = |f: fn(&Effect) -> Option<f64>| {
            (plain.effect.as_ref().and_then(f), other.effect.as_ref().and_then(f))
        };
        for (a, b) in [part(|e| Some(e.ratio)), part(|e| e.low), part(|e| e.high), part(|e| e.detectable)] {
            prop_assert!(near(a, b), "{:?} {:?}", a, b);
        }
    }

    #[test]
    fn the_other_direction_inverts(a in processes(), b in processes()) {
        let in_direction = |d| judge(&samples(d, &a), &samples(d, &b), THRESHOLD).verdict;
        let (higher, lower) = (in_direction(Direction::Higher), in_direction(Direction::Lower));
        let expected = match higher {
            Verdict::Faster | Verdict::Slower => swapped(higher),
            other => other,
        };
        prop_assert_eq!(lower, expected);
    }

    #[test]
    fn nothing_panics_and_every_number_is_finite(
        a in of_any_magnitude(),
        b in of_any_magnitude(),
        positive in any::<bool>(),
    ) {
        let made = |p: &[Vec<f64>]| {
            let sign = |v: &Vec<f64>| v.iter().map(|x| if positive { x.abs() } else { *x }).collect();
            samples(Direction::Lower, &p.iter().map(sign).collect::<Vec<Vec<f64>>>())
        };
        let judged = judge(&made(&a), &made(&b), THRESHOLD);
        if let Some(e) = judged.effect {
            for number in [Some(e.ratio), e.low, e.high, e.detectable].into_iter().flatten() {
                prop_assert!(number.is_finite() && number >= 0.0, "{:?}", e);
            }
            prop_assert!(e.low.is_none_or(|low| low <= e.ratio) && e.high.is_none_or(|high| e.ratio <= high));
        }
    }

    #[test]
    fn the_same_never_hides_a_drop(a in processes(), b in processes(), threshold in 0.01..0.3) {
        let (a, b) = (samples(Direction::Higher, &a), samples(Direction::Higher, &b));
        if judge(&a, &b, threshold).verdict == Verdict::Same {
            let (old, now) = (a.headline().unwrap(), b.headline().unwrap());
            prop_assert!(now * (1.0 + threshold) > old && now < old * (1.0 + threshold));
        }
    }
}

/// Seconds of eight processes with twelve samples each, of which `slow(random)` says how many times longer they take.
fn disturbed(seed: u64, work: f64, slow: fn(u64) -> f64) -> Samples {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut sample = |jitter: f64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        work * (1.0 + 0.005 * jitter) * slow(state >> 20)
    };
    let process = |i: u64| noise(seed * 100 + i + 1, 12).into_iter().map(&mut sample).collect();
    samples(Direction::Lower, &(0..8).map(process).collect::<Vec<Vec<f64>>>())
}

#[test]
fn disturbances_give_no_wrong_verdict() {
    // One sample in eight takes three times as long; a random half of the samples takes a third longer.
    let kinds: [fn(u64) -> f64; 2] = [
        |random| if random % 8 == 0 { 3.0 } else { 1.0 },
        |random| if random % 2 == 0 { 4.0 / 3.0 } else { 1.0 },
    ];
    for (kind, slow) in kinds.into_iter().enumerate() {
        let mut wrong = 0;
        for seed in 1..=200 {
            let base = disturbed(seed, 1.0, slow);
            let equal = judge(&base, &disturbed(seed + 5000, 1.0, slow), THRESHOLD).verdict;
            let slower = judge(&base, &disturbed(seed + 9000, 1.05, slow), THRESHOLD).verdict;
            wrong += i32::from(matches!(equal, Verdict::Slower | Verdict::Faster));
            wrong += i32::from(matches!(slower, Verdict::Same | Verdict::Faster));
        }
        // An alarm needs 99 %, and 99.9 % where much scatters.
        assert!(wrong <= 4, "kind {kind}: {wrong} of 400 verdicts are wrong");
    }
}
