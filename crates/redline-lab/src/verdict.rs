//! Faster or slower: a pure function of two sample sets and a threshold, with an exit code for a list of verdicts.
//!
//! What may be exchanged are processes, so the values judged are the medians of the processes; where an arm has one process
//! only, its samples take their place, and [`Basis`] says so: they know nothing of how processes differ. The ratio and its
//! interval come from Welch's t over the logarithms of these values (95 %, two-sided). With the band from
//! 1 / (1 + threshold) to 1 + threshold:
//!
//! - *same*: an interval of 90 % lies wholly in the band, and so does the ratio of the headlines. That is the test of equivalence by
//!   two one-sided tests (Schuirmann 1987): what differs by the threshold is called the same once in twenty times at most;
//! - *faster*, *slower*: an interval of 99 % leaves out 1, the ratio lies beyond the band, and the headlines do not say the
//!   contrary; of a measurement that is too noisy, an interval of 99.9 %, since two speeds of a machine that fall unevenly on the
//!   arms look like a difference;
//! - *too noisy*: neither, and even a difference of five times the threshold would have been missed once in five times;
//! - *inconclusive*: neither, so more samples may tell.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stats::{Direction, Logs, Samples, student};

/// The confidence of the intervals.
pub const CONFIDENCE: f64 = 0.95;
/// The confidence with which 1 must be left out before anything is called faster or slower.
const ALARM: f64 = 0.99;
/// The confidence with which a ratio must lie in the band: 5 % on either side.
const EQUIVALENCE: f64 = 0.90;
/// The confidence of an alarm for a measurement that is too noisy.
const NOISY_ALARM: f64 = 0.999;
/// The threshold unless told otherwise: differences below it do not matter.
pub const THRESHOLD: f64 = 0.03;
/// A measurement that would miss this many thresholds is too noisy.
const NOISY: f64 = 5.0;
/// The probability with which a detectable difference is found.
const POWER: f64 = 0.8;

/// What two measurements say about each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Shown to differ by less than the threshold.
    Same,
    /// New is better.
    Faster,
    /// New is worse.
    Slower,
    /// The samples do not suffice.
    Inconclusive,
    /// The samples scatter too much for the threshold.
    TooNoisy,
    /// The two do not measure the same thing, or not on the same machine.
    NotComparable,
    /// Only the base has it.
    Missing,
    /// Only new has it.
    New,
    /// One of the two must not be believed.
    Invalid,
    /// Outputs that must be equal differ.
    Incorrect,
}

impl Verdict {
    /// Every verdict with its exit code, the worst first. What cannot be trusted outweighs what was found with it; what was
    /// found outweighs what could not be told.
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

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Inconclusive => "inconclusive",
            Self::TooNoisy => "too noisy",
            Self::NotComparable => "not comparable",
            Self::Missing => "missing",
            Self::New => "new",
            Self::Invalid => "invalid",
            Self::Incorrect => "incorrect",
        }
    }

    /// A sign that stands before the word, so that a column of verdicts can be looked over.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Same => "=",
            Self::Faster => "✓",
            Self::Slower | Self::Missing => "✗",
            Self::Inconclusive => "?",
            Self::TooNoisy => "~",
            Self::NotComparable => "≠",
            Self::New => "+",
            Self::Invalid | Self::Incorrect => "!",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.symbol(), self.name())
    }
}

/// The exit code of the worst verdict; 4 where nothing was compared.
pub fn exit_code(verdicts: impl IntoIterator<Item = Verdict>) -> u8 {
    let place = |v: Verdict| Verdict::BY_SEVERITY.iter().position(|(other, _)| *other == v);
    let worst = verdicts.into_iter().filter_map(place).min();
    worst.map_or(4, |at| Verdict::BY_SEVERITY[at].1)
}

/// What was taken as exchangeable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Medians of processes.
    Processes,
    /// Samples, since an arm has only one process.
    Samples,
}

impl Basis {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Samples => "samples",
        }
    }
}

/// How many times as good new is: new / base where higher is better, base / new where lower is, new / base where neither.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// The ratio of the geometric means.
    pub ratio: f64,
    /// Lower end of its interval; `None` with fewer than two values on a side.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// The smallest difference that would be found in four of five such measurements: 0.1 is 10 %.
    pub detectable: Option<f64>,
    /// What was taken as exchangeable.
    pub basis: Basis,
    /// Whether samples were scaled to the same speed of the machine.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub steadied: bool,
    /// How many there are in base.
    pub base_n: usize,
    /// How many there are in new.
    pub new_n: usize,
}

/// Logarithms of the ratio, of its reach to either side, and of the detectable difference.
struct Log {
    ratio: f64,
    spread: Option<Spread>,
}

/// How far a ratio may be off, in logarithms.
#[derive(Clone, Copy)]
struct Spread {
    /// Half the width of the interval.
    reach: f64,
    /// That of the interval which must lie in the band before anything is called the same.
    equal: f64,
    /// That of the interval which must leave out 1 before anything is called faster or slower.
    sure: f64,
    /// The same where the measurement is too noisy.
    very_sure: f64,
    /// The smallest difference that is likely found.
    detectable: f64,
}

impl Effect {
    /// The effect; `None` where a side has no samples or a value that is not positive.
    pub fn between(base: &Samples, new: &Samples) -> Option<Self> {
        Self::with_log(base, new).map(|(effect, _)| effect)
    }

    fn with_log(base: &Samples, new: &Samples) -> Option<(Self, Log)> {
        let several = base.processes().len() > 1 && new.processes().len() > 1;
        let basis = if several { Basis::Processes } else { Basis::Samples };
        let values = |s: &Samples| if several { s.process_medians() } else { s.values().to_vec() };
        let (base_values, new_values) = (values(base), values(new));
        let (b, n) = (Logs::of(&base_values)?, Logs::of(&new_values)?);
        let ratio = oriented(new.direction(), n.mean - b.mean);
        let spread = (b.n > 1.0 && n.n > 1.0).then(|| welch(b, n));
        let bounded = |log: f64| log.exp().min(f64::MAX);
        let effect = Self {
            ratio: bounded(ratio),
            low: spread.map(|s| bounded(ratio - s.reach)),
            high: spread.map(|s| bounded(ratio + s.reach)),
            detectable: spread.map(|s| bounded(s.detectable) - 1.0),
            basis,
            steadied: false,
            base_n: base_values.len(),
            new_n: new_values.len(),
        };
        Some((effect, Log { ratio, spread }))
    }
}

/// How far the difference of two means may be off.
fn welch(a: Logs, b: Logs) -> Spread {
    let (from_a, from_b) = (a.variance / a.n, b.variance / b.n);
    let error = (from_a + from_b).sqrt();
    let parts = from_a * from_a / (a.n - 1.0) + from_b * from_b / (b.n - 1.0);
    let all = a.n + b.n - 2.0;
    // The parts vanish where the values of each side agree.
    let freedom = if parts > 0.0 { (from_a + from_b) * (from_a + from_b) / parts } else { all };
    let half = |confidence: f64| student::quantile(f64::midpoint(1.0, confidence), freedom) * error;
    let reach = half(CONFIDENCE);
    let detectable = reach + student::quantile(POWER, freedom) * error;
    Spread { reach, equal: half(EQUIVALENCE), sure: half(ALARM), very_sure: half(NOISY_ALARM), detectable }
}

/// A logarithm turned so that more is better.
fn oriented(direction: Direction, log: f64) -> f64 {
    if direction == Direction::Lower { -log } else { log }
}

/// A verdict with what it rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The ratio and its interval, where there is one.
    pub effect: Option<Effect>,
    /// Why, where the numbers do not say it.
    pub why: Option<String>,
}

/// Judges `new` against `base`; `threshold` is the relative difference that matters, such as 0.03. See the module for the
/// rule. Swapping the arms swaps faster and slower, missing and new; units cancel.
pub fn judge(base: &Samples, new: &Samples, threshold: f64) -> Judgement {
    let without =
        |verdict, why: String| Judgement { verdict, effect: None, why: (!why.is_empty()).then_some(why) };
    if base.unit() != new.unit() {
        return without(Verdict::NotComparable, format!("`{}` against `{}`", base.unit(), new.unit()));
    }
    if base.direction() != new.direction() || base.direction() == Direction::Info {
        let (base, new) = (base.direction().name(), new.direction().name());
        return without(Verdict::NotComparable, format!("better is `{base}` against `{new}`"));
    }
    match (base.headline(), new.headline()) {
        (None, None) => without(Verdict::Inconclusive, "no samples".to_owned()),
        (Some(_), None) => without(Verdict::Missing, String::new()),
        (None, Some(_)) => without(Verdict::New, String::new()),
        (Some(old), Some(now)) => match Effect::with_log(base, new) {
            Some((effect, log)) => {
                let headlines = oriented(new.direction(), now.ln() - old.ln());
                decide(effect, &log, headlines, threshold)
            }
            None => not_positive(base, new),
        },
    }
}

fn decide(effect: Effect, log: &Log, headlines: f64, threshold: f64) -> Judgement {
    let told = |verdict, why| Judgement { verdict, effect: Some(effect), why };
    let Some(spread) = log.spread else {
        let why = format!("{} and {} samples: an interval needs 2", effect.base_n, effect.new_n);
        return told(Verdict::Inconclusive, Some(why));
    };
    let band = threshold.ln_1p();
    let noisy = spread.detectable.exp_m1() > NOISY * threshold;
    let sure = if noisy { spread.very_sure } else { spread.sure };
    if log.ratio.abs() + spread.equal < band && headlines.abs() < band {
        return told(Verdict::Same, None);
    }
    if log.ratio > sure && log.ratio >= band && headlines > -band {
        return told(Verdict::Faster, None);
    }
    if log.ratio < -sure && log.ratio <= -band && headlines < band {
        return told(Verdict::Slower, None);
    }
    told(if noisy { Verdict::TooNoisy } else { Verdict::Inconclusive }, None)
}

/// Values that have no ratio are the same if all of them are.
fn not_positive(base: &Samples, new: &Samples) -> Judgement {
    let first = base.values().first();
    let equal =
        base.n() > 1 && new.n() > 1 && base.values().iter().chain(new.values()).all(|v| Some(v) == first);
    let why = (!equal).then(|| "a ratio needs positive values".to_owned());
    let verdict = if equal { Verdict::Same } else { Verdict::Inconclusive };
    Judgement { verdict, effect: None, why }
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
        for (ratio, found) in [(0.2, Verdict::Faster), (-0.2, Verdict::Slower)] {
            for agrees in [ratio, 0.0, -0.1 * ratio] {
                assert_eq!(verdict(ratio, agrees), found, "{agrees}");
            }
            assert_eq!(verdict(ratio, -ratio), Verdict::Inconclusive);
        }
    }
}
