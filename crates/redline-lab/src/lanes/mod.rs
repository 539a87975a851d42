//! The benchmark lanes: one file each, one line each in [`ALL`].

use crate::baseline::Rule;
use crate::bench::{Bench, BenchModel, Flag, MetricSpec, Result, Servers, Text, Values};
use crate::limits::{READING_NS, SHORT_READING_NS};
use crate::warning::Warning;
use crate::{Direction, LaneResult, Row};

mod attn_decode;
mod attn_prefill;
mod diffusion;
mod forward;
mod gemm;
mod generate;
mod limits;
mod load;
mod memory;
mod plan_cache;
mod sched_zipf;
mod score;
mod tokenizer;

/// What most lanes use.
mod prelude {
    pub(super) use super::{Lane, LaneFunction};
    pub(super) use crate::bench::{
        Bench, BenchModel, LaneError, RUNS, Result, Runs, Setup, Trials, Values, WARMUPS, flags, require,
        verify, within_batch, within_context,
    };
    pub(super) use crate::roofline::{Held, Work};
    pub(super) use crate::{Direction, Row, Samples};
    pub(super) use redline_system::digest;
}

/// All lanes.
pub const ALL: &[Lane] = &[
    generate::LANE,
    score::LANE,
    limits::LANE,
    gemm::LANE,
    attn_decode::LANE,
    attn_prefill::LANE,
    forward::LANE,
    diffusion::LANE,
    sched_zipf::LANE,
    load::LANE,
    memory::LANE,
    plan_cache::LANE,
    tokenizer::LANE,
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
    /// The metrics, which [`metrics`](Self::metrics) reads.
    pub metrics: &'static str,
    /// The relative difference of its metrics that matters, such as 0.03.
    pub threshold: f64,
    /// The lane's own flags, besides those for model and machine.
    pub flags: &'static [Flag],
    /// Flag values for a very short run, used in tests: `name=value`, between spaces.
    pub smoke: &'static str,
    /// Flag values for a run of a minute or two.
    pub standard: &'static str,
    /// The default thread counts, given the machine's default number of threads.
    pub threads: fn(usize) -> Vec<usize>,
    /// The columns of comma-separated values with one line per row, separated by `|`; none for one line per row and metric.
    pub columns: &'static [&'static str],
    /// The columns of the printed table with one line per row; empty for one line per row and metric.
    pub shown: &'static str,
    /// A note about the values in the table.
    pub note: Option<&'static str>,
    /// CSV layouts of the seeds' programs, by the names of `--csv-style`.
    pub styles: &'static [(&'static str, &'static str)],
    /// The rule for comparing with comma-separated values of an earlier run; `None` if they cannot be a baseline.
    pub baseline: Option<Rule>,
    /// Figures that are reported as too large, but fail nothing.
    pub warnings: &'static [Warning],
    /// The function that runs the lane.
    pub run: LaneFunction,
}

/// What a lane measures.
#[derive(Clone, Copy, Debug)]
pub enum LaneFunction {
    /// The machine alone.
    Machine(OfMachine),
    /// A model.
    Model(OfModel),
    /// A model that fills masks.
    Masked(OfModel),
    /// A tokenizer.
    Text(OfText),
    /// Servers, over HTTP.
    Server(OfServers),
}

/// Measures the machine.
pub type OfMachine = fn(&Bench<'_>, &Values) -> Result<()>;
/// Measures a model.
pub type OfModel = fn(&Bench<'_>, &BenchModel<'_>, &Values) -> Result<()>;

/// Measures servers.
pub type OfServers = fn(&Bench<'_>, &Servers<'_>, &Values) -> Result<()>;

/// Measures a tokenizer.
pub type OfText = fn(&Bench<'_>, &Text<'_>, &Values) -> Result<()>;

/// The size of a lane's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneProfile {
    /// Very short: only shows that the lane runs.
    Smoke,
    /// A minute or two.
    Standard,
    /// Everything.
    Full,
}

impl LaneProfile {
    /// All profiles by name.
    pub const ALL: &[(&str, Self)] =
        &[("smoke", Self::Smoke), ("standard", Self::Standard), ("full", Self::Full)];

    /// The name of the profile.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, profile)| *profile == self).map_or("", |(name, _)| name)
    }

    /// Minimum duration in nanoseconds of a reading of the machine's limits or of the canary beside the work.
    pub fn reading_ns(self) -> u64 {
        match self {
            Self::Smoke => SHORT_READING_NS,
            Self::Standard | Self::Full => READING_NS,
        }
    }
}

impl Lane {
    /// A lane that still needs its texts, metrics and flags. It runs with the machine's default number of threads.
    const fn new(name: &'static str, threshold: f64, run: LaneFunction) -> Self {
        Self {
            name,
            asks: "",
            checks: "",
            against: "",
            metrics: "",
            threshold,
            flags: &[],
            smoke: "",
            standard: "",
            threads: |default| vec![default],
            columns: &[],
            shown: "",
            note: None,
            styles: &[],
            baseline: None,
            warnings: &[],
            run,
        }
    }

    /// The flag values of a profile; other flags take their defaults.
    pub fn values<'a>(&self, profile: LaneProfile) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let text = match profile {
            LaneProfile::Smoke => self.smoke,
            LaneProfile::Standard => self.standard,
            LaneProfile::Full => "",
        };
        text.split_whitespace().filter_map(|pair| pair.split_once('='))
    }

    /// The specification of a metric.
    pub fn metric(&self, metric: &str) -> Option<MetricSpec> {
        self.metrics().find(|spec| spec.names(metric))
    }

    /// The specifications of its metrics.
    pub fn metrics(&self) -> impl Iterator<Item = MetricSpec> + use<> {
        MetricSpec::all(self.metrics)
    }

    /// The lane with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|lane| lane.name == name)
    }

    /// The help text: checks, metrics and reference.
    pub fn about(&self) -> String {
        let mut text =
            format!("Checked first: {}.\nHeld against: {}.\nMetrics:\n", self.checks, self.against);
        let width = self.metrics().map(|metric| metric.name.len()).max().unwrap_or(0);
        for metric in self.metrics() {
            let better = match metric.direction {
                Direction::Higher => "higher is better",
                Direction::Lower => "lower is better",
                Direction::Info if metric.portable => "reported; the same on every machine",
                Direction::Info => "reported",
            };
            text.push_str(&format!("  {:<width$}  {:<10}  {better}\n", metric.name, metric.unit));
        }
        text
    }

    /// What is too large in these rows. `baseline` gives the value of a case and a metric in the baseline.
    pub fn warnings(&self, rows: &[Row], baseline: impl Fn(&str, &str) -> Option<f64>) -> Vec<String> {
        let of_row = |row| self.warnings.iter().filter_map(|warning| warning.of(row, &baseline)).collect();
        rows.iter().flat_map::<Vec<String>, _>(of_row).collect()
    }

    /// Formats a result of this lane as a table.
    pub fn table(&self, result: &LaneResult) -> String {
        let table = if self.shown.is_empty() { result.table() } else { result.table_of(self.shown) };
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
    use crate::conditions::Condition;
    use crate::result::Column;
    use crate::roofline::{Held, Limits};
    use redline_system::{Clock, Machine};

    /// A bench on an unknown machine, which drops its rows.
    pub(crate) fn bench(clock: &Clock) -> Bench<'_> {
        Bench {
            clock,
            machine: Machine::default(),
            threads: vec![1],
            tier: None,
            reading_ns: READING_NS,
            progress: &|_| (),
            note: &|_| (),
            record: &|_| Ok(()),
            process: &|_| Err(String::new()),
        }
    }

    /// The samples of a metric; none if the row does not have it.
    pub(crate) fn samples(row: &Row, metric: &str) -> Vec<f64> {
        row.samples_of(metric).map(|samples| samples.values().to_vec()).unwrap_or_default()
    }

    /// A value between readings of 10 KB and 1000 operations per second, half of that in attention.
    pub(crate) fn timed<T>(value: T) -> Held<T> {
        let limits = Limits { bandwidth: 1e4, peak: 1e3, attention_peak: 500.0 };
        Held { value, limits, condition: Condition::default() }
    }

    /// A model with round numbers.
    pub(crate) fn info() -> ModelInfo {
        ModelInfo {
            name: "a".into(),
            architecture: "b".into(),
            objective: redline_engine::Objective::NEXT,
            mask_id: None,
            classes: None,
            embedding_width: 8,
            embedding_pooling: None,
            sparse: false,
            multi_vector: None,
            token_types: None,
            parameters: 600,
            weight_bytes: 2000,
            bytes_per_token: 1000,
            experts: None,
            head_bytes: 100,
            kv_bytes_per_token: 8,
            state_bytes: 0,
            activation_bytes: 400,
            activation_bytes_per_row: 4,
            activation_bytes_per_output: 10,
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
            for profile in [LaneProfile::Smoke, LaneProfile::Standard] {
                let known = |name: &str| lane.flags.iter().any(|flag| flag.name == name);
                assert!(lane.values(profile).all(|(name, _)| known(name)), "{}", lane.name);
                assert!(Values::new(lane.flags, lane.values(profile)).is_ok(), "{}", lane.name);
            }
            let switches = lane.flags.iter().filter(|flag| flag.value.is_empty());
            assert!(switches.into_iter().all(|flag| flag.default == "false"), "{}", lane.name);
            let columns = Column::all(lane.columns);
            let distinct: std::collections::BTreeSet<_> = columns.iter().map(|column| column.name).collect();
            assert_eq!(distinct.len(), columns.len(), "{}", lane.name);
            for texts in lane
                .styles
                .iter()
                .map(|(_, text)| std::slice::from_ref(text))
                .chain([lane.columns, &[lane.shown]])
            {
                let written: usize =
                    texts.iter().filter(|text| !text.is_empty()).map(|text| text.split('|').count()).sum();
                let read = Column::all(texts).into_iter().filter(|column| !column.name.is_empty()).count();
                assert_eq!(read, written, "{}: {texts:?}", lane.name);
            }
        }
    }

    #[test]
    fn a_profile_is_a_size_of_a_lane() {
        for lane in ALL {
            let words = |profile| {
                lane.values(profile).map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
            };
            assert_eq!(words(LaneProfile::Smoke).join(" "), lane.smoke, "{}", lane.name);
            assert_eq!(words(LaneProfile::Standard).join(" "), lane.standard, "{}", lane.name);
            assert!(words(LaneProfile::Full).is_empty(), "{}", lane.name);
        }
        let names: Vec<&str> = LaneProfile::ALL.iter().map(|(_, profile)| profile.name()).collect();
        assert_eq!(names, ["smoke", "standard", "full"]);
    }

    #[test]
    fn four_lanes_run_with_several_numbers_of_threads() {
        for lane in ALL {
            let expected = match lane.name {
                "limits" => vec![1, 2, 3],
                "tokenizer" => vec![1, 2, 4, 8],
                "attn-decode" | "attn-prefill" => vec![1, 3],
                _ => vec![3],
            };
            assert_eq!((lane.threads)(3), expected, "{}", lane.name);
        }
    }
}
