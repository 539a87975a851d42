//! Judges differences: a pure function of two sample sets and a threshold, and an exit code for a list of verdicts.
//!
//! Processes are the exchangeable units, so the judged values are the medians of the processes. If an arm has only one
//! process, its samples are used instead and [`Basis`] says so; they do not show how processes differ. The ratio and its
//! interval come from Welch's t over the logarithms of these values (95 %, two-sided). With a threshold x, the band
//! reaches from 1 / (1 + x) to 1 + x:
//!
//! - *same*: the 90 % interval lies completely in the band, and so does the ratio of the headlines. This is the equivalence test by
//!   two one-sided tests (Schuirmann 1987): a difference as large as the threshold is called the same at most once in twenty times;
//! - *faster*, *slower*: the 99 % interval excludes 1, the ratio lies outside the band, and the headlines do not contradict. If the
//!   measurement is too noisy, the 99.9 % interval is used, because two speeds of a machine that are unevenly distributed over the
//!   arms look like a difference;
//! - *too noisy*: none of these, and even a difference of five times the threshold would be missed once in five times;
//! - *inconclusive*: none of these, so more samples may decide.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stats::{Direction, Logs, Samples, student};

/// The confidence level of the intervals.
pub const CONFIDENCE: f64 = 0.95;
/// The confidence with which 1 must be excluded before a result is called faster or slower.
const ALARM: f64 = 0.99;
/// The confidence with which a ratio must lie in the band: 5 % on either side.
const EQUIVALENCE: f64 = 0.90;
/// The confidence required for faster or slower if the measurement is too noisy.
const NOISY_ALARM: f64 = 0.999;
/// The default threshold; differences below it do not matter.
pub const THRESHOLD: f64 = 0.03;
/// A measurement is too noisy if it would miss a difference of this many thresholds.
const NOISY: f64 = 5.0;
/// The probability with which a detectable difference is found.
const POWER: f64 = 0.8;

/// The result of comparing two measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Shown to differ by less than the threshold.
    Same,
    /// The new one is better.
    Faster,
    /// The new one is worse.
    Slower,
    /// There are too few samples to decide.
    Inconclusive,
    /// The samples scatter too much for the threshold.
    TooNoisy,
    /// The two measure different things, or ran on different machines.
    NotComparable,
    /// Only the base has it.
    Missing,
    /// Only the new run has it.
    New,
    /// One of the two is invalid.
    Invalid,
    /// Outputs differ that must be equal.
    Incorrect,
}

impl Verdict {
    /// Every verdict with its exit code, the worst first. Invalid input outweighs any finding, and a finding outweighs an
    /// undecided comparison.
    pub const BY_SEVERITY: &[(Self, u8)] = &[
        (Self::Incorrect, 6),
        (Self::NotComparable, 4),
        (Self::Invalid, 5),
        (Self::Slower, 1),
        (Self::Missing, 1),
        (Self::TooNoisy, 5),
        (Self::Inconclusive, 3),
        (Self::Same, 0),
        (Self::Faster, 0),
        (Self::New, 0),
    ];

    const fn label(self) -> (&'static str, &'static str) {
        match self {
            Self::Same => ("=", "same"),
            Self::Faster => ("✓", "faster"),
            Self::Slower => ("✗", "slower"),
            Self::Inconclusive => ("?", "inconclusive"),
            Self::TooNoisy => ("~", "too noisy"),
            Self::NotComparable => ("≠", "not comparable"),
            Self::Missing => ("✗", "missing"),
            Self::New => ("+", "new"),
            Self::Invalid => ("!", "invalid"),
            Self::Incorrect => ("!", "incorrect"),
        }
    }

    /// A symbol shown before the name, so that a column of verdicts is easy to scan.
    pub fn symbol(self) -> &'static str {
        self.label().0
    }

    /// The name of the verdict.
    pub fn name(self) -> &'static str {
        self.label().1
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.symbol(), self.name())
    }
}

/// The exit code of the worst verdict; 4 if nothing was compared.
pub fn exit_code(verdicts: impl IntoIterator<Item = Verdict>) -> u8 {
    let place = |v: Verdict| Verdict::BY_SEVERITY.iter().position(|(other, _)| *other == v);
    let worst = verdicts.into_iter().filter_map(place).min();
    worst.map_or(4, |at| Verdict::BY_SEVERITY[at].1)
}

/// The exchangeable units of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Medians of processes.
    Processes,
    /// Samples, because an arm has only one process.
    #[default]
    Samples,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The improvement as a ratio: new / base if higher is better or there is no direction, base / new if lower is better.
///
/// When read, only `ratio` is required.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The ratio of the geometric means.
    pub ratio: f64,
    /// Lower end of its 95 % interval; `None` with fewer than two values on a side. No verdict depends on this interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// The interval that decides *same*: 90 %. `None` if nothing was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equivalence: Option<[f64; 2]>,
    /// The interval that decides *faster* and *slower*: 99 %, or 99.9 % in a measurement that is too noisy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarm: Option<[f64; 2]>,
    /// The smallest difference that would be found in four of five such measurements: 0.1 is 10 %.
    pub detectable: Option<f64>,
    /// The exchangeable units.
    #[serde(default)]
    pub basis: Basis,
    /// Whether samples were scaled to the same speed of the machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steadied: bool,
    /// Number of units in the base.
    #[serde(default)]
    pub base_n: usize,
    /// Number of units in the new run.
    #[serde(default)]
    pub new_n: usize,
}

/// Logarithms of the ratio, of half its interval's width, and of the detectable difference.
struct Log {
    ratio: f64,
    spread: Option<Spread>,
}

/// The uncertainty of a ratio, in logarithms.
#[derive(Clone, Copy)]
struct Spread {
    /// Half the width of the interval.
    reach: f64,
    /// Half the width of the interval that must lie in the band to be called the same.
    equal: f64,
    /// Half the width of the interval that must exclude 1 to be called faster or slower.
    sure: f64,
    /// The same if the measurement is too noisy.
    very_sure: f64,
    /// The smallest difference that is likely to be found.
    detectable: f64,
}

impl Effect {
    /// Computes the effect; `None` if a side has no samples or a value that is not positive.
    pub fn between(base: &Samples, new: &Samples) -> Option<Self> {
        Self::with_log(base, new).map(|(effect, _)| effect)
    }

    fn with_log(base: &Samples, new: &Samples) -> Option<(Self, Log)> {
        let (basis, [base_values, new_values]) = units(base, new);
        let (b, n) = (Logs::of(&base_values)?, Logs::of(&new_values)?);
        let ratio = oriented(new.direction(), n.mean - b.mean);
        let spread = (b.n > 1.0 && n.n > 1.0).then(|| welch(b, n));
        let effect = Self {
            ratio: bounded(ratio),
            low: spread.map(|s| bounded(ratio - s.reach)),
            high: spread.map(|s| bounded(ratio + s.reach)),
            equivalence: None,
            alarm: None,
            detectable: spread.map(|s| bounded(s.detectable) - 1.0),
            basis,
            steadied: false,
            base_n: base_values.len(),
            new_n: new_values.len(),
        };
        Some((effect, Log { ratio, spread }))
    }
}

/// The values that are compared.
fn units(base: &Samples, new: &Samples) -> (Basis, [Vec<f64>; 2]) {
    if base.processes().len() > 1 && new.processes().len() > 1 {
        (Basis::Processes, [base, new].map(Samples::process_medians))
    } else {
        (Basis::Samples, [base, new].map(|samples| samples.values().to_vec()))
    }
}

/// The geometric means of the units of both sides, whose ratio is that of [`Effect::between`]; `None` if there is no effect.
pub(crate) fn means(base: &Samples, new: &Samples) -> Option<[f64; 2]> {
    let (_, [base, new]) = units(base, new);
    Some([Logs::of(&base)?.mean, Logs::of(&new)?.mean].map(bounded))
}

/// The finite number with this logarithm.
fn bounded(log: f64) -> f64 {
    log.exp().min(f64::MAX)
}

/// The uncertainty of the difference of two means.
fn welch(a: Logs, b: Logs) -> Spread {
    let (from_a, from_b) = (a.variance / a.n, b.variance / b.n);
    let error = (from_a + from_b).sqrt();
    let parts = from_a * from_a / (a.n - 1.0) + from_b * from_b / (b.n - 1.0);
    let all = a.n + b.n - 2.0;
    // `parts` is 0 if the values of each side are equal.
    let freedom = if parts > 0.0 { (from_a + from_b) * (from_a + from_b) / parts } else { all };
    let half = |confidence: f64| student::quantile(f64::midpoint(1.0, confidence), freedom) * error;
    let reach = half(CONFIDENCE);
    let detectable = reach + student::quantile(POWER, freedom) * error;
    Spread { reach, equal: half(EQUIVALENCE), sure: half(ALARM), very_sure: half(NOISY_ALARM), detectable }
}

/// The logarithm with its sign changed if lower is better.
fn oriented(direction: Direction, log: f64) -> f64 {
    if direction == Direction::Lower { -log } else { log }
}

/// A verdict with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The ratio and its interval, if there is one.
    pub effect: Option<Effect>,
    /// The reason, if the numbers do not show it.
    pub why: Option<String>,
}

/// Judges `new` against `base`. `threshold` is the relative difference that matters, such as 0.03. The [module
/// documentation](self) states the rule. Swapping the arms swaps faster and slower, missing and new; units cancel.
pub fn judge(base: &Samples, new: &Samples, threshold: f64) -> Judgement {
    let without = |verdict, why: Option<String>| Judgement { verdict, effect: None, why };
    if base.unit() != new.unit() {
        return without(Verdict::NotComparable, Some(format!("`{}` against `{}`", base.unit(), new.unit())));
    }
    if base.direction() != new.direction() || base.direction() == Direction::Info {
        let (base, new) = (base.direction().name(), new.direction().name());
        return without(Verdict::NotComparable, Some(format!("better is `{base}` against `{new}`")));
    }
    match (base.headline(), new.headline()) {
        (None, None) => without(Verdict::Inconclusive, Some("no samples".to_owned())),
        (Some(_), None) => without(Verdict::Missing, None),
        (None, Some(_)) => without(Verdict::New, None),
        (Some(old), Some(now)) => Effect::with_log(base, new).map_or_else(
            || not_positive(base, new),
            |(effect, log)| decide(effect, &log, oriented(new.direction(), now.ln() - old.ln()), threshold),
        ),
    }
}

fn decide(effect: Effect, log: &Log, headlines: f64, threshold: f64) -> Judgement {
    let Some(spread) = log.spread else {
        let why = format!("{} and {} samples: an interval needs 2", effect.base_n, effect.new_n);
        return Judgement { verdict: Verdict::Inconclusive, effect: Some(effect), why: Some(why) };
    };
    let band = threshold.ln_1p();
    let noisy = spread.detectable.exp_m1() > NOISY * threshold;
    let sure = if noisy { spread.very_sure } else { spread.sure };
    let interval = |reach: f64| Some([log.ratio - reach, log.ratio + reach].map(bounded));
    let effect = Effect { equivalence: interval(spread.equal), alarm: interval(sure), ..effect };
    let judged = |verdict, why| Judgement { verdict, effect: Some(effect), why };
    if log.ratio.abs() + spread.equal < band && headlines.abs() < band {
        return judged(Verdict::Same, None);
    }
    if log.ratio > sure && log.ratio >= band && headlines > -band {
        return judged(Verdict::Faster, None);
    }
    if log.ratio < -sure && log.ratio <= -band && headlines < band {
        return judged(Verdict::Slower, None);
    }
    judged(if noisy { Verdict::TooNoisy } else { Verdict::Inconclusive }, None)
}

/// Values without a ratio are the same if all of them are equal.
fn not_positive(base: &Samples, new: &Samples) -> Judgement {
    let first = base.values().first();
    let mut values = base.values().iter().chain(new.values());
    let equal = base.n() > 1 && new.n() > 1 && values.all(|v| Some(v) == first);
    let verdict = if equal { Verdict::Same } else { Verdict::Inconclusive };
    Judgement { verdict, effect: None, why: (!equal).then(|| "a ratio needs positive values".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headlines_that_say_the_contrary_leave_it_open() {
        let samples = |values: &[f64]| Samples::new("x", Direction::Higher, values.to_vec()).unwrap();
        let (effect, log) = Effect::with_log(&samples(&[1.0, 1.001]), &samples(&[1.2, 1.201])).unwrap();
        let verdict = |ratio: f64, headlines: f64| {
            decide(effect, &Log { ratio, spread: log.spread }, headlines, 0.03).verdict
        };
        for (ratio, expected) in [(0.2, Verdict::Faster), (-0.2, Verdict::Slower)] {
            for agrees in [ratio, 0.0, -0.1 * ratio] {
                assert_eq!(verdict(ratio, agrees), expected, "{agrees}");
            }
            assert_eq!(verdict(ratio, -ratio), Verdict::Inconclusive);
        }
    }
}
