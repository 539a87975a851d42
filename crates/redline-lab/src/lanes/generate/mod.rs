//! Lane `generate`: the gain from the KV cache, how close prefill and decode come to the machine's limits, and the gain from
//! decoding several sequences together.
//!
//! Greedy, end-of-sequence ignored, so that every trial does the same work. Shares and quotients follow from other metrics or
//! from the limits, so they are reported but not judged.

mod budget;
mod rows;

use redline_engine::{Engine, GenerateRequest};

use self::budget::Budget;
use super::prelude::*;
use crate::bench::PROMPT;
use crate::bench::requests::{Prompts, Together, continuation, continue_together, generate};

pub(super) const LANE: Lane = Lane {
    asks: "How fast are prefill and decode, how near the machine's limits, and what is the KV cache worth?",
    checks: "greedy ids agree between all runs, with and without KV cache, alone and in a batch",
    against: "an arm without KV cache, and the machine's read bandwidth and arithmetic peak, read around every run",
    metrics: "+prefill_tokens_per_s tokens/s|+decode_tokens_per_s tokens/s|+tokens_per_s tokens/s|\
              +recomputed_tokens_per_s tokens/s|-prefill_s s|-decode_s s|-peak_memory bytes|\
              kv_cache_speedup x|share_of_forward share|share share|limit",
    flags: &Flags::ALL,
    smoke: "prompt-tokens=5 new-tokens=3 num-runs=2 batch=1,3",
    standard: "new-tokens=64 num-runs=5 batch=1,4 max-seconds=90",
    // The columns of the seeds' generation benchmarks: rates, mean and deviation, range, time per token, memory.
    columns: &["@case|batch_size=batch|prompt_tokens|new_tokens|kv_cache|num_runs=#share|\
                ~prefill_tokens_per_s|~decode_tokens_per_s|~tokens_per_s|\
                tokens_per_s_mean=mean:tokens_per_s|tokens_per_s_std=std:tokens_per_s|\
                tokens_per_s_min=min:tokens_per_s|tokens_per_s_max=max:tokens_per_s|\
                ms_per_token=inverse:tokens_per_s*1e3|~kv_cache_speedup|\
                peak_memory_mb=max:peak_memory*1e-6|threads|format|@limit|share_of_limit=@share|\
                kernel_path=@kernels"],
    ..Lane::new("generate", 0.05, LaneFunction::Model(run))
};

flags! {
    struct Flags;
    prompt: Option<String> = "prompt", "TEXT", "none", PROMPT;
    prompt_tokens: usize = "prompt-tokens", "N", "64", "Tokens of the prompt, if no text is given";
    new_tokens: usize = "new-tokens", "N", "256", "Tokens to generate";
    timed: usize = "num-runs", "N", "5", RUNS;
    warmups: usize = "warmup-runs", "N", "1", WARMUPS;
    arms: &'static [bool] = "kv-cache", "WHICH", "both", "Arms to run at batch 1: on, off or both", |flag, text| {
        flag.choice(text, &[("on", &[true][..]), ("off", &[false]), ("both", &[true, false])])
    };
    batches: Vec<usize> = "batch", "N,..", "1",
        "Sequences that decode together, one pass per token for all of them; with the KV cache";
    max_seconds: f64 = "max-seconds", "S", "0",
        "Leave out cases that would take longer, all together, by a first run of each; 0: no limit";
}

#[derive(Clone, Copy)]
struct Case {
    prompt_tokens: usize,
    new_tokens: usize,
}

impl Case {
    /// The mean length of the passes without KV cache.
    fn mean_length(self) -> usize {
        self.prompt_tokens + self.new_tokens / 2
    }
}

fn run(bench: &Bench<'_>, model: &BenchModel<'_>, values: &Values) -> Result<()> {
    let Flags { prompt, prompt_tokens, new_tokens, timed, warmups, arms, batches, max_seconds } =
        Flags::of(values)?;
    let (case, text) = (Case { prompt_tokens, new_tokens }, prompt.as_deref());
    let runs = Runs { timed, warmups };
    require(case.new_tokens >= 2, || "`--new-tokens` is 1, but the first token belongs to prefill".into())?;
    require(arms.contains(&true) || batches.iter().all(|&batch| batch == 1), || {
        "`--kv-cache off` with a `--batch` above 1, but a batch decodes with the cache only".into()
    })?;
    within_batch("batch", &batches)?;
    let budget = Budget::new(bench, max_seconds);
    for &threads in &bench.threads {
        let setup = Setup { together: true, ..Setup::new(threads) };
        let trials = Trials::load(bench, model, setup, runs, case.new_tokens)?;
        let prompts = Prompts::new(&trials.engine, text)?;
        let case = Case { prompt_tokens: prompts.length(case.prompt_tokens), ..case };
        within_context(case.prompt_tokens.saturating_add(case.new_tokens), trials.info())?;
        for &batch in &batches {
            let prompted = |rows: Vec<Row>| rows.into_iter().map(|row| row.prompted(text)).collect();
            if batch == 1 {
                let rows = single_rows(&trials, case, &prompts, arms, &budget)?;
                if !rows.is_empty() {
                    bench.done(&format!("{threads} threads, one sequence"), prompted(rows))?;
                }
                continue;
            }
            let name = format!("{threads} threads, batch {batch}");
            trials.bench.fits_batch(
                batch,
                case.prompt_tokens.saturating_add(case.new_tokens),
                trials.info(),
            )?;
            if budget.fits(&name, runs, || batch_estimate(&trials, case, &prompts, batch))? {
                bench.done(&name, prompted(vec![batch_row(&trials, case, &prompts, batch)?]))?;
            }
        }
    }
    budget.refuse_nothing()
}

/// An estimate of the seconds of a run: its prefill, and as many steps as it has later tokens, from a run with one such step.
fn extrapolated(case: Case, short: &Together) -> f64 {
    short.prefill_s + short.decode_s * (case.new_tokens - 1) as f64
}

/// An estimate of the seconds of a run of a single sequence. Without KV cache, each token takes a pass of the mean length.
fn estimate(trials: &Trials<'_>, case: Case, prompts: &Prompts, kv_cache: bool) -> Result<f64> {
    let run =
        |tokens, new| run_alone(&trials.engine, &prompts.ids(tokens, 0, trials.info().vocab), new, true);
    if kv_cache {
        return Ok(extrapolated(case, &run(case.prompt_tokens, 2)?));
    }
    Ok(run(case.mean_length(), 1)?.prefill_s * case.new_tokens as f64)
}

/// An estimate of the seconds of a run of several sequences.
fn batch_estimate(trials: &Trials<'_>, case: Case, prompts: &Prompts, batch: usize) -> Result<f64> {
    let prompts = prompts.batch(batch, case.prompt_tokens, trials.info().vocab);
    Ok(extrapolated(case, &continue_together(&trials.engine, prompts, 2)?))
}

/// The rows of a single sequence with one number of threads.
fn single_rows(
    trials: &Trials<'_>,
    case: Case,
    prompts: &Prompts,
    arms: &[bool],
    budget: &Budget<'_>,
) -> Result<Vec<Row>> {
    let (info, engine) = (trials.info(), &trials.engine);
    let prompt = prompts.ids(case.prompt_tokens, 0, info.vocab);
    let mut rows = Vec::new();
    let mut expected: Option<Vec<u32>> = None;
    for &kv_cache in arms {
        let cache = if kv_cache { "with" } else { "without" };
        let name = format!("{} threads, one sequence {cache} KV cache", info.threads);
        if !budget.fits(&name, trials.runs, || estimate(trials, case, prompts, kv_cache))? {
            continue;
        }
        let (warmup, runs) = trials.run(|| run_alone(engine, &prompt, case.new_tokens, kv_cache))?;
        let first = expected.get_or_insert_with(|| runs[0].value.token_ids[0].clone());
        for other in runs.iter().map(|run| &run.value.token_ids[0]) {
            verify(first == other, || format!("greedy ids differ between trials: {first:?} and {other:?}"))?;
        }
        if rows.is_empty() {
            rows.push(rows::prefill(info, case, &runs)?.warmed(warmup));
        }
        if kv_cache {
            rows.push(rows::decode(info, case, &runs)?.warmed(warmup));
        } else {
            let forward = forward_rate(trials, case, prompts)?;
            rows.push(rows::recompute(info, case, &runs, forward)?.warmed(warmup));
        }
    }
    let rate = |row: &Row| row.samples_of("tokens_per_s")?.median();
    let rates: Vec<f64> = rows.iter().filter_map(rate).collect();
    if let ([on, off], Some(last)) = (&rates[..], rows.last_mut()) {
        let speedup = Samples::new("x", Direction::Info, vec![on / off])?;
        last.metrics.insert("kv_cache_speedup".to_owned(), speedup);
    }
    Ok(rows)
}

/// Runs a single sequence.
fn run_alone(engine: &Engine, prompt: &[i64], new: usize, kv_cache: bool) -> Result<Together> {
    let request = GenerateRequest { kv_cache, ..continuation(prompt.to_vec(), new) };
    Ok(Together::of(vec![generate(engine, request)?]))
}

/// Tokens per second of one forward pass with the mean length of the passes in the arm without cache.
fn forward_rate(trials: &Trials<'_>, case: Case, prompts: &Prompts) -> Result<f64> {
    let length = case.mean_length();
    let prompt = prompts.ids(length, 0, trials.info().vocab);
    let rate = |_| Ok(length as f64 / run_alone(&trials.engine, &prompt, 1, true)?.prefill_s);
    let mut rates = (0..=trials.runs.timed).map(rate).collect::<Result<Vec<f64>>>()?;
    Ok(Samples::new("tokens/s", Direction::Higher, rates.split_off(1))?.median().unwrap_or(f64::NAN))
}

/// The row of several sequences that decode together. Their prompts begin differently.
fn batch_row(trials: &Trials<'_>, case: Case, prompts: &Prompts, batch: usize) -> Result<Row> {
    let (info, engine) = (trials.info(), &trials.engine);
    let all = prompts.batch(batch, case.prompt_tokens, info.vocab);
    let run_together = || continue_together(engine, all.clone(), case.new_tokens);
    let first = run_together()?;
    for index in [0, batch - 1] {
        let prompt = prompts.ids(case.prompt_tokens, index, info.vocab);
        let alone = run_alone(engine, &prompt, case.new_tokens, true)?;
        same(index, &alone.token_ids[0], &first.token_ids[index])?;
    }
    let (warmup, runs) = trials.run(run_together)?;
    for run in &runs {
        for (index, ids) in run.value.token_ids.iter().enumerate() {
            same(index, &first.token_ids[index], ids)?;
        }
    }
    Ok(rows::decode_batch(info, case, batch, &runs)?.warmed(warmup))
}

fn same(index: usize, expected: &[u32], in_batch: &[u32]) -> Result<()> {
    verify(expected == in_batch, || {
        format!(
            "greedy ids of sequence {index} differ: {expected:?} alone or before, {in_batch:?} in a batch"
        )
    })
}
