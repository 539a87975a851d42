//! The benchmark lanes: one file each, one line each in [`ALL`].

use crate::baseline::Rule;
use crate::bench::{Bench, Flag, LaneError, Model, Text, Values};
use crate::result::Column;
use crate::{Direction, LaneResult};

pub mod contention;
pub mod diffusion;
pub mod forward;
pub mod gemm;
pub mod generate;
pub mod limits;
pub mod memory;
pub mod mixed;
pub mod plan_cache;
pub mod score;
pub mod self_test;
pub mod tokenizer;

/// Every lane there is.
pub const ALL: &[Lane] = &[
    generate::LANE,
    score::LANE,
    mixed::LANE,
    contention::LANE,
    limits::LANE,
    gemm::LANE,
    forward::LANE,
    diffusion::LANE,
    memory::LANE,
    plan_cache::LANE,
    tokenizer::LANE,
    self_test::LANE,
];

/// A benchmark: one question, what it checks and measures, its flags, and how to answer it.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// The name on the command line.
    pub name: &'static str,
    /// The question it answers.
    pub asks: &'static str,
    /// What is found correct before anything is timed.
    pub checks: &'static str,
    /// What it is held against within the run: an arm of its own, or the machine's limits.
    pub against: &'static str,
    /// What it measures; a metric ending in `*` stands for all that begin so.
    pub metrics: &'static [Told],
    /// The relative difference of its metrics that matters, such as 0.03.
    pub threshold: f64,
    /// Its own flags, besides those that choose model and machine.
    pub flags: &'static [Flag],
    /// Values of its flags with which it runs in a moment, for tests.
    pub smoke: &'static [(&'static str, &'static str)],
    /// Values with which it runs in about a minute.
    pub standard: &'static [(&'static str, &'static str)],
    /// The numbers of threads to run with unless told otherwise, from how many are the machine's default.
    pub threads: fn(usize) -> Vec<usize>,
    /// The columns of its comma-separated values, a line per row; `None`: a line per row and metric.
    pub columns: Option<&'static [Column]>,
    /// The columns of its table for people, a line per row; `None`: a line per row and metric.
    pub shown: Option<&'static [Column]>,
    /// What must be known of the figures in the table.
    pub note: Option<&'static str>,
    /// The seeds' layouts of its comma-separated values, by the names of `--csv-style`.
    pub styles: &'static [(&'static str, &'static [Column])],
    /// How comma-separated values of an earlier run are compared; `None`: they are no baseline.
    pub baseline: Option<Rule>,
    /// Answers the question.
    pub run: Run,
}

/// How a lane answers its question.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// By measuring the machine alone.
    Machine(OfMachine),
    /// By measuring a model.
    Model(OfModel),
    /// By measuring a model that fills masks.
    Masked(OfModel),
    /// By measuring how text becomes ids.
    Text(OfText),
}

/// Measures the machine.
pub type OfMachine = fn(&Bench<'_>, &Values) -> Result<(), LaneError>;
/// Measures a model.
pub type OfModel = fn(&Bench<'_>, &Model<'_>, &Values) -> Result<(), LaneError>;

/// Measures how text becomes ids.
pub type OfText = fn(&Bench<'_>, &Text<'_>, &Values) -> Result<(), LaneError>;

/// A metric of a lane.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Its name.
    pub name: &'static str,
    /// Its unit; empty: several.
    pub unit: &'static str,
    /// Which way it gets better.
    pub direction: Direction,
    /// Whether it is the same on every machine: a count that can gate anywhere.
    pub portable: bool,
}

/// A metric that is better the higher it is.
pub(crate) const fn higher(name: &'static str, unit: &'static str) -> Told {
    Told { name, unit, direction: Direction::Higher, portable: false }
}

/// A metric that is better the lower it is.
pub(crate) const fn lower(name: &'static str, unit: &'static str) -> Told {
    Told { name, unit, direction: Direction::Lower, portable: false }
}

/// A metric that is told, never judged.
pub(crate) const fn info(name: &'static str, unit: &'static str) -> Told {
    Told { name, unit, direction: Direction::Info, portable: false }
}

/// A count that follows from what is run, not from how fast the machine is.
pub(crate) const fn count(name: &'static str, unit: &'static str) -> Told {
    Told { name, unit, direction: Direction::Info, portable: true }
}

impl Told {
    /// Whether a metric of this name is meant.
    pub fn names(&self, metric: &str) -> bool {
        self.name.strip_suffix('*').map_or(self.name == metric, |begin| metric.starts_with(begin))
    }
}

/// How much of a lane is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// A moment: whether it runs.
    Smoke,
    /// About a minute.
    Standard,
    /// Everything.
    Full,
}

impl Profile {
    /// Every one, by its word.
    pub const ALL: &[(&str, Self)] =
        &[("smoke", Self::Smoke), ("standard", Self::Standard), ("full", Self::Full)];

    /// The word.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, profile)| *profile == self).map_or("", |(name, _)| name)
    }
}

/// Only as many threads as the machine has by default.
pub(crate) fn all_threads(default: usize) -> Vec<usize> {
    vec![default]
}

impl Lane {
    /// The values of its flags in a profile; what they leave out is as by default.
    pub fn values(&self, profile: Profile) -> &'static [(&'static str, &'static str)] {
        match profile {
            Profile::Smoke => self.smoke,
            Profile::Standard => self.standard,
            Profile::Full => &[],
        }
    }

    /// What is known of a metric.
    pub fn told(&self, metric: &str) -> Option<&'static Told> {
        self.metrics.iter().find(|told| told.names(metric))
    }

    /// The lane of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|lane| lane.name == name)
    }

    /// What it checks, measures and is held against, for help.
    pub fn about(&self) -> String {
        let mut text =
            format!("Checked first: {}.\nHeld against: {}.\nMetrics:\n", self.checks, self.against);
        let width = self.metrics.iter().map(|told| told.name.len()).max().unwrap_or(0);
        for told in self.metrics {
            let better = match told.direction {
                Direction::Higher => "higher is better",
                Direction::Lower => "lower is better",
                Direction::Info if told.portable => "told; the same on every machine",
                Direction::Info => "told",
            };
            text.push_str(&format!("  {:<width$}  {:<10}  {better}\n", told.name, told.unit));
        }
        text
    }

    /// A result of this lane for people.
    pub fn table(&self, result: &LaneResult) -> String {
        let table = self.shown.map_or_else(|| result.table(), |columns| result.table_of(columns));
        let note = self.note.map(|note| format!("{note}\n")).unwrap_or_default();
        format!("{table}{note}{}", result.remarks())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use redline_engine::ModelInfo;
    use redline_kernels::op::kv::KvFormat;
    use redline_kernels::{Format, Tier};

    use super::*;

    /// A model of round numbers.
    pub(crate) fn info() -> ModelInfo {
        ModelInfo {
            name: "a".into(),
            architecture: "b".into(),
            objective: redline_engine::Objective::Next,
            mask_id: None,
            parameters: 600,
            weight_bytes: 2000,
            bytes_per_token: 1000,
            head_bytes: 100,
            kv_bytes_per_token: 8,
            activation_bytes: 400,
            activation_bytes_per_row: 4,
            context: 100,
            vocab: 10,
            layers: 1,
            hidden: 4,
            threads: 1,
            tp: 1,
            max_chunk: 512,
            tier: Tier::Scalar,
            format: Format::F32,
            kv_format: KvFormat::F32,
            kernel_path: "k".into(),
            kv_budget_bytes: None,
            prefix_cache: false,
            operations: (100.0, 3.0, 50.0),
        }
    }

    #[test]
    fn lanes_say_what_their_flags_are() {
        for lane in ALL {
            assert!(!lane.checks.is_empty() && !lane.against.is_empty() && !lane.metrics.is_empty());
            assert!(lane.threshold > 0.0 && lane.threshold < 1.0, "{}", lane.name);
            for (name, _) in lane.smoke.iter().chain(lane.standard) {
                assert!(lane.flags.iter().any(|flag| flag.name == *name), "{}: {name}", lane.name);
            }
            let switches = lane.flags.iter().filter(|flag| flag.value.is_empty());
            assert!(switches.into_iter().all(|flag| flag.default == "false"), "{}", lane.name);
            let names = lane.columns.unwrap_or_default().iter().map(|column| column.name);
            let distinct: std::collections::BTreeSet<_> = names.clone().collect();
            assert_eq!(distinct.len(), names.count(), "{}", lane.name);
        }
    }
}
