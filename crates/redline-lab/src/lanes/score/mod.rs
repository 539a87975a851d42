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
use work::{Prefix, Workload, label_ids};

pub(super) const LANE: Lane = Lane {
    asks: "How many items are scored per second, by batch and labels, with and without a known query?",
    checks: "cold and warm requests, and the first and the last item alone, give the same bits; rows sum to 1",
    against: "the same requests with a query that is not known, and the machine's limits, read around every run",
    metrics: "+items_per_s items/s|-latency ms|#items items|#prompt_tokens tokens|#computed_tokens tokens|\
              #cached_tokens tokens|share share|limit",
    flags: &Flags::ALL,
    smoke: "batch-sizes=1,3 num-labels=2 num-runs=2 warmup-runs=1",
    standard: "batch-sizes=1,8 num-labels=2,8",
    columns: COLUMNS,
    // One line per case as printed by the seed's benchmark, with further columns.
    shown: "batch=batch_size|labels=num_labels|prefix|threads|items/s=overall:items_per_s|\
            p50 (ms)=rank50:latency|p95 (ms)=rank95:latency|p99 (ms)=rank99:latency|\
            computed=~computed_tokens|cached=~cached_tokens|of limit=@share|@limit|@kernels",
    note: Some(NOTE),
    styles: &[("score", SEED)],
    baseline: Some(Rule {
        keys: &["batch_size", "num_labels", "prefix", "threads", "format"],
        value: "throughput_items_per_sec",
        most_drop: 0.10,
    }),
    ..Lane::new("score", 0.10, LaneFunction::Model(run))
};

flags! {
    struct Flags;
    batches: Vec<usize> = "batch-sizes", "N,..", "1,2,4,8,16", "Items of a request";
    labels: Vec<usize> = "num-labels", "N,..", "2,4,8", "Labels, each one token";
    timed: usize = "num-runs", "N", "20", RUNS;
    warmups: usize = "warmup-runs", "N", "5", WARMUPS;
    query_tokens: Option<usize> = "query-tokens", "N", "auto", "Tokens of the query; auto: a text of ten sentences";
    item_tokens: Option<usize> = "item-tokens", "N", "auto",
        "Tokens of an item; auto: with a text as query a short text, else 4";
    arms: &'static [Prefix] = "prefix", "WHICH", "both", "Arms to run: cold, warm or both", |flag, text| {
        const BOTH: &[Prefix] = &[Prefix::Cold, Prefix::Warm];
        flag.choice(text, &[("cold", &BOTH[..1]), ("warm", &BOTH[1..]), ("both", BOTH)])
    };
}

const NOTE: &str = "p50, p95 and p99 by the seed's formula, the value at place n * p / 100 of the sorted runs: of 20 runs, p95 and p99 are the \
                    largest. results.csv has percentiles only where there are runs enough for an interval.";

/// The columns of the seed's score benchmark.
const SEED: &str = "batch_size|num_labels|num_runs=#latency|total_items=sum:items|\
     throughput_items_per_sec=overall:items_per_s|latency_p50_ms=rank50:latency|\
     latency_p95_ms=rank95:latency|latency_p99_ms=rank99:latency|latency_mean_ms=mean:latency|\
     latency_std_ms=deviation:latency";

/// The columns of the seed's score benchmark, then ours.
const COLUMNS: &[&str] = &[
    SEED,
    "prefix|threads|format|~prompt_tokens|~computed_tokens|~cached_tokens|@limit|share_of_limit=@share|\
     kernel_path=@kernels",
];

/// Number of the first timed run, beyond those of warm-up, so that the lengths of its texts do not depend on how many there were.
const FIRST_TIMED: usize = 1000;

#[derive(Clone)]
struct Sample {
    ms: f64,
    cost: RequestCost,
}

fn run(bench: &Bench<'_>, model: &BenchModel<'_>, values: &Values) -> Result<()> {
    let flags = Flags::of(values)?;
    let (runs, arms) = (Runs { timed: flags.timed, warmups: flags.warmups }, flags.arms);
    let lengths = work::lengths(flags.query_tokens, flags.item_tokens);
    for &threads in &bench.threads {
        let setup = Setup { prefix_cache: true, ..Setup::new(threads) };
        let tokens = lengths.map_or(1, |(query, item)| query.saturating_add(item));
        let trials = Trials::load(bench, model, setup, runs, tokens)?;
        for &items in &flags.batches {
            for &labels in &flags.labels {
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
    use super::work::tests::cost;
    use super::*;
    use crate::lanes::tests::{info, timed};

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
        let row =
            row(&info(), &workload, Prefix::Warm, &[timed(Sample { ms: 2.0, cost: cost(10, 4) })]).unwrap();
        assert_eq!(row.case, "score/b2/l3/warm/t1");
        let names = ["items_per_s", "latency", "items", "prompt_tokens", "computed_tokens", "cached_tokens"];
        let values = names.map(|name| crate::lanes::tests::samples(&row, name));
        assert_eq!(values, [1000.0, 2.0, 2.0, 24.0, 4.0, 20.0].map(|value| vec![value]));
    }
}
