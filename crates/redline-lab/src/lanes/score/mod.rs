//! Lane `score`: items per second of a score request, by batch and number of labels, with and without the query in the prefix
//! cache.
//!
//! A cold run has its own salt, so that nothing is cached; a warm run follows another one with the same query but has new items.
//! Both are interleaved.

mod work;

use redline_engine::{Engine, ModelInfo, RequestCost, ScoreOutcome};

use super::prelude::*;
use crate::baseline::Rule;
use crate::bench::requests::item_scores;
use crate::stats::sorted;
use work::{Prefix, Workload, label_ids};

pub(super) const LANE: Lane = Lane {
    asks: "How many items are scored per second, by batch and labels, with and without a known query?",
    checks: "cold and warm requests, and the first and the last item alone, give the same bits; rows sum to 1",
    against: "the same requests with a query that is not known, and the machine's limits, read around every run",
    metrics: &[
        higher("items_per_s", "items/s"),
        lower("latency", "ms"),
        count("items", "items"),
        count("prompt_tokens", "tokens"),
        count("computed_tokens", "tokens"),
        count("cached_tokens", "tokens"),
        info("share", "share"),
        info("limit", ""),
    ],
    flags: &[
        flag("batch-sizes", "N,..", "1,2,4,8,16").help("Items of a request"),
        flag("num-labels", "N,..", "2,4,8").help("Labels, each one token"),
        Flag::runs("20"),
        Flag::warmups("5"),
        flag("query-tokens", "N", "auto").help("Tokens of the query; auto: a text of ten sentences"),
        flag("item-tokens", "N", "auto")
            .help("Tokens of an item; auto: with a text as query a short text, else 4"),
        flag("prefix", "WHICH", "both").help("Arms to run: cold, warm or both"),
    ],
    smoke: &[("batch-sizes", "1,3"), ("num-labels", "2"), ("num-runs", "2"), ("warmup-runs", "1")],
    standard: &[("batch-sizes", "1,8"), ("num-labels", "2,8")],
    columns: Some(COLUMNS),
    // One line per case as printed by the seed's benchmark, with further columns.
    shown: Some(&[
        Column { name: "batch", cell: Cell::Param("batch_size") },
        Column { name: "labels", cell: Cell::Param("num_labels") },
        Column::param("prefix"),
        Column::param("threads"),
        Column { name: "items/s", cell: Cell::Metric("items_per_s", over_all_runs, 1.0) },
        Column { name: "p50 (ms)", cell: Cell::Metric("latency", |s| rank(s, 50), 1.0) },
        Column { name: "p95 (ms)", cell: Cell::Metric("latency", |s| rank(s, 95), 1.0) },
        Column { name: "p99 (ms)", cell: Cell::Metric("latency", |s| rank(s, 99), 1.0) },
        median("computed", "computed_tokens"),
        median("cached", "cached_tokens"),
        Column { name: "of limit", cell: Cell::Share },
        Column::LIMIT,
        Column { name: "kernels", cell: Cell::Kernels },
    ]),
    note: Some(NOTE),
    styles: &[("score", SEED)],
    baseline: Some(Rule {
        keys: &["batch_size", "num_labels", "prefix", "threads", "format"],
        value: "throughput_items_per_sec",
        most_drop: 0.10,
    }),
    ..Lane::new("score", 0.10, LaneFunction::Model(run))
};

const NOTE: &str = "p50, p95 and p99 by the seed's formula, the value at place n * p / 100 of the sorted runs: of 20 runs, p95 and p99 are the \
                    largest. results.csv has percentiles only where there are runs enough for an interval.";

/// The columns of the seed's score benchmark.
const SEED: &[Column] = COLUMNS.split_at(10).0;

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

fn sum(samples: &Samples) -> Option<f64> {
    (samples.n() > 0).then(|| samples.values().iter().sum())
}

/// Items of all runs over the seconds of all runs, computed from the rates of runs of equal size.
fn over_all_runs(rates: &Samples) -> Option<f64> {
    (rates.n() > 0).then(|| rates.n() as f64 / rates.values().iter().map(|rate| 1.0 / rate).sum::<f64>())
}

/// Number of the first timed run, beyond those of warm-up, so that the lengths of its texts do not depend on how many there were.
const FIRST_TIMED: usize = 1000;

/// The value at rank `n * percent / 100` of the sorted samples, for any number of samples, as in the seed's benchmark.
fn rank(samples: &Samples, percent: usize) -> Option<f64> {
    let sorted = sorted(samples.values());
    sorted.get(sorted.len() * percent / 100).copied()
}

#[derive(Clone)]
struct Sample {
    ms: f64,
    cost: RequestCost,
}

fn run(bench: &Bench<'_>, model: &BenchModel<'_>, values: &Values) -> Result<()> {
    let (batches, counts) = (values.counts("batch-sizes")?, values.counts("num-labels")?);
    let runs = values.runs()?;
    let arms = values.choice::<&[Prefix]>(
        "prefix",
        &[("cold", &[Prefix::Cold]), ("warm", &[Prefix::Warm]), ("both", &[Prefix::Cold, Prefix::Warm])],
    )?;
    let lengths = work::lengths(values)?;
    for &threads in &bench.threads {
        let setup = Setup { prefix_cache: true, ..Setup::new(threads) };
        let tokens = lengths.map_or(1, |(query, item)| query.saturating_add(item));
        let trials = Trials::load(bench, model, setup, runs, tokens)?;
        for &items in &batches {
            for &labels in &counts {
                let workload = Workload { lengths, items, labels: label_ids(labels, trials.info())? };
                let rows = checked_rows(&trials, &workload, arms)?;
                bench.done(&format!("{threads} threads, {items} items, {labels} labels"), rows)?;
            }
        }
    }
    Ok(())
}

fn checked_rows(trials: &Trials<'_>, workload: &Workload, arms: &[Prefix]) -> Result<Vec<Row>> {
    let (info, engine) = (trials.info(), &trials.engine);
    let digest = check(engine, workload, arms)?;
    let sample = |arm: Prefix, run: usize| {
        let request = workload.request(arm, run, info.vocab);
        let (outcome, ns) = trials.bench.clock.time(|| engine.score(request));
        let outcome = outcome?;
        normalised(item_scores(&outcome)?.iter().map(|item| &item.scores[..]))?;
        Ok(Sample { ms: ns as f64 * 1e-6, cost: outcome.cost })
    };
    let warmup = trials.warm_up(|run| arms.iter().try_for_each(|&arm| sample(arm, run).map(drop)))?;
    let first = FIRST_TIMED.max(warmup.runs);
    let samples = trials.take(arms.len(), |i| sample(arms[i % arms.len()], first + i / arms.len()))?;
    let row = |(first, &arm): (usize, &Prefix)| {
        let samples: Vec<_> = samples.iter().skip(first).step_by(arms.len()).cloned().collect();
        Ok(row(info, workload, arm, &samples)?.digest(&digest).warmed(warmup))
    };
    arms.iter().enumerate().map(row).collect()
}

/// The digest of the first run's scores, after checking that they are the same with and without a cached query, and in
/// a batch and alone.
fn check(engine: &Engine, workload: &Workload, arms: &[Prefix]) -> Result<String> {
    let request = |arm| workload.request(arm, 0, engine.info().vocab);
    let cold = engine.score(request(Prefix::Cold))?;
    let expected = bits(&cold)?;
    if arms.contains(&Prefix::Warm) {
        engine.score(request(Prefix::Warm))?;
        let warm = engine.score(request(Prefix::Warm))?;
        require(warm.cost.usage.cached_tokens > 0, || {
            let tokens = cold.cost.usage.prompt_tokens / workload.items;
            let fact = format!("of prompts of {tokens} tokens the prefix cache keeps nothing");
            format!("{fact}; give a longer query, or `--prefix cold`")
        })?;
        same("with a known query", &expected, &bits(&warm)?)?;
    }
    for index in [0, workload.items - 1] {
        let mut alone = request(Prefix::Cold);
        alone.items = vec![alone.items.swap_remove(index)];
        "alone".clone_into(&mut alone.cache_salt);
        same("alone", &expected[index..=index], &bits(&engine.score(alone)?)?)?;
    }
    Ok(digest::of_ids(&expected.concat()))
}

fn bits(outcome: &ScoreOutcome) -> Result<Vec<Vec<u32>>> {
    let items = item_scores(outcome)?.into_iter();
    Ok(items.map(|item| item.scores.iter().map(|score| score.to_bits()).collect()).collect())
}

fn same(when: &str, expected: &[Vec<u32>], now: &[Vec<u32>]) -> Result<()> {
    let values = |bits: &[Vec<u32>]| -> Vec<Vec<f32>> {
        bits.iter().map(|row| row.iter().map(|&b| f32::from_bits(b)).collect()).collect()
    };
    verify(expected == now, || {
        format!("scores {:?} in a new request, {:?} {when}", values(expected), values(now))
    })
}

/// Checks that the scores of every item, a softmax, sum to 1.
fn normalised<'a>(items: impl IntoIterator<Item = &'a [f32]>) -> Result<()> {
    for (index, scores) in items.into_iter().enumerate() {
        let sum: f64 = scores.iter().map(|&score| f64::from(score)).sum();
        verify((sum - 1.0).abs() <= 1e-6, || format!("the scores of item {index} sum to {sum}, not to 1"))?;
    }
    Ok(())
}

fn row(info: &ModelInfo, workload: &Workload, arm: Prefix, samples: &[Held<Sample>]) -> Result<Row> {
    let (items, labels, name) = (workload.items, workload.labels.len(), arm.name());
    let work = samples.first().map(|s| work::least(info, workload, &s.value.cost)).unwrap_or_default();
    Row::of_model(format!("score/b{items}/l{labels}/{name}/t{}", info.threads), info)
        .param("batch_size", items)
        .param("num_labels", labels)
        .param("prefix", name)
        .measured(LANE.metrics, samples)
        .each("items_per_s", |s| items as f64 * 1e3 / s.value.ms)?
        .each("latency", |s| s.value.ms)?
        .each("items", |_| items as f64)?
        .each("prompt_tokens", |s| s.value.cost.usage.prompt_tokens as f64)?
        .each("computed_tokens", |s| s.value.cost.computed_tokens as f64)?
        .each("cached_tokens", |s| s.value.cost.usage.cached_tokens as f64)?
        .held(info.format.arithmetic(), work, |s| s.value.ms * 1e-3)
}

#[cfg(test)]
mod tests {
    use redline_engine::TokenCounts;

    use super::*;
    use crate::lanes::tests::{info, timed};

    fn samples(values: &[f64]) -> Samples {
        Samples::new("x", crate::Direction::Info, values.to_vec()).unwrap()
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
    fn scores_that_do_not_sum_to_one_are_incorrect() {
        for good in [[0.25, 0.75], [0.5, 0.5000005]] {
            assert!(normalised([&good[..]]).is_ok(), "{good:?}");
        }
        for bad in [[0.5, 0.50001], [0.5, 0.49999], [0.5, f32::NAN], [f32::INFINITY, 0.0]] {
            let Err(LaneError::Incorrect(fact)) = normalised([&bad[..]]) else { panic!("{bad:?}") };
            assert!(fact.starts_with("the scores of item 0 sum to "), "{fact}");
        }
    }

    #[test]
    fn a_row_tells_items_per_second_and_counts_of_tokens() {
        let workload = Workload { lengths: None, items: 2, labels: vec![1, 2, 3] };
        let cost = RequestCost {
            usage: TokenCounts { prompt_tokens: 24, completion_tokens: 0, cached_tokens: 20 },
            computed_tokens: 4,
            shared_prefix_tokens: 10,
            prefix_cache: None,
            plan_misses: 0,
            queue_s: 0.0,
            compute_s: 0.0,
            peak_memory_bytes: None,
            kernel_path: String::new(),
        };
        let row = row(&info(), &workload, Prefix::Warm, &[timed(Sample { ms: 2.0, cost })]).unwrap();
        assert_eq!(row.case, "score/b2/l3/warm/t1");
        let names = ["items_per_s", "latency", "items", "prompt_tokens", "computed_tokens", "cached_tokens"];
        let values = names.map(|name| crate::lanes::tests::samples(&row, name));
        assert_eq!(values, [1000.0, 2.0, 2.0, 24.0, 4.0, 20.0].map(|value| vec![value]));
    }
}
