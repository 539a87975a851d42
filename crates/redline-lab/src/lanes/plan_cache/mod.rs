//! Lane `plan-cache`: checks that plans are made once and then found, with the five tests of the seed.
//!
//! Each test has a row, graded by the seed's thresholds.

mod steps;

use redline_engine::Buckets;

use super::prelude::*;
use steps::Steps;

pub(super) const LANE: Lane = Lane {
    asks: "Are plans made once and found again, what do they cost, and what does measuring gain?",
    checks: "second calls and second processes miss nothing, every policy gives the same bits, memory does not grow",
    against: "the first call, the first process, and policies without stored plans",
    metrics: "first s|#first_misses misses|-second s|#second_misses misses|batch_misses misses|speedup x|\
              #plans plans|measurements timings|first_over_steady x|-steady s|tuning_gain x|\
              #policies policies|-call s|-growth bytes|-peak_memory bytes",
    flags: &Flags::ALL,
    smoke: "sizes=smoke num-runs=2",
    standard: "sizes=smoke",
    columns: &["test|threads|tp|grade|batches|first_s=~first|~first_misses|second_s=~second|~second_misses|\
                ~batch_misses|~speedup|first_request_over_steady=~first_over_steady|\
                tuned_over_estimated=~tuning_gain|memory_growth_bytes=max:growth|kernel_path=@kernels"],
    ..Lane::new("plan-cache", 0.10, LaneFunction::Model(run))
};

flags! {
    struct Flags;
    tests: &'static [(&'static str, Test)] = "test", "NAME", "all",
        "Which test: cache-hit-rate, precompile, batch-sizes, correctness, memory, or all; the names in the seed, such as \
         test_cache_hit_rate, are known too",
        |flag, text| {
            let own = TESTS.iter().map(|test| (test.0, std::slice::from_ref(test)));
            let seed = TESTS.iter().zip(NAMES).map(|(test, name)| (name, std::slice::from_ref(test)));
            flag.choice(text, &own.chain([("all", TESTS)]).chain(seed).collect::<Vec<_>>())
        };
    sizes: (&'static [usize], &'static [usize]) = "sizes", "WHICH", "full",
        "Sizes of passes: full, or smoke (64 and 128 tokens, 1 and 2 rows)",
        |flag, text| {
            flag.choice(text, &[("full", (Buckets::TOKENS, Buckets::ROWS)), ("smoke", (&[64, 128], &[1, 2]))])
        };
    calls: usize = "num-runs", "N", "5", "Calls after the first of each kind, which are not warmed up";
}

/// The grades of a cache, as defined by the seed.
const GOOD: &str = "good";
const FAIR: &str = "fair";
const POOR: &str = "poor";

/// The grade of the second call: no miss and more than 100 times as fast is good, several misses or less than 10 times is
/// poor.
fn grade_of_calls(second_misses: u64, speedup: f64) -> &'static str {
    match second_misses {
        0 if speedup > 100.0 => GOOD,
        0 | 1 if speedup >= 10.0 => FAIR,
        _ => POOR,
    }
}

/// The grade of the second precompilation: more than 10 times as fast is good, less than 5 times is poor.
fn grade_of_precompilation(second_misses: u64, speedup: f64) -> &'static str {
    match second_misses {
        0 if speedup > 10.0 => GOOD,
        0 if speedup >= 5.0 => FAIR,
        _ => POOR,
    }
}

type Test = fn(&Steps<'_>) -> Result<Row>;

/// The tests, by the names of `--test`.
const TESTS: &[(&str, Test)] = &[
    ("cache-hit-rate", |steps| steps.hit_rate()),
    ("precompile", |steps| steps.precompile()),
    ("batch-sizes", |steps| steps.batch_sizes()),
    ("correctness", |steps| steps.correctness()),
    ("memory", |steps| steps.memory()),
];

/// The names of the tests in the seed, in the order of [`TESTS`].
const NAMES: [&str; TESTS.len()] = [
    "test_cache_hit_rate",
    "test_precompile_cache_effectiveness",
    "test_different_batch_sizes",
    "test_functional_correctness",
    "test_memory_efficiency",
];

fn run(bench: &Bench<'_>, model: &BenchModel<'_>, values: &Values) -> Result<()> {
    let Flags { tests, sizes: (tokens, rows), calls } = Flags::of(values)?;
    for &threads in &bench.threads {
        let steps = Steps { bench, model, threads, tokens, rows, calls };
        for (name, test) in tests {
            let row = test(&steps)?;
            let grade = row.param_text("grade").unwrap_or_default();
            bench.done(&format!("{threads} threads, {name}: {grade}"), vec![row])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grades_are_those_of_the_seed() {
        let of = grade_of_calls;
        assert_eq!([of(0, 1269.5), of(0, 100.1), of(0, 100.0), of(0, 10.0)], [GOOD, GOOD, FAIR, FAIR]);
        assert_eq!([of(1, 100.1), of(1, 50.0), of(1, 10.0)], [FAIR; 3]);
        assert_eq!([of(0, 9.9), of(1, 9.9), of(2, 1000.0), of(8, 1.02)], [POOR; 4]);
        let of = grade_of_precompilation;
        assert_eq!(
            [of(0, 18.4), of(0, 10.1), of(0, 10.0), of(0, 7.0), of(0, 5.0)],
            [GOOD, GOOD, FAIR, FAIR, FAIR]
        );
        assert_eq!([of(0, 4.9), of(1, 5.0), of(1, 50.0)], [POOR; 3]);
        assert_eq!((GOOD, FAIR, POOR), ("good", "fair", "poor"));
    }
}
