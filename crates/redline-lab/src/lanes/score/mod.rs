//! Lane `score`: items per second of a score request, by batch and number of labels, with and without the query in the prefix
//! cache.
//!
//! A cold run has its own salt, so that nothing is cached; a warm run follows another one with the same query but has new items.
//! Both are interleaved, each between two readings of the machine's limits. Before timing, both must give the same bits, the
//! first and the last item must have the same bits as alone, and every row must sum to 1.

mod work;

use redline_engine::{Engine, Label, ModelInfo, ScoreOutcome, ScoreRequest};
use redline_kernels::Simd;

use super::{Lane, MetricSpec, Run, all_threads, count, higher, info, lower};
use crate::baseline::Rule;
use crate::bench::{Bench, Flag, LaneError, Model, Setup, Values, within_context};
use crate::digest;
use crate::limits::Probe;
use crate::result::{Cell, Column};
use crate::roofline::{Arithmetics, Held, held};
use crate::{Direction, Row, Samples};
use work::{Workload, label_ids};

/// The `score` lane.
pub const LANE: Lane = Lane {
    name: "score",
    asks: "How many items are scored per second, by batch and labels, with and without a known query?",
    checks: "cold and warm requests, and the first and the last item alone, give the same bits; rows sum to 1",
    against: "the same requests with a query that is not known, and the machine's limits, read around every run",
    metrics: METRICS,
    threshold: 0.10,
    flags: &[
        Flag { name: "batch-sizes", value: "N,..", default: "1,2,4,8,16", help: "Items of a request" },
        Flag { name: "num-labels", value: "N,..", default: "2,4,8", help: "Labels, each one token" },
        Flag::runs("20"),
        Flag::warmups("5"),
        Flag {
            name: "query-tokens",
            value: "N",
            default: "auto",
            help: "Tokens of the query; auto: a text of ten sentences",
        },
        Flag {
            name: "item-tokens",
            value: "N",
            default: "auto",
            help: "Tokens of an item; auto: with a text as query a short text, else 4",
        },
        Flag { name: "prefix", value: "WHICH", default: "both", help: "Arms to run: cold, warm or both" },
    ],
    smoke: &[("batch-sizes", "1,3"), ("num-labels", "2"), ("num-runs", "2"), ("warmup-runs", "1")],
    standard: &[("batch-sizes", "1,8"), ("num-labels", "2,8")],
    threads: all_threads,
    columns: Some(COLUMNS),
    shown: Some(SHOWN),
    note: Some(NOTE),
    styles: &[("score", SEED)],
    baseline: Some(Rule {
        keys: &["batch_size", "num_labels", "prefix", "threads", "format"],
        value: "throughput_items_per_sec",
        most_drop: 0.10,
    }),
    run: Run::Model(run),
};

const METRICS: &[MetricSpec] = &[
    higher("items_per_s", "items/s"),
    lower("latency", "ms"),
    count("items", "items"),
    count("prompt_tokens", "tokens"),
    count("computed_tokens", "tokens"),
    count("cached_tokens", "tokens"),
    info("share", "share"),
    info("limit", ""),
];

const NOTE: &str = "p50, p95 and p99 by the seed's formula, the value at place n * p / 100 of the sorted runs: of 20 runs, p95 and p99 are the \
                    largest. results.csv has percentiles only where there are runs enough for an interval.";

/// The columns of the seed's score benchmark.
const SEED: &[Column] = &[
    COLUMNS[0], COLUMNS[1], COLUMNS[2], COLUMNS[3], COLUMNS[4], COLUMNS[5], COLUMNS[6], COLUMNS[7],
    COLUMNS[8], COLUMNS[9],
];

/// The columns of the seed's score benchmark, then ours.
const COLUMNS: &[Column] = &[
    Column::param("batch_size"),
    Column::param("num_labels"),
    Column { name: "num_runs", cell: Cell::Samples("latency") },
    Column { name: "total_items", cell: Cell::Metric("items", sum, 1.0) },
    Column { name: "throughput_items_per_sec", cell: Cell::Metric("items_per_s", over_all_runs, 1.0) },
    Column { name: "latency_p50_ms", cell: Cell::Metric("latency", |s| rank(s, 50), 1.0) },
    Column { name: "latency_p95_ms", cell: Cell::Metric("latency", |s| rank(s, 95), 1.0) },
    Column { name: "latency_p99_ms", cell: Cell::Metric("latency", |s| rank(s, 99), 1.0) },
    Column { name: "latency_mean_ms", cell: Cell::Metric("latency", Samples::mean, 1.0) },
    Column { name: "latency_std_ms", cell: Cell::Metric("latency", |s| s.std().or(Some(0.0)), 1.0) },
    Column::param("prefix"),
    Column::param("threads"),
    Column::param("format"),
    Column::median("prompt_tokens"),
    Column::median("computed_tokens"),
    Column::median("cached_tokens"),
    Column::LIMIT,
    Column::SHARE_OF_LIMIT,
    Column::KERNEL_PATH,
];

/// One line per case as printed by the seed's benchmark, with further columns.
const SHOWN: &[Column] = &[
    Column { name: "batch", cell: Cell::Param("batch_size") },
    Column { name: "labels", cell: Cell::Param("num_labels") },
    Column::param("prefix"),
    Column::param("threads"),
    Column { name: "items/s", cell: Cell::Metric("items_per_s", over_all_runs, 1.0) },
    Column { name: "p50 (ms)", cell: Cell::Metric("latency", |s| rank(s, 50), 1.0) },
    Column { name: "p95 (ms)", cell: Cell::Metric("latency", |s| rank(s, 95), 1.0) },
    Column { name: "p99 (ms)", cell: Cell::Metric("latency", |s| rank(s, 99), 1.0) },
    Column { name: "computed", cell: Cell::Metric("computed_tokens", Samples::median, 1.0) },
    Column { name: "cached", cell: Cell::Metric("cached_tokens", Samples::median, 1.0) },
    Column { name: "of limit", cell: Cell::Share },
    Column::LIMIT,
    Column { name: "kernels", cell: Cell::Kernels },
];

fn sum(samples: &Samples) -> Option<f64> {
    (samples.n() > 0).then(|| samples.values().iter().sum())
}

/// Items of all runs over the seconds of all runs, computed from the rates of runs of equal size.
fn over_all_runs(rates: &Samples) -> Option<f64> {
    (rates.n() > 0).then(|| rates.n() as f64 / rates.values().iter().map(|rate| 1.0 / rate).sum::<f64>())
}

/// The value at rank `n * percent / 100` of the sorted samples, for any number of samples, as in the seed's benchmark.
fn rank(samples: &Samples, percent: usize) -> Option<f64> {
    let mut sorted = samples.values().to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() * percent / 100).copied()
}

/// Whether the query is in the prefix cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prefix {
    Cold,
    Warm,
}

impl Prefix {
    fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }
}

/// One case of the sweep.
struct Case {
    items: usize,
    labels: Vec<i64>,
    runs: usize,
    warmup: usize,
}

/// A request and its outcome.
struct Sample {
    ms: f64,
    outcome: ScoreOutcome,
}

fn run(bench: &Bench<'_>, model: &Model<'_>, values: &Values) -> Result<(), LaneError> {
    let (batches, counts) = (values.counts("batch-sizes")?, values.counts("num-labels")?);
    let (runs, warmup) = (values.count("num-runs")?, values.count("warmup-runs")?);
    let arms: &[Prefix] = match values.choice("prefix", &["cold", "warm", "both"])? {
        "cold" => &[Prefix::Cold],
        "warm" => &[Prefix::Warm],
        _ => &[Prefix::Cold, Prefix::Warm],
    };
    let workload = Workload {
        query_tokens: values.count_or_auto("query-tokens")?,
        item_tokens: values.count_or_auto("item-tokens")?,
    };
    for &threads in &bench.threads {
        let engine = (model.load)(Setup { prefix_cache: true, ..Setup::new(threads) })?;
        let info = engine.info();
        within_context(workload.most_tokens(), info)?;
        let simd = Simd::new(info.tier).unwrap_or_else(|_| Simd::best());
        let probe = Probe::new(info.threads, simd, info.bytes_per_token as usize)?;
        for &items in &batches {
            for &labels in &counts {
                let case = Case { items, labels: label_ids(labels, info)?, runs, warmup };
                let rows = case_rows(bench, &engine, &probe, &workload, &case, arms)?;
                bench.done(&format!("{threads} threads, {items} items, {labels} labels"), rows)?;
            }
        }
    }
    Ok(())
}

fn case_rows(
    bench: &Bench<'_>,
    engine: &Engine,
    probe: &Probe,
    workload: &Workload,
    case: &Case,
    arms: &[Prefix],
) -> Result<Vec<Row>, LaneError> {
    let info = engine.info();
    let scored = |arm: Prefix, run: usize| {
        let request = request(workload, case, arm, run, info);
        let (outcome, ns) = bench.clock.time(|| engine.score(request));
        let outcome = outcome?;
        normalised(&outcome)?;
        Ok::<_, LaneError>(Sample { ms: ns as f64 * 1e-6, outcome })
    };
    let expected = checked(engine, workload, case, arms)?;
    let warmup = bench.warm_up(
        case.warmup,
        || engine.plan_counters().misses,
        |run| arms.iter().try_for_each(|&arm| scored(arm, run).map(|_| ())),
    )?;
    let samples = probe.hold(case.runs * arms.len(), Arithmetics::of(info), bench.clock, |i| {
        scored(arms[i % arms.len()], warmup.runs + i / arms.len())
    })?;
    let mut of_arms: Vec<Vec<Held<Sample>>> = arms.iter().map(|_| Vec::new()).collect();
    for (i, sample) in samples.into_iter().enumerate() {
        of_arms[i % arms.len()].push(sample);
    }
    let row = |(&arm, samples): (_, Vec<_>)| Ok(told(info, case, arm, &samples, &expected)?.warmed(warmup));
    arms.iter().zip(of_arms).map(row).collect()
}

/// The request of one run. Each run has different items; a cold query has its own salt.
fn request(workload: &Workload, case: &Case, arm: Prefix, run: usize, info: &ModelInfo) -> ScoreRequest {
    let first = run * case.items;
    let items = (first..first + case.items).map(|index| workload.item(index, info.vocab)).collect();
    let labels = case.labels.iter().map(|&id| Label::Ids(vec![id])).collect();
    let salt = match arm {
        Prefix::Cold => format!("cold {} {} {run}", case.items, case.labels.len()),
        Prefix::Warm => format!("warm {} {}", case.items, case.labels.len()),
    };
    ScoreRequest {
        softmax: true,
        cache_salt: salt,
        ..ScoreRequest::new(workload.query(info.vocab), items, labels)
    }
}

/// The bits of the first run's scores, after checking that they are the same with and without a cached query, and in
/// a batch and alone.
fn checked(engine: &Engine, workload: &Workload, case: &Case, arms: &[Prefix]) -> Result<String, LaneError> {
    let info = engine.info();
    let cold = engine.score(request(workload, case, Prefix::Cold, 0, info))?;
    let bits = bits(&cold)?;
    if arms.contains(&Prefix::Warm) {
        engine.score(request(workload, case, Prefix::Warm, 0, info))?;
        let warm = engine.score(request(workload, case, Prefix::Warm, 0, info))?;
        if warm.taken.usage.cached_tokens == 0 {
            let tokens = cold.taken.usage.prompt_tokens / case.items;
            let fact = format!("of prompts of {tokens} tokens the prefix cache keeps nothing");
            return Err(LaneError::Usage(format!("{fact}; give a longer query, or `--prefix cold`")));
        }
        same("with a known query", &bits, &self::bits(&warm)?)?;
    }
    for index in [0, case.items - 1] {
        let mut alone = request(workload, case, Prefix::Cold, 0, info);
        alone.items = vec![alone.items.swap_remove(index)];
        "alone".clone_into(&mut alone.cache_salt);
        same("alone", &bits[index..=index], &self::bits(&engine.score(alone)?)?)?;
    }
    Ok(digest::of_ids(&bits.concat()))
}

/// The bits of every score.
fn bits(outcome: &ScoreOutcome) -> Result<Vec<Vec<u32>>, LaneError> {
    let row = |item: &Result<redline_engine::ItemScore, redline_engine::ItemError>| match item {
        Ok(item) => Ok(item.scores.iter().map(|score| score.to_bits()).collect()),
        Err(error) => Err(LaneError::Incorrect(error.message.clone())),
    };
    outcome.items.iter().map(row).collect()
}

fn same(when: &str, expected: &[Vec<u32>], found: &[Vec<u32>]) -> Result<(), LaneError> {
    if expected == found {
        return Ok(());
    }
    let values = |bits: &[Vec<u32>]| -> Vec<Vec<f32>> {
        bits.iter().map(|row| row.iter().map(|&b| f32::from_bits(b)).collect()).collect()
    };
    let (expected, found) = (values(expected), values(found));
    Err(LaneError::Incorrect(format!("scores {expected:?} in a new request, {found:?} {when}")))
}

/// Checks that every softmax row sums to 1.
fn normalised(outcome: &ScoreOutcome) -> Result<(), LaneError> {
    for (index, item) in outcome.items.iter().enumerate() {
        let item = item.as_ref().map_err(|error| LaneError::Incorrect(error.message.clone()))?;
        let sum: f64 = item.scores.iter().map(|&score| f64::from(score)).sum();
        if (sum - 1.0).abs() > 1e-6 || !sum.is_finite() {
            return Err(LaneError::Incorrect(format!("the scores of item {index} sum to {sum}, not to 1")));
        }
    }
    Ok(())
}

fn told(
    info: &ModelInfo,
    case: &Case,
    arm: Prefix,
    samples: &[Held<Sample>],
    expected: &str,
) -> Result<Row, LaneError> {
    let metric = |unit: &str, direction, value: &dyn Fn(&Sample) -> f64| {
        Samples::new(unit, direction, samples.iter().map(|s| value(&s.value)).collect())
    };
    let tokens = |count: fn(&ScoreOutcome) -> usize| {
        metric("tokens", Direction::Info, &move |s| count(&s.outcome) as f64)
    };
    let items = case.items as f64;
    let (labels, name) = (case.labels.len(), arm.name());
    let mut row = Row::new(format!("score/b{}/l{labels}/{name}/t{}", case.items, info.threads))
        .param("model", info.name.clone())
        .param("threads", info.threads)
        .param("format", info.format.to_string())
        .param("kv_format", info.kv_format.name())
        .param("batch_size", case.items)
        .param("num_labels", labels)
        .param("prefix", name)
        .digest(expected)
        .metric("items_per_s", metric("items/s", Direction::Higher, &|s| items * 1e3 / s.ms)?)
        .metric("latency", metric("ms", Direction::Lower, &|s| s.ms)?)
        .metric("items", metric("items", Direction::Info, &|_| items)?)
        .metric("prompt_tokens", tokens(|o| o.taken.usage.prompt_tokens)?)
        .metric("computed_tokens", tokens(|o| o.taken.computed_tokens)?)
        .metric("cached_tokens", tokens(|o| o.taken.usage.cached_tokens)?);
    row.kernel_path = Some(info.kernel_path.clone());
    row.checked = true;
    let work = samples.first().map(|s| work::of(info, &s.value.outcome, labels)).unwrap_or_default();
    let timed: Vec<Held<f64>> = samples.iter().map(|s| s.with(s.value.ms * 1e-3)).collect();
    Ok(held(row, info.format.arithmetic(), work, &timed)?)
}

#[cfg(test)]
mod tests {
    use redline_engine::Prompt;

    use super::*;

    fn samples(values: &[f64]) -> Samples {
        Samples::new("x", Direction::Info, values.to_vec()).unwrap()
    }

    #[test]
    fn the_columns_follow_the_formulas_of_the_seed() {
        let twenty: Vec<f64> = (0..20).rev().map(f64::from).collect();
        let of = |percent| rank(&samples(&twenty), percent);
        assert_eq!((of(50), of(95), of(99)), (Some(10.0), Some(19.0), Some(19.0)));
        assert_eq!(rank(&samples(&[7.0]), 99), Some(7.0));
        assert_eq!(rank(&samples(&[]), 50), None);
        // 8 items in 1 s and 8 in 3 s are 16 in 4 s.
        assert_eq!(over_all_runs(&samples(&[8.0, 8.0 / 3.0])), Some(4.0));
        assert_eq!(over_all_runs(&samples(&[])), None);
        assert_eq!(sum(&samples(&[4.0, 4.0])), Some(8.0));
    }

    #[test]
    fn runs_differ_in_their_items_and_cold_ones_in_their_salt() {
        let info = crate::lanes::tests::info();
        let workload = Workload { query_tokens: Some(3), item_tokens: Some(2) };
        let case = Case { items: 2, labels: vec![1, 2], runs: 1, warmup: 1 };
        let of = |arm, run| request(&workload, &case, arm, run, &info);
        let (a, b) = (of(Prefix::Cold, 0), of(Prefix::Cold, 1));
        assert!(a.query == b.query && a.items != b.items && a.cache_salt != b.cache_salt);
        let (c, d) = (of(Prefix::Warm, 0), of(Prefix::Warm, 1));
        assert!(c.items == a.items && d.items == b.items && c.cache_salt == d.cache_salt);
        let Prompt::Ids(ids) = &a.query else { panic!() };
        assert_eq!(ids.len(), 3);
    }
}
