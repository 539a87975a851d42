//! Evidence that is too weak for *faster* or *slower*.
//!
//! Runs of one binary differ on a busy machine, by more than their samples show. So a difference of times or rates counts only if it
//! is larger than what the machine explains:
//!
//! - if the limit that bounds the case changed in the same direction, only the rest of the difference counts;
//! - if a side has a single process, whose samples do not show how processes differ, twice the threshold is needed;
//! - twice as much again if a quarter of the samples of a side, or more, are tainted.
//!
//! Arms of one run take turns, so that only the number of processes counts.

use super::steady;
use crate::result::Row;
use crate::verdict::{Basis, Effect};
use redline_system::number::percent;

/// The share of tainted samples from which on they weaken a verdict.
const TAINTED: f64 = 0.25;
/// The factor on the threshold for each weakness.
const FACTOR: f64 = 2.0;

/// Why a difference of these two rows in a metric does not count; `None` if it does.
pub(super) fn reason(
    (base, new): (&Row, &Row),
    name: &str,
    effect: &Effect,
    threshold: f64,
    arms: bool,
) -> Option<String> {
    if !base.samples_of(name).is_some_and(|samples| steady::follows_speed(name, samples)) {
        return None;
    }
    let mut needed = threshold;
    let mut facts = Vec::new();
    if effect.basis == Basis::Samples {
        needed *= FACTOR;
        facts.push("a side has one process".to_owned());
    }
    let tainted = tainted(base).max(tainted(new));
    if tainted >= TAINTED && !arms {
        needed *= FACTOR;
        facts.push(format!("{} of the samples of a side are tainted", percent(tainted)));
    }
    let found = effect.ratio.ln();
    let mut left = found.abs();
    if let Some(limit) = limit_ratio(base, new).filter(|limit| limit.ln() * found > 0.0 && !arms) {
        left -= limit.ln().abs();
        let way = if limit < 1.0 { "fell" } else { "rose" };
        facts.push(format!("the machine's limit {way} by {}", percent((limit - 1.0).abs())));
    }
    let weak = left < needed.ln_1p() && !facts.is_empty();
    weak.then(|| format!("{}: {} are needed", facts.join(", "), percent(needed)))
}

/// The share of tainted samples.
fn tainted(row: &Row) -> f64 {
    let conditions = || row.conditions.iter().flatten();
    let tainted = conditions().filter(|condition| !condition.tainted.is_empty()).count();
    tainted as f64 / conditions().count().max(1) as f64
}

/// The limit of the new run over that of the base, if both were read by the same method.
fn limit_ratio(base: &Row, new: &Row) -> Option<f64> {
    let (base, new) = steady::limits(base, new)?;
    Some(new.headline()? / base.headline()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::{Condition, Taint};
    use crate::stats::{Direction, Samples};
    use crate::verdict::{Verdict, judge};

    /// Processes of rates, with the limit beside each, `tainted` of whose samples are tainted.
    fn row(rates: &[&[f64]], limit: f64, tainted: usize) -> Row {
        let samples = |unit: &str, direction, values: &[Vec<f64>]| {
            Samples::by_process(unit, direction, values).unwrap()
        };
        let processes: Vec<Vec<f64>> = rates.iter().map(|process| process.to_vec()).collect();
        let limits: Vec<Vec<f64>> = processes.iter().map(|process| vec![limit; process.len()]).collect();
        let mut conditions = vec![Condition::default(); processes.concat().len()];
        conditions[..tainted].iter_mut().for_each(|condition| condition.tainted.insert(Taint::Switches));
        let row = Row::new("a").param("threads", 1).limit("read_bandwidth", None).conditions(conditions);
        row.metric("rate", samples("tokens/s", Direction::Higher, &processes))
            .metric("bytes", samples("bytes", Direction::Higher, &processes))
            .metric("limit", samples("GB/s", Direction::Info, &limits))
    }

    #[track_caller]
    fn why(base: &Row, new: &Row, name: &str, arms: bool) -> Option<String> {
        let samples = |row: &Row| row.samples_of(name).unwrap().clone();
        let judgement = judge(&samples(base), &samples(new), 0.05);
        assert!(matches!(judgement.verdict, Verdict::Faster | Verdict::Slower), "{judgement:?}");
        reason((base, new), name, &judgement.effect.unwrap(), 0.05, arms)
    }

    const BASE: &[f64] = &[100.0, 100.1, 99.9, 100.0];

    fn at(factor: f64) -> Vec<f64> {
        BASE.iter().map(|value| value * factor).collect()
    }

    #[test]
    fn one_process_needs_twice_the_threshold() {
        let base = row(&[BASE], 10.0, 0);
        for arms in [false, true] {
            let told = why(&base, &row(&[&at(1.09)], 10.0, 0), "rate", arms).unwrap();
            assert_eq!(told, "a side has one process: 10.0 % are needed");
            assert_eq!(why(&base, &row(&[&at(1.11)], 10.0, 0), "rate", arms), None);
            assert_eq!(why(&base, &row(&[&at(1.0 / 1.11)], 10.0, 0), "rate", arms), None);
        }
        assert_eq!(why(&base, &row(&[&at(1.09)], 10.0, 0), "bytes", false), None, "a size has no speed");
        let two = |factor: f64| row(&[&at(factor), &at(factor * 1.001)], 10.0, 0);
        assert_eq!(why(&two(1.0), &two(1.09), "rate", false), None);
    }

    #[test]
    fn tainted_samples_need_twice_as_much_again() {
        let (base, new) = (row(&[BASE], 10.0, 0), row(&[&at(1.15)], 10.0, 1));
        let told = why(&base, &new, "rate", false).unwrap();
        assert_eq!(
            told,
            "a side has one process, 25.0 % of the samples of a side are tainted: 20.0 % are needed"
        );
        assert_eq!(why(&base, &new, "rate", true), None, "disturbances are those of both arms");
        assert_eq!(why(&base, &row(&[&at(1.25)], 10.0, 4), "rate", false), None);
    }

    #[test]
    fn what_the_limit_explains_does_not_count() {
        let base = row(&[BASE], 10.0, 0);
        let told = why(&base, &row(&[&at(0.7)], 7.5, 0), "rate", false).unwrap();
        assert!(told.contains("the machine's limit fell by 25.0 %"), "{told}");
        assert!(why(&base, &row(&[&at(1.3)], 12.5, 0), "rate", false).is_some());
        // The rest is large enough, the limit changed the other way, or it was read by another method.
        assert_eq!(why(&base, &row(&[&at(0.5)], 7.5, 0), "rate", false), None);
        assert_eq!(why(&base, &row(&[&at(0.7)], 12.5, 0), "rate", false), None);
        let other = Row { limit_method: Some("probe/0".into()), ..row(&[&at(0.7)], 7.5, 0) };
        assert_eq!(why(&base, &other, "rate", false), None);
    }
}
