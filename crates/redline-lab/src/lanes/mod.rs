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

/// All lanes.
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

/// A benchmark: its question, its checks and metrics, its flags, and the function that runs it.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// The name on the command line.
    pub name: &'static str,
    /// The question it answers.
    pub asks: &'static str,
    /// What is verified before timing.
    pub checks: &'static str,
    /// The reference within the run: another arm, or the machine's limits.
    pub against: &'static str,
    /// The metrics; a name ending in `*` stands for all metrics with that prefix.
    pub metrics: &'static [MetricSpec],
    /// The relative difference of its metrics that matters, such as 0.03.
    pub threshold: f64,
    /// The lane's own flags, besides those for model and machine.
    pub flags: &'static [Flag],
    /// Flag values for a very short run, used in tests.
    pub smoke: &'static [(&'static str, &'static str)],
    /// Flag values for a run of about a minute.
    pub standard: &'static [(&'static str, &'static str)],
    /// The default thread counts, given the machine's default number of threads.
    pub threads: fn(usize) -> Vec<usize>,
    /// The columns of comma-separated values with one line per row; `None` for one line per row and metric.
    pub columns: Option<&'static [Column]>,
    /// The columns of the printed table with one line per row; `None` for one line per row and metric.
    pub shown: Option<&'static [Column]>,
    /// A note about the values in the table.
    pub note: Option<&'static str>,
    /// CSV layouts of the seeds' programs, by the names of `--csv-style`.
    pub styles: &'static [(&'static str, &'static [Column])],
    /// The rule for comparing with comma-separated values of an earlier run; `None` if they cannot be a baseline.
    pub baseline: Option<Rule>,
    /// The function that runs the lane.
    pub run: Run,
}

/// What a lane measures.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// The machine alone.
    Machine(OfMachine),
    /// A model.
    Model(OfModel),
    /// A model that fills masks.
    Masked(OfModel),
    /// A tokenizer.
    Text(OfText),
}

/// Measures the machine.
pub type OfMachine = fn(&Bench<'_>, &Values) -> Result<(), LaneError>;
/// Measures a model.
pub type OfModel = fn(&Bench<'_>, &Model<'_>, &Values) -> Result<(), LaneError>;

/// Measures a tokenizer.
pub type OfText = fn(&Bench<'_>, &Text<'_>, &Values) -> Result<(), LaneError>;

/// The specification of a metric.
#[derive(Clone, Copy, Debug)]
pub struct MetricSpec {
    /// Its name.
    pub name: &'static str,
    /// Its unit; empty if there are several.
    pub unit: &'static str,
    /// The direction in which it improves.
    pub direction: Direction,
    /// Whether the value is the same on every machine: a count that can be a gate anywhere.
    pub portable: bool,
}

/// A metric that is better the higher it is.
pub(crate) const fn higher(name: &'static str, unit: &'static str) -> MetricSpec {
    MetricSpec { name, unit, direction: Direction::Higher, portable: false }
}

/// A metric that is better the lower it is.
pub(crate) const fn lower(name: &'static str, unit: &'static str) -> MetricSpec {
    MetricSpec { name, unit, direction: Direction::Lower, portable: false }
}

/// A metric that is reported but not judged.
pub(crate) const fn info(name: &'static str, unit: &'static str) -> MetricSpec {
    MetricSpec { name, unit, direction: Direction::Info, portable: false }
}

/// A count that follows from the workload, not from the machine's speed.
pub(crate) const fn count(name: &'static str, unit: &'static str) -> MetricSpec {
    MetricSpec { name, unit, direction: Direction::Info, portable: true }
}

impl MetricSpec {
    /// Whether this specification covers the metric of this name.
    pub fn names(&self, metric: &str) -> bool {
        self.name.strip_suffix('*').map_or(self.name == metric, |begin| metric.starts_with(begin))
    }
}

/// The size of a lane's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Very short: only shows that the lane runs.
    Smoke,
    /// About a minute.
    Standard,
    /// Everything.
    Full,
}

impl Profile {
    /// All profiles by name.
    pub const ALL: &[(&str, Self)] =
        &[("smoke", Self::Smoke), ("standard", Self::Standard), ("full", Self::Full)];

    /// The name of the profile.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, profile)| *profile == self).map_or("", |(name, _)| name)
    }
}

/// Only the machine's default number of threads.
pub(crate) fn all_threads(default: usize) -> Vec<usize> {
    vec![default]
}

impl Lane {
    /// The flag values of a profile; other flags take their defaults.
    pub fn values(&self, profile: Profile) -> &'static [(&'static str, &'static str)] {
        match profile {
            Profile::Smoke => self.smoke,
            Profile::Standard => self.standard,
            Profile::Full => &[],
        }
    }

    /// The specification of a metric.
    pub fn metric(&self, metric: &str) -> Option<&'static MetricSpec> {
        self.metrics.iter().find(|spec| spec.names(metric))
    }

    /// The lane with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|lane| lane.name == name)
    }

    /// The help text: checks, metrics and reference.
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

    /// Formats a result of this lane as a table.
    pub fn table(&self, result: &LaneResult) -> String {
        let table = self.shown.map_or_else(|| result.table(), |columns| result.table_of(columns));
        let note = self.note.map(|note| format!("{note}\n")).unwrap_or_default();
        format!("{table}{note}{}", result.remarks())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use redline_engine::{ModelInfo, OperationCounts};
    use redline_kernels::op::kv::KvFormat;
    use redline_kernels::{Format, Tier};

    use super::*;

    /// A model with round numbers.
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
            operations: OperationCounts { per_token: 100.0, per_key: 3.0, per_output: 50.0 },
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
