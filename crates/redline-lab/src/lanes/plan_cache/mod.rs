//! Lane `plan-cache`: checks that plans are made once and then found, with the five tests of the seed.
//!
//! Each test has a row, graded by the seed's thresholds. The guarantees of a test (no miss the second time, the same
//! bits, no growth) are checked, and a violation is an error.

mod steps;

use redline_engine::{Buckets, PlanPolicy};

use super::{Lane, MetricSpec, Run, all_threads, count, info, lower};
use crate::bench::{Bench, Flag, LaneError, Model, Values};
use crate::result::{Cell, Column};
use crate::stats::Samples;
use steps::Steps;

/// The `plan-cache` lane.
pub const LANE: Lane = Lane {
    name: "plan-cache",
    asks: "Are plans made once and found again, what do they cost, and what does measuring gain?",
    checks: "second calls and second processes miss nothing, every policy gives the same bits, memory does not grow",
    against: "the first call, the first process, and policies without stored plans",
    metrics: METRICS,
    threshold: 0.10,
    flags: &[
        Flag {
            name: "test",
            value: "NAME",
            default: "all",
            help: "Which test: cache-hit-rate, precompile, batch-sizes, correctness, memory, or all",
        },
        Flag {
            name: "sizes",
            value: "WHICH",
            default: "full",
            help: "Sizes of passes: full, or smoke (64 and 128 tokens, 1 and 2 rows)",
        },
        Flag { help: "Calls after the first of each kind, which are not warmed up", ..Flag::runs("5") },
    ],
    smoke: &[("sizes", "smoke"), ("num-runs", "2")],
    standard: &[("sizes", "smoke")],
    threads: all_threads,
    columns: Some(COLUMNS),
    shown: None,
    note: None,
    styles: &[],
    baseline: None,
    run: Run::Model(run),
};

const METRICS: &[MetricSpec] = &[
    info("first", "s"),
    count("first_misses", "misses"),
    lower("second", "s"),
    count("second_misses", "misses"),
    info("speedup", "x"),
    count("plans", "plans"),
    info("measurements", "timings"),
    info("first_over_steady", "x"),
    lower("steady", "s"),
    info("tuning_gain", "x"),
    count("policies", "policies"),
    lower("call", "s"),
    lower("growth", "bytes"),
    lower("peak_memory", "bytes"),
];

const COLUMNS: &[Column] = &[
    Column::param("test"),
    Column::param("threads"),
    Column::param("tp"),
    Column::param("grade"),
    Column { name: "first_s", cell: Cell::Metric("first", Samples::median, 1.0) },
    Column::median("first_misses"),
    Column { name: "second_s", cell: Cell::Metric("second", Samples::median, 1.0) },
    Column::median("second_misses"),
    Column::median("speedup"),
    Column {
        name: "first_request_over_steady",
        cell: Cell::Metric("first_over_steady", Samples::median, 1.0),
    },
    Column { name: "tuned_over_estimated", cell: Cell::Metric("tuning_gain", Samples::median, 1.0) },
    Column { name: "memory_growth_bytes", cell: Cell::Metric("growth", Samples::max, 1.0) },
    Column::KERNEL_PATH,
];

/// The grade of a cache, as defined by the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grade {
    Good,
    Fair,
    Poor,
}

impl Grade {
    fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Fair => "fair",
            Self::Poor => "poor",
        }
    }

    /// The grade of the second call: no miss and more than 100 times as fast is good, several misses or less than 10
    /// times is poor.
    fn of_calls(second_misses: u64, speedup: f64) -> Self {
        match second_misses {
            0 if speedup > 100.0 => Self::Good,
            0 | 1 if speedup >= 10.0 => Self::Fair,
            _ => Self::Poor,
        }
    }

    /// The grade of the second precompilation: more than 10 times as fast is good, less than 5 times is poor.
    fn of_precompilation(second_misses: u64, speedup: f64) -> Self {
        match second_misses {
            0 if speedup > 10.0 => Self::Good,
            0 if speedup >= 5.0 => Self::Fair,
            _ => Self::Poor,
        }
    }
}

/// A function that runs a test and returns its row.
type Test = fn(&Steps<'_>) -> Result<crate::Row, LaneError>;

/// The tests, by the names of `--test`.
const TESTS: &[(&str, Test)] = &[
    ("cache-hit-rate", |steps| steps.hit_rate()),
    ("precompile", |steps| steps.precompile()),
    ("batch-sizes", |steps| steps.batch_sizes()),
    ("correctness", |steps| steps.correctness()),
    ("memory", |steps| steps.memory()),
];

fn run(bench: &Bench<'_>, model: &Model<'_>, values: &Values) -> Result<(), LaneError> {
    let mut names: Vec<&'static str> = TESTS.iter().map(|(name, _)| *name).collect();
    names.push("all");
    let asked = values.choice("test", &names)?;
    let (tokens, rows): (&[usize], &[usize]) = match values.choice("sizes", &["full", "smoke"])? {
        "smoke" => (&[64, 128], &[1, 2]),
        _ => (Buckets::TOKENS, Buckets::ROWS),
    };
    let calls = values.count("num-runs")?;
    for &threads in &bench.threads {
        let steps = Steps { bench, model, threads, tokens, rows, calls };
        for (name, test) in TESTS.iter().filter(|(name, _)| asked == "all" || asked == *name) {
            let row = test(&steps)?;
            let grade = row.params.get("grade").and_then(|grade| grade.as_str()).unwrap_or_default();
            let what = format!("{threads} threads, {name}: {grade}");
            bench.done(&what, vec![row])?;
        }
    }
    Ok(())
}

/// Policies that must all give the same bits.
const POLICIES: &[PlanPolicy] =
    &[PlanPolicy::Tune, PlanPolicy::Estimate, PlanPolicy::Forbid, PlanPolicy::Off];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grades_are_those_of_the_seed() {
        let of = |misses, speedup| Grade::of_calls(misses, speedup).name();
        assert_eq!([of(0, 1269.5), of(0, 100.0), of(1, 50.0)], ["good", "fair", "fair"]);
        assert_eq!([of(2, 1000.0), of(0, 9.9), of(8, 1.02)], ["poor", "poor", "poor"]);
        let of = |misses, speedup| Grade::of_precompilation(misses, speedup).name();
        assert_eq!([of(0, 18.4), of(0, 7.0), of(0, 4.9), of(1, 50.0)], ["good", "fair", "poor", "poor"]);
    }
}
