//! Statistics compared with SciPy (`scipy/make.py` made `scipy/values.json`).

use redline_lab::stats::student::quantile;
use redline_lab::verdict::{Basis, Effect};
use redline_lab::{Direction, Samples};
use serde_json::Value;

fn golden(part: &str) -> Value {
    let all: Value = serde_json::from_str(include_str!("scipy/values.json")).expect("the file is JSON");
    all[part].clone()
}

#[track_caller]
fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(number).collect()
}

fn list(part: &str) -> Vec<Value> {
    golden(part).as_array().expect("a list").clone()
}

fn samples(values: &[f64]) -> Samples {
    Samples::new("tokens/s", Direction::Higher, values.to_vec()).expect("finite")
}

/// Samples in which every value is its own process.
fn processes(values: &[f64]) -> Samples {
    let processes: Vec<Vec<f64>> = values.iter().map(|v| vec![*v]).collect();
    Samples::by_process("tokens/s", Direction::Higher, &processes).expect("finite")
}

#[track_caller]
fn near(what: &str, found: Option<f64>, expected: &Value, tolerance: f64) {
    let (found, expected) = (found.expect(what), number(expected));
    let off = (found - expected).abs();
    assert!(off <= tolerance * expected.abs(), "{what}: {found}, not {expected}");
}

#[test]
fn quantiles_of_student() {
    let cases = list("student");
    assert_eq!(cases.len(), 7 * 10 + 7 * 16);
    for case in &cases {
        let (p, freedom) = (number(&case["p"]), number(&case["freedom"]));
        near(&format!("t({p}, {freedom})"), Some(quantile(p, freedom)), &case["t"], 1e-8);
    }
}

#[test]
fn descriptions() {
    let sets = golden("samples");
    let sets = sets.as_object().expect("an object");
    assert_eq!(sets.len(), 8);
    for (name, set) in sets {
        let values = numbers(&set["values"]);
        let s = samples(&values);
        near(&format!("{name} median"), s.median(), &set["median"], 1e-15);
        near(&format!("{name} mean"), s.mean(), &set["mean"], 1e-15);
        near(&format!("{name} std"), s.std(), &set["std"], 1e-12);
        near(&format!("{name} mad"), s.mad(), &set["mad"], 1e-12);
        let mut told = 0;
        for (percent, expected) in set["percentiles"].as_object().expect("an object") {
            // Too few samples have no percentile: see `ranks`.
            if let Some(found) = s.percentile(percent.parse().expect("a number")) {
                near(&format!("{name} p{percent}"), Some(found.value), expected, 1e-14);
                told += 1;
            }
        }
        assert_eq!(told > 0, values.len() >= 6, "{name}");
        let interval = processes(&values).interval().expect("two values");
        near(&format!("{name} low"), Some(interval.low), &set["log_interval"][0], 1e-9);
        near(&format!("{name} high"), Some(interval.high), &set["log_interval"][1], 1e-9);
    }
}

#[test]
fn ranks_of_percentiles() {
    let cases = list("ranks");
    assert_eq!(cases.len(), 7 * 15);
    let mut without = 0;
    for case in &cases {
        let (n, percent) = (number(&case["n"]) as u32, number(&case["percent"]));
        let found = samples(&(0..n).map(f64::from).collect::<Vec<_>>()).percentile(percent);
        if case["places"].is_null() {
            assert_eq!(found, None, "p{percent} of {n}");
            without += 1;
        } else {
            let found = found.unwrap_or_else(|| panic!("p{percent} of {n}"));
            assert_eq!(vec![found.low, found.high], numbers(&case["places"]), "p{percent} of {n}");
        }
    }
    assert!(without > 20 && without < 80, "{without}");
}

#[test]
fn intervals_of_ratios() {
    let cases = list("welch");
    assert_eq!(cases.len(), 21);
    for case in &cases {
        let (base, new) = (numbers(&case["base"]), numbers(&case["new"]));
        let what = format!("{} and {}, {} degrees", base.len(), new.len(), case["freedom"]);
        for (arms, basis) in [
            ((samples(&base), samples(&new)), Basis::Samples),
            ((processes(&base), processes(&new)), Basis::Processes),
        ] {
            let effect = Effect::between(&arms.0, &arms.1).expect("positive values");
            assert_eq!(effect.basis, basis);
            near(&what, Some(effect.ratio), &case["ratio"], 1e-12);
            near(&what, effect.low, &case["low"], 1e-9);
            near(&what, effect.high, &case["high"], 1e-9);
        }
    }
}

/// The sum of two quantiles of the central t replaces the noncentral one. It is low by a twentieth if three processes are
/// compared with three and only one side scatters (2 degrees of freedom), by a hundredth at 4 degrees, and by less than 0.3 %
/// from 7 on.
#[test]
fn what_can_be_detected_is_near_what_the_noncentral_t_says() {
    let mut least = 1.0_f64;
    for case in &list("welch") {
        let arms = (samples(&numbers(&case["base"])), samples(&numbers(&case["new"])));
        let effect = Effect::between(&arms.0, &arms.1).expect("positive values");
        let found = effect.detectable.expect("an interval").ln_1p();
        let (exact, freedom) = (number(&case["detectable"]).ln_1p(), number(&case["freedom"]));
        let short = match freedom {
            7.0.. => 0.997,
            3.9.. => 0.987,
            _ => 0.948,
        };
        let share = found / exact;
        assert!((short..1.001).contains(&share), "{freedom} degrees: {found}, exactly {exact}");
        least = least.min(share);
    }
    assert!(least < 0.96, "few degrees of freedom are among the cases: {least}");
}
