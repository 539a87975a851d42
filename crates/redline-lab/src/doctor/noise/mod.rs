//! How steadily the machine runs: a probe of some seconds, the kernel's counters during it, and advice.
//!
//! The probe repeats three kinds of work that always take the same time on an idle machine: multiply-adds on registers, a read of
//! memory, and a short sleep. A report is a pure function of the readings. The score of a kind is between 0 (every reading like
//! the best one) and 100; see [`jitter`]. The total score is the worst of computing, memory, and half the score of sleeping,
//! since a benchmark does not sleep. The level is that of the score or of the worst finding.

mod findings;
pub mod jitter;
mod probe;
mod quick;

use std::fmt;

use serde::Serialize;

use crate::document;
use crate::machine::{Activity, Frequencies, Machine};
use crate::number;
use crate::table::Table;
use jitter::Jitter;

pub use probe::{ProbeError, probe};
pub use quick::{quick, warnings};

/// Default duration of a probe in seconds.
pub const SECONDS: f64 = 10.0;
/// The longest probe.
pub const MAX_SECONDS: f64 = 600.0;

/// How suitable a machine is for measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Small differences are measurable.
    Quiet,
    /// Differences of some percent are measurable.
    Usable,
    /// Only large differences are measurable; compare two versions within one run.
    Noisy,
    /// Measurements are meaningless.
    Unfit,
}

impl Level {
    /// The lowest score of each level except the first.
    const FROM: [(f64, Self); 3] = [(60.0, Self::Unfit), (30.0, Self::Noisy), (10.0, Self::Usable)];

    /// The level of a score.
    pub fn of(score: f64) -> Self {
        Self::FROM.iter().find(|(from, _)| score >= *from).map_or(Self::Quiet, |(_, level)| *level)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The readings of a probe.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    /// The machine.
    pub machine: Machine,
    /// Duration of the probe in seconds.
    pub seconds: f64,
    /// Number of threads.
    pub threads: usize,
    /// Seconds of each piece of arithmetic.
    pub compute: Vec<f64>,
    /// Seconds of each read of memory.
    pub memory: Vec<f64>,
    /// Seconds that each sleep took.
    pub sleep: Vec<f64>,
    /// The clock frequencies during the probe.
    pub frequencies: Vec<Frequencies>,
    /// The smallest step of the clock, in nanoseconds.
    pub timer_ns: Option<u64>,
    /// The counters before.
    pub before: Activity,
    /// The counters after.
    pub after: Activity,
}

/// A fact about noise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was examined.
    pub name: String,
    /// The evidence; `unknown` if it could not be read.
    pub value: String,
    /// The severity.
    pub level: Level,
    /// What it means, if it means anything.
    pub fact: Option<String>,
    /// How to fix it.
    pub fix: Option<String>,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Noise {
    /// The score, from 0 to 100.
    pub score: f64,
    /// The level of the score, or of the worst finding.
    pub level: Level,
    /// Duration of the probe in seconds.
    pub seconds: f64,
    /// Number of threads.
    pub threads: usize,
    /// The jitter of each kind of work.
    pub jitter: Vec<Jitter>,
    /// All findings.
    pub findings: Vec<Finding>,
}

impl Noise {
    /// Evaluates the readings.
    pub fn of(readings: &Readings) -> Self {
        let kinds =
            [("compute", &readings.compute), ("memory", &readings.memory), ("sleep", &readings.sleep)];
        let jitter = kinds.into_iter().filter_map(|(kind, values)| Jitter::of(kind, values));
        let jitter: Vec<Jitter> = jitter.collect();
        let weighed = |j: &Jitter| if j.kind == "sleep" { j.score / 2.0 } else { j.score };
        let score = jitter.iter().map(weighed).fold(0.0, f64::max);
        let findings = findings::all(readings, &jitter);
        let worst = findings.iter().map(|f| f.level).max().unwrap_or(Level::Quiet);
        let level = Level::of(score).max(worst);
        Self { score, level, seconds: readings.seconds, threads: readings.threads, jitter, findings }
    }

    /// The report as text: the scores, then the findings, each followed by its fix.
    pub fn text(&self) -> String {
        let (score, level, threads) = (self.score, self.level, number::count(self.threads, "thread"));
        let mut text = format!("noise {score:.0} of 100: {level} ({:.1} s, {threads})\n\n", self.seconds);
        let mut table = Table::new("kind|>score|>n|>best|>median|>over 2 %|>over 10 %|>spread|>drift");
        for j in &self.jitter {
            let time = |seconds: f64| format!("{:.3} ms", seconds * 1e3);
            let line = [j.kind.clone(), format!("{:.0}", j.score), j.n.to_string()];
            let shares = [j.slower_2, j.slower_10, j.spread, j.drift].map(number::percent);
            table.push([&line[..], &[time(j.best_s), time(j.median_s)], &shares].concat());
        }
        text.push_str(&table.render());
        text.push('\n');
        let width = self.findings.iter().map(|f| f.name.chars().count()).max().unwrap_or(0);
        for finding in &self.findings {
            text.push_str(&format!("  {:<width$}  {}\n", finding.name, finding.value));
            if let Some(fact) = &finding.fact {
                text.push_str(&format!("  {:<width$}  > {}: {fact}\n", "", finding.level));
            }
            if let Some(fix) = &finding.fix {
                text.push_str(&format!("  {:<width$}  > hint: {fix}\n", ""));
            }
        }
        text
    }

    /// The report as one JSON document, indented, with a line break at the end.
    pub fn json(&self) -> serde_json::Result<String> {
        document::json("redline.noise/1", self)
    }
}
