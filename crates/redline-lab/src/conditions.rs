//! The conditions of a sample: how fast the machine was around it, and which system events happened during it.
//!
//! The canary is a fixed loop of multiply-adds on registers, run before and after each sample with the threads of the work. A
//! sample is tainted if the canary deviates, or if the system took away processor time, pages or frequency. Tainted samples are
//! marked but kept: which samples count is decided before a measurement, not after.

use std::fmt::Write as _;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Clock;
use crate::machine::Counters;
use crate::number;

/// Allowed deviation of the canary from the median of its case.
const CANARY: f64 = 0.02;
/// Allowed share of processor time taken by the hypervisor.
const STEAL: f64 = 0.005;
/// Allowed drop of the clock frequency.
const FREQUENCY: f64 = 0.03;
/// Allowed involuntary context switches per second, plus one per sample.
const SWITCHES_PER_S: f64 = 100.0;

/// A cause that taints a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Taint {
    /// The canary was slower or faster than usual.
    Canary,
    /// The hypervisor took processor time.
    Steal,
    /// Pages were read from a disk.
    Faults,
    /// Threads were descheduled for others.
    Switches,
    /// The control group was throttled.
    Throttled,
    /// The clock frequency fell.
    Frequency,
}

impl Taint {
    /// All causes.
    pub const ALL: &[Self] =
        &[Self::Canary, Self::Steal, Self::Faults, Self::Switches, Self::Throttled, Self::Frequency];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Canary => "canary",
            Self::Steal => "steal",
            Self::Faults => "faults",
            Self::Switches => "switches",
            Self::Throttled => "throttled",
            Self::Frequency => "frequency",
        }
    }

    /// What the taint means and how to avoid it.
    fn advice(self) -> &'static str {
        match self {
            Self::Canary => "the machine changed its speed: wait, or compare arms of one run (`--versus`)",
            Self::Steal => "the hypervisor gave time to others: another host or a dedicated one",
            Self::Faults => "pages came from a disk: run once before, or free memory",
            Self::Switches => "other processes ran: stop them, or use fewer `--threads`",
            Self::Throttled => "the control group's quota was used up: raise it, or use fewer `--threads`",
            Self::Frequency => "the clock frequency fell: set the governor `performance`, mind the cooling",
        }
    }
}

/// A set of taints; in files, an array of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taints(u8);

impl Taints {
    /// Adds one.
    pub fn insert(&mut self, taint: Taint) {
        self.0 |= 1 << taint as u8;
    }

    /// Whether the set contains a taint.
    pub fn has(self, taint: Taint) -> bool {
        self.0 & (1 << taint as u8) != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// The names of the taints.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Taint::ALL.iter().filter(move |&&taint| self.has(taint)).map(|taint| taint.name())
    }
}

impl Serialize for Taints {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.names())
    }
}

impl<'de> Deserialize<'de> for Taints {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut taints = Self::default();
        // An unknown name from a newer version is ignored.
        for word in Vec::<String>::deserialize(from)? {
            if let Some(&taint) = Taint::ALL.iter().find(|taint| taint.name() == word) {
                taints.insert(taint);
            }
        }
        Ok(taints)
    }
}

/// The conditions of one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// Start of the sample, in nanoseconds since the process began to measure.
    #[serde(default)]
    pub start_ns: u64,
    /// Nanoseconds per million operations of the canary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary_ns: Option<f64>,
    /// The share of all processor time taken by the hypervisor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
    /// The highest clock frequency of a processor, MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mhz: Option<f64>,
    /// Pages that were read from a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major_faults: Option<u64>,
    /// Number of voluntary context switches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voluntary_switches: Option<u64>,
    /// Number of involuntary context switches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub involuntary_switches: Option<u64>,
    /// The taints of the sample.
    #[serde(default, skip_serializing_if = "Taints::is_empty")]
    pub tainted: Taints,
}

impl Condition {
    /// Computes the conditions between two readings that are `seconds` apart. [`judge_canaries`] judges the canary
    /// later.
    pub(crate) fn between(before: &Counters, after: &Counters, seconds: f64) -> Self {
        let since = |of: fn(&Counters) -> Option<u64>| Some(of(after)?.saturating_sub(of(before)?));
        let stolen = since(|a| a.stolen_ticks).zip(since(|a| a.ticks).filter(|&ticks| ticks > 0));
        let mut condition = Self {
            steal: stolen.map(|(stolen, all)| stolen as f64 / all as f64),
            mhz: after.mhz,
            major_faults: since(|a| a.major_faults),
            voluntary_switches: since(|a| a.voluntary_switches),
            involuntary_switches: since(|a| a.involuntary_switches),
            ..Self::default()
        };
        let fell = before.mhz.zip(after.mhz).is_some_and(|(b, a)| a < b * (1.0 - FREQUENCY));
        let aside = condition.involuntary_switches.is_some_and(|n| n as f64 > 1.0 + SWITCHES_PER_S * seconds);
        for (taint, there) in [
            (Taint::Steal, condition.steal.is_some_and(|share| share > STEAL)),
            (Taint::Faults, condition.major_faults.is_some_and(|n| n > 0)),
            (Taint::Switches, aside),
            (Taint::Throttled, since(|a| a.throttled).is_some_and(|n| n > 0)),
            (Taint::Frequency, fell),
        ] {
            if there {
                condition.tainted.insert(taint);
            }
        }
        condition
    }
}

/// Taints the conditions whose canary, before or after the sample, deviates from the median of all readings. `readings`
/// (nanoseconds) has one entry before the first sample and one after each.
pub(crate) fn judge_canaries<'a>(readings: &[f64], conditions: impl Iterator<Item = &'a mut Condition>) {
    let mut sorted = readings.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let Some(&middle) = sorted.get(sorted.len() / 2) else { return };
    let off = |reading: f64| (reading / middle - 1.0).abs() > CANARY;
    for (pair, condition) in readings.windows(2).zip(conditions) {
        condition.canary_ns = Some(f64::midpoint(pair[0], pair[1]));
        if off(pair[0]) || off(pair[1]) {
            condition.tainted.insert(Taint::Canary);
        }
    }
}

/// A sample with the readings before and after it.
pub(crate) struct Taken<T, R> {
    pub(crate) value: T,
    pub(crate) before: R,
    pub(crate) after: R,
    pub(crate) condition: Condition,
}

/// Takes `n` samples, each between two readings. `canary_ns` returns the duration of the canary in a reading.
pub(crate) fn take<T, R: Copy, E>(
    n: usize,
    clock: &Clock,
    mut read: impl FnMut() -> R,
    canary_ns: impl Fn(R) -> f64,
    mut sample: impl FnMut(usize) -> Result<T, E>,
) -> Result<Vec<Taken<T, R>>, E> {
    let mut before = read();
    let mut canaries = vec![canary_ns(before)];
    let mut taken = Vec::with_capacity(n);
    for i in 0..n {
        let counted = Counters::now();
        let start_ns = clock.now_ns();
        let value = sample(i)?;
        let seconds = clock.elapsed_s(start_ns);
        let condition = Condition { start_ns, ..Condition::between(&counted, &Counters::now(), seconds) };
        let after = read();
        canaries.push(canary_ns(after));
        taken.push(Taken { value, before, after, condition });
        before = after;
    }
    judge_canaries(&canaries, taken.iter_mut().map(|t| &mut t.condition));
    Ok(taken)
}

/// A summary of tainted samples, causes and advice; empty if no sample is tainted.
pub(crate) fn told<'a>(conditions: impl Iterator<Item = &'a Condition> + Clone) -> String {
    let all = conditions.clone().count();
    let tainted = conditions.clone().filter(|c| !c.tainted.is_empty()).count();
    if tainted == 0 {
        return String::new();
    }
    let mut text = format!("tainted: {tainted} of {all} samples, marked and kept\n");
    for &taint in Taint::ALL {
        let n = conditions.clone().filter(|c| c.tainted.has(taint)).count();
        if n > 0 {
            let _ =
                writeln!(text, "  {:<9} {}: {}", taint.name(), number::count(n, "sample"), taint.advice());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_taint() {
        let before = Counters {
            major_faults: Some(3),
            involuntary_switches: Some(10),
            ticks: Some(1000),
            stolen_ticks: Some(5),
            throttled: Some(1),
            mhz: Some(3000.0),
            ..Counters::default()
        };
        let names = |after: &Counters, seconds| {
            Condition::between(&before, after, seconds).tainted.names().collect::<Vec<_>>()
        };
        let quiet =
            Counters { ticks: Some(2000), mhz: Some(2950.0), involuntary_switches: Some(11), ..before };
        assert!(names(&quiet, 0.001).is_empty());
        assert_eq!(names(&Counters { stolen_ticks: Some(11), ..quiet }, 1.0), ["steal"]);
        assert_eq!(names(&Counters { major_faults: Some(4), ..quiet }, 1.0), ["faults"]);
        assert_eq!(names(&Counters { involuntary_switches: Some(112), ..quiet }, 1.0), ["switches"]);
        assert!(names(&Counters { involuntary_switches: Some(111), ..quiet }, 1.0).is_empty());
        assert_eq!(
            names(&Counters { throttled: Some(2), mhz: Some(2900.0), ..quiet }, 1.0),
            ["throttled", "frequency"]
        );
        let unknown = Condition::between(&Counters::default(), &Counters::default(), 1.0);
        assert_eq!(unknown, Condition::default());
    }

    #[test]
    fn a_canary_off_the_middle_taints_both_neighbours() {
        let mut conditions = [Condition::default(); 4];
        judge_canaries(&[100.0, 101.0, 110.0, 100.0, 99.0], conditions.iter_mut());
        let tainted: Vec<bool> = conditions.iter().map(|c| c.tainted.has(Taint::Canary)).collect();
        assert_eq!(tainted, [false, true, true, false]);
        assert_eq!(conditions[1].canary_ns, Some(105.5));
        let text = told(conditions.iter());
        assert!(text.starts_with("tainted: 2 of 4 samples") && text.contains("canary"), "{text}");
        assert!(told([Condition::default()].iter()).is_empty());
    }

    #[test]
    fn each_limit_taints_from_its_own_figure_on() {
        // A canary reading 2 % off, a steal of 0.5 %, a clock 3 % slower.
        for (reading, off) in [(101.9, false), (102.1, true), (98.1, false), (97.9, true)] {
            let mut conditions = [Condition::default(); 4];
            judge_canaries(&[100.0, 100.0, 100.0, 100.0, reading], conditions.iter_mut());
            assert_eq!(
                conditions.map(|c| c.tainted.has(Taint::Canary)),
                [false, false, false, off],
                "{reading}"
            );
        }
        let before =
            Counters { ticks: Some(0), stolen_ticks: Some(0), mhz: Some(3000.0), ..Counters::default() };
        let of = |after: Counters| Condition::between(&before, &after, 1.0).tainted;
        let stolen = |stolen| of(Counters { ticks: Some(1000), stolen_ticks: Some(stolen), ..before });
        assert_eq!((stolen(5).has(Taint::Steal), stolen(6).has(Taint::Steal)), (false, true));
        let slower = |mhz| of(Counters { mhz: Some(mhz), ..before });
        assert_eq!(
            (slower(2911.0).has(Taint::Frequency), slower(2909.0).has(Taint::Frequency)),
            (false, true)
        );
        assert!(slower(9000.0).is_empty(), "faster is no harm");
    }

    #[test]
    fn the_reading_after_a_sample_is_the_one_before_the_next() {
        let mut reading = 0;
        let read = || {
            reading += 1;
            reading
        };
        let taken = take(3, &Clock::scripted(|| 7), read, |n| 100.0 * f64::from(n), Ok::<_, ()>).unwrap();
        let pairs: Vec<(i32, i32)> = taken.iter().map(|t| (t.before, t.after)).collect();
        assert_eq!(pairs, [(1, 2), (2, 3), (3, 4)]);
        assert_eq!(taken.iter().map(|t| t.value).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(taken[0].condition.canary_ns, Some(150.0));
        assert!(taken.iter().all(|t| t.condition.start_ns == 7));
    }

    #[test]
    fn taints_are_words_in_files() {
        let mut taints = Taints::default();
        taints.insert(Taint::Steal);
        taints.insert(Taint::Canary);
        let text = serde_json::to_string(&taints).unwrap();
        assert_eq!(text, r#"["canary","steal"]"#);
        assert_eq!(serde_json::from_str::<Taints>(&text).unwrap(), taints);
        assert_eq!(serde_json::from_str::<Taints>(r#"["moon"]"#).unwrap(), Taints::default());
    }
}
