//! The conditions of a sample: how fast the machine was around it, and which system events happened during it.
//!
//! The canary is a fixed loop of multiply-adds on registers, run before and after each sample with the threads of the work, or with one
//! where they are not the engine's. A sample is tainted if the canary deviates, or if the system took away processor time, pages or
//! frequency. Tainted samples are marked but kept: which samples count is decided before a measurement, not after.

use std::fmt::Write as _;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::stats::sorted;
use redline_system::machine::Counters;
use redline_system::{Clock, number};

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
        let switched = condition.involuntary_switches.map(|n| n as f64);
        for (taint, happened) in [
            (Taint::Steal, condition.steal.is_some_and(|share| share > STEAL)),
            (Taint::Faults, condition.major_faults.is_some_and(|n| n > 0)),
            (Taint::Switches, switched.is_some_and(|n| n > 1.0 + SWITCHES_PER_S * seconds)),
            (Taint::Throttled, since(|a| a.throttled).is_some_and(|n| n > 0)),
            (Taint::Frequency, before.mhz.zip(after.mhz).is_some_and(|(b, a)| a < b * (1.0 - FREQUENCY))),
        ] {
            if happened {
                condition.tainted.insert(taint);
            }
        }
        condition
    }
}

/// Taints the conditions whose canary, before or after the sample, deviates from the median of all readings. `readings`
/// (nanoseconds) has one entry before the first sample and one after each.
pub(crate) fn judge_canaries<'a>(readings: &[f64], conditions: impl Iterator<Item = &'a mut Condition>) {
    let sorted = sorted(readings);
    let Some(&middle) = sorted.get(sorted.len() / 2) else { return };
    let off = |reading: f64| (reading / middle - 1.0).abs() > CANARY;
    for (pair, condition) in readings.windows(2).zip(conditions) {
        condition.canary_ns = Some(f64::midpoint(pair[0], pair[1]));
        if off(pair[0]) || off(pair[1]) {
            condition.tainted.insert(Taint::Canary);
        }
    }
}

/// A sample and its conditions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Watched<T> {
    pub(crate) value: T,
    pub(crate) condition: Condition,
}

/// Takes `n` samples, each between two readings. Returns the samples, and the readings: one before the first sample and one after
/// each. `canary_ns` returns the duration of the canary in a reading.
pub(crate) fn take<T, R, E>(
    n: usize,
    clock: &Clock,
    mut read: impl FnMut() -> R,
    canary_ns: impl Fn(&R) -> f64,
    mut sample: impl FnMut(usize) -> Result<T, E>,
) -> Result<(Vec<Watched<T>>, Vec<R>), E> {
    let mut readings = vec![read()];
    let mut samples = Vec::with_capacity(n);
    for i in 0..n {
        let before = Counters::now();
        let start_ns = clock.now_ns();
        let value = sample(i)?;
        let seconds = clock.elapsed_s(start_ns);
        let condition = Condition { start_ns, ..Condition::between(&before, &Counters::now(), seconds) };
        samples.push(Watched { value, condition });
        readings.push(read());
    }
    let canaries: Vec<f64> = readings.iter().map(canary_ns).collect();
    judge_canaries(&canaries, samples.iter_mut().map(|sample| &mut sample.condition));
    Ok((samples, readings))
}

/// A summary of tainted samples, causes and advice; empty if no sample is tainted.
pub(crate) fn summary<'a>(conditions: impl Iterator<Item = &'a Condition> + Clone) -> String {
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

    const BEFORE: Counters = Counters {
        minor_faults: Some(1),
        major_faults: Some(3),
        voluntary_switches: Some(100),
        involuntary_switches: Some(10),
        ticks: Some(1000),
        stolen_ticks: Some(5),
        throttled: Some(1),
        mhz: Some(3000.0),
    };
    const QUIET: Counters = Counters {
        minor_faults: Some(9),
        voluntary_switches: Some(130),
        involuntary_switches: Some(11),
        ticks: Some(2000),
        mhz: Some(2950.0),
        ..BEFORE
    };

    #[test]
    fn differences_taint_each_from_its_own_limit_on() {
        let names = |after: Counters, seconds| {
            Condition::between(&BEFORE, &after, seconds).tainted.names().collect::<Vec<_>>()
        };
        assert!(names(QUIET, 0.001).is_empty());
        for (after, expected) in [
            (Counters { stolen_ticks: Some(10), ..QUIET }, &[][..]),
            (Counters { stolen_ticks: Some(11), ..QUIET }, &["steal"]),
            (Counters { major_faults: Some(4), ..QUIET }, &["faults"]),
            (Counters { involuntary_switches: Some(111), ..QUIET }, &[]),
            (Counters { involuntary_switches: Some(112), ..QUIET }, &["switches"]),
            (Counters { throttled: Some(2), mhz: Some(2909.0), ..QUIET }, &["throttled", "frequency"]),
            (Counters { mhz: Some(2911.0), ..QUIET }, &[]),
            (Counters { mhz: Some(9000.0), ..QUIET }, &[]),
            // Nothing is stolen of no time.
            (BEFORE, &[]),
        ] {
            assert_eq!(names(after, 1.0), expected, "{after:?}");
        }
        assert_eq!(Condition::between(&BEFORE, &BEFORE, 0.001).steal, None);
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
        let text = summary(conditions.iter());
        assert!(text.starts_with("tainted: 2 of 4 samples") && text.contains("canary"), "{text}");
        assert!(summary([Condition::default()].iter()).is_empty());
    }

    #[test]
    fn a_canary_taints_when_it_is_2_percent_off() {
        for (reading, off) in [(101.9, false), (102.1, true), (98.1, false), (97.9, true)] {
            let mut conditions = [Condition::default(); 4];
            judge_canaries(&[100.0, 100.0, 100.0, 100.0, reading], conditions.iter_mut());
            let tainted = conditions.map(|c| c.tainted.has(Taint::Canary));
            assert_eq!(tainted, [false, false, false, off], "{reading}");
        }
    }

    #[test]
    fn the_reading_after_a_sample_is_the_one_before_the_next() {
        let mut reading = 0;
        let read = || {
            reading += 1;
            reading
        };
        let canary_ns = |n: &i32| 100.0 * f64::from(*n);
        let (samples, readings) = take(3, &Clock::scripted(|| 7), read, canary_ns, Ok::<_, ()>).unwrap();
        assert_eq!(readings, [1, 2, 3, 4]);
        assert_eq!(samples.iter().map(|s| s.value).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(samples[0].condition.canary_ns, Some(150.0));
        assert!(samples.iter().all(|s| s.condition.start_ns == 7));
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

    #[test]
    fn a_condition_holds_what_was_counted_meanwhile() {
        let mut tainted = Taints::default();
        tainted.insert(Taint::Faults);
        let after = Counters {
            major_faults: Some(5),
            involuntary_switches: Some(17),
            ticks: Some(3000),
            stolen_ticks: Some(10),
            ..QUIET
        };
        let expected = Condition {
            start_ns: 0,
            canary_ns: None,
            steal: Some(0.0025),
            mhz: Some(2950.0),
            major_faults: Some(2),
            voluntary_switches: Some(30),
            involuntary_switches: Some(7),
            tainted,
        };
        assert_eq!(Condition::between(&BEFORE, &after, 1.0), expected);
    }

    #[test]
    fn counters_of_threads_that_ended_do_not_count_backwards() {
        let after = Counters {
            major_faults: Some(1),
            voluntary_switches: Some(40),
            involuntary_switches: Some(0),
            ..QUIET
        };
        let condition = Condition::between(&BEFORE, &after, 0.001);
        assert_eq!((condition.major_faults, condition.voluntary_switches), (Some(0), Some(0)));
        assert_eq!(condition.involuntary_switches, Some(0));
        assert!(condition.tainted.is_empty());
    }

    #[test]
    fn a_summary_counts_each_cause_apart() {
        let with = |taints: &[Taint]| {
            let mut condition = Condition::default();
            for &taint in taints {
                condition.tainted.insert(taint);
            }
            condition
        };
        let all = [with(&[]), with(&[Taint::Steal]), with(&[Taint::Faults, Taint::Steal])];
        let text = summary(all.iter());
        let lines: Vec<&str> = text.lines().collect();
        let begins = [
            "tainted: 2 of 3 samples, marked and kept",
            "  steal     2 samples: the hypervisor",
            "  faults    1 sample: pages came",
        ];
        assert_eq!(lines.len(), begins.len(), "{text}");
        assert!(lines.iter().zip(begins).all(|(line, begin)| line.starts_with(begin)), "{text}");
    }
}
