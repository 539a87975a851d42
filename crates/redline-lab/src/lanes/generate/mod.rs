//! Lane `generate`: the gain from the KV cache, how close prefill and decode come to the machine's limits, and the gain from
//! decoding several sequences together.
//!
//! Warm-up is at least as long as the test and in the same configuration. Every trial runs between two readings of its limit.
//! Greedy, end-of-sequence ignored, so that every trial does the same work; the ids of both arms must agree. Shares and
//! quotients follow from other metrics or from the limits, so they are reported but not judged.

mod batched;

use redline_engine::{Cancel, Engine, GenerateOutcome, GenerateRequest, ModelInfo, Prompt, Ticket};
use redline_kernels::Simd;

use super::{Lane, MetricSpec, Run, all_threads, higher, info, lower};
use crate::bench::{Bench, Flag, LaneError, Model, Setup, Values, asked, within_batch, within_context};
use crate::digest;
use crate::limits::Probe;
use crate::result::{Cell, Column};
use crate::roofline::{Arithmetics, Held, Work, placed};
use crate::warmup::Warmup;
use crate::{Direction, Row, Samples};

/// The `generate` lane.
pub const LANE: Lane = Lane {
    name: "generate",
    asks: "How fast are prefill and decode, how near the machine's limits, and what is the KV cache worth?",
    checks: "greedy ids agree between all runs, with and without KV cache, alone and in a batch",
    against: "an arm without KV cache, and the machine's read bandwidth and arithmetic peak, read around every run",
    metrics: METRICS,
    threshold: 0.05,
    flags: &[
        Flag { name: "prompt-tokens", value: "N", default: "64", help: "Tokens of the prompt" },
        Flag { name: "new-tokens", value: "N", default: "256", help: "Tokens to generate" },
        Flag::runs("5"),
        Flag::warmups("1"),
        Flag {
            name: "kv-cache",
            value: "WHICH",
            default: "both",
            help: "Arms to run at batch 1: on, off or both",
        },
        Flag {
            name: "batch",
            value: "N,..",
            default: "1",
            help: "Sequences that decode together, one pass per token for all of them; with the KV cache",
        },
    ],
    smoke: &[("prompt-tokens", "5"), ("new-tokens", "3"), ("num-runs", "2"), ("batch", "1,3")],
    standard: &[("new-tokens", "64"), ("num-runs", "5"), ("batch", "1,4")],
    threads: all_threads,
    columns: Some(COLUMNS),
    shown: None,
    note: None,
    styles: &[],
    baseline: None,
    run: Run::Model(run),
};

const METRICS: &[MetricSpec] = &[
    higher("prefill_tokens_per_s", "tokens/s"),
    higher("decode_tokens_per_s", "tokens/s"),
    higher("tokens_per_s", "tokens/s"),
    higher("recomputed_tokens_per_s", "tokens/s"),
    lower("prefill_s", "s"),
    lower("decode_s", "s"),
    lower("peak_memory", "bytes"),
    info("kv_cache_speedup", "x"),
    info("share_of_forward", "share"),
    info("share", "share"),
    info("limit", ""),
];

/// The columns of the seeds' generation benchmarks: rates, mean and deviation, range, time per token, memory.
const COLUMNS: &[Column] = &[
    Column { name: "case", cell: Cell::Case },
    Column { name: "batch_size", cell: Cell::Param("batch") },
    Column::param("prompt_tokens"),
    Column::param("new_tokens"),
    Column::param("kv_cache"),
    Column { name: "num_runs", cell: Cell::Samples("share") },
    Column::median("prefill_tokens_per_s"),
    Column::median("decode_tokens_per_s"),
    Column::median("tokens_per_s"),
    Column { name: "tokens_per_s_mean", cell: Cell::Metric("tokens_per_s", Samples::mean, 1.0) },
    Column { name: "tokens_per_s_std", cell: Cell::Metric("tokens_per_s", Samples::std, 1.0) },
    Column { name: "tokens_per_s_min", cell: Cell::Metric("tokens_per_s", Samples::min, 1.0) },
    Column { name: "tokens_per_s_max", cell: Cell::Metric("tokens_per_s", Samples::max, 1.0) },
    Column {
        name: "ms_per_token",
        cell: Cell::Metric("tokens_per_s", |s| s.median().map(|rate| 1e3 / rate), 1.0),
    },
    Column::median("kv_cache_speedup"),
    Column { name: "peak_memory_mb", cell: Cell::Metric("peak_memory", Samples::max, 1e-6) },
    Column::param("threads"),
    Column::param("format"),
    Column::LIMIT,
    Column::SHARE_OF_LIMIT,
    Column::KERNEL_PATH,
];

struct Case {
    prompt: Vec<i64>,
    new_tokens: usize,
    runs: usize,
    warmups: usize,
}

/// One run between two readings of its limits.
type Trial = Held<GenerateOutcome>;

fn run(bench: &Bench<'_>, model: &Model<'_>, values: &Values) -> Result<(), LaneError> {
    let arms: &[bool] = match values.choice("kv-cache", &["on", "off", "both"])? {
        "on" => &[true],
        "off" => &[false],
        _ => &[true, false],
    };
    let (prompt_tokens, new_tokens) = (values.count("prompt-tokens")?, values.count("new-tokens")?);
    let (runs, warmups) = (values.count("num-runs")?, values.count("warmup-runs")?);
    if new_tokens < 2 {
        return Err(LaneError::Usage("`--new-tokens` is 1, but the first token belongs to prefill".into()));
    }
    let batches = values.counts("batch")?;
    if !arms.contains(&true) && batches.iter().any(|&batch| batch > 1) {
        let fact = "`--kv-cache off` with a `--batch` above 1, but a batch decodes with the cache only";
        return Err(LaneError::Usage(fact.into()));
    }
    within_batch(&batches)?;
    for &threads in &bench.threads {
        let engine = (model.load)(Setup::new(threads))?;
        let info = engine.info();
        within_context(prompt_tokens.saturating_add(new_tokens), info)?;
        let simd = Simd::new(info.tier).unwrap_or_else(|_| Simd::best());
        let probe = Probe::new(info.threads, simd, info.bytes_per_token as usize)?;
        let case = Case { prompt: asked::ids(prompt_tokens, 0, info.vocab), new_tokens, runs, warmups };
        for &batch in &batches {
            if batch == 1 {
                let rows = single_rows(bench, &engine, &probe, &case, arms)?;
                bench.done(&format!("{threads} threads, one sequence"), rows)?;
            } else {
                let row = batched::row(bench, &engine, &probe, &case, batch)?;
                bench.done(&format!("{threads} threads, batch {batch}"), vec![row])?;
            }
        }
    }
    Ok(())
}

/// The rows of a single sequence with one number of threads.
fn single_rows(
    bench: &Bench<'_>,
    engine: &Engine,
    probe: &Probe,
    case: &Case,
    arms: &[bool],
) -> Result<Vec<Row>, LaneError> {
    let info = engine.info();
    let mut rows = Vec::new();
    let mut ids: Option<Vec<u32>> = None;
    let mut rates = Vec::new();
    for &kv_cache in arms {
        let (trials, warmup) = trials(bench, engine, probe, case, kv_cache)?;
        let first = ids.get_or_insert_with(|| trials[0].value.token_ids.clone());
        if let Some(other) = trials.iter().find(|t| t.value.token_ids != *first) {
            let fact =
                format!("greedy ids differ between trials: {:?} and {:?}", first, other.value.token_ids);
            return Err(LaneError::Incorrect(fact));
        }
        let total = |t: &Trial| case.new_tokens as f64 / (t.value.prefill_s + t.value.decode_s);
        rates.push(samples("tokens/s", Direction::Higher, &trials, total)?);
        if kv_cache {
            rows.push(prefill_row(info, case, &trials)?.warmed(warmup));
            rows.push(decode_row(info, case, &trials)?.warmed(warmup));
        } else {
            let forward = forward_rate(engine, case)?;
            rows.push(recompute_row(info, case, &trials, forward)?.warmed(warmup));
        }
    }
    if let [on, off] = &rates[..]
        && let (Some(on), Some(off)) = (on.median(), off.median())
        && let Some(row) = rows.pop()
    {
        let speedup = Samples::new("x", Direction::Info, vec![on / off])?;
        rows.push(row.metric("kv_cache_speedup", speedup));
    }
    Ok(rows)
}

fn trials(
    bench: &Bench<'_>,
    engine: &Engine,
    probe: &Probe,
    case: &Case,
    kv_cache: bool,
) -> Result<(Vec<Trial>, Warmup), LaneError> {
    let run = || generate(engine, &case.prompt, case.new_tokens, kv_cache);
    let warmup = bench.warm_up(case.warmups, || engine.plan_counters().misses, |_| run().map(|_| ()))?;
    let trials = probe.hold(case.runs, Arithmetics::of(engine.info()), bench.clock, |_| run())?;
    Ok((trials, warmup))
}

fn generate(
    engine: &Engine,
    prompt: &[i64],
    new: usize,
    kv_cache: bool,
) -> Result<GenerateOutcome, LaneError> {
    let request = GenerateRequest {
        ignore_eos: true,
        kv_cache,
        ..GenerateRequest::new(Prompt::Ids(prompt.to_vec()), new)
    };
    Ok(engine.submit_generate(request, &Cancel::new()).and_then(Ticket::wait)?)
}

/// Seconds per token of one forward pass with the mean length of the passes in the arm without cache.
fn forward_rate(engine: &Engine, case: &Case) -> Result<f64, LaneError> {
    let length = case.prompt.len() + case.new_tokens / 2;
    let vocab = engine.info().vocab;
    let prompt = asked::ids(length, 0, vocab);
    let mut rates = Vec::new();
    for _ in 0..=case.runs {
        let outcome = generate(engine, &prompt, 1, true)?;
        rates.push(length as f64 / outcome.prefill_s);
    }
    Ok(Samples::new("tokens/s", Direction::Higher, rates.split_off(1))?.median().unwrap_or(f64::NAN))
}

fn samples<T>(
    unit: &str,
    direction: Direction,
    trials: &[T],
    value: impl Fn(&T) -> f64,
) -> Result<Samples, LaneError> {
    Ok(Samples::new(unit, direction, trials.iter().map(value).collect())?)
}

fn single(name: &str, info: &ModelInfo, case: &Case, trials: &[Trial]) -> Row {
    let digest = trials.first().map(|t| digest::of_ids(&t.value.token_ids));
    let conditions = trials.iter().map(|t| t.condition).collect();
    Row { digest, ..base(name, info, case) }.conditions(conditions)
}

fn base(name: &str, info: &ModelInfo, case: &Case) -> Row {
    let mut row = Row::new(format!("{name}/t{}", info.threads))
        .param("model", info.name.clone())
        .param("threads", info.threads)
        .param("format", info.format.to_string())
        .param("kv_format", info.kv_format.name())
        .param("prompt_tokens", case.prompt.len())
        .param("new_tokens", case.new_tokens);
    row.kernel_path = Some(info.kernel_path.clone());
    row.checked = true;
    row
}

fn prefill_row(info: &ModelInfo, case: &Case, trials: &[Trial]) -> Result<Row, LaneError> {
    let n = case.prompt.len();
    let rate = samples("tokens/s", Direction::Higher, trials, |t| n as f64 / t.value.prefill_s)?;
    let share = samples("share", Direction::Info, trials, |t| {
        t.limits.computing(Work::of_sequence(info, n)) / t.value.prefill_s
    })?;
    let peak = samples("GOP/s", Direction::Info, trials, |t| t.limits.peak * 1e-9)?;
    let row = single("prefill", info, case, trials)
        .limit(format!("{}_peak", info.format.arithmetic().name()), share.median())
        .metric("prefill_tokens_per_s", rate)
        .metric("share", share)
        .metric("limit", peak);
    Ok(placed(row, info.format.arithmetic(), Work::of_sequence(info, n), &timed(trials, |t| t.prefill_s))?)
}

/// The seconds of one phase of every run.
fn timed(trials: &[Trial], seconds: impl Fn(&GenerateOutcome) -> f64) -> Vec<Held<f64>> {
    trials.iter().map(|t| t.with(seconds(&t.value))).collect()
}

fn decode_row(info: &ModelInfo, case: &Case, trials: &[Trial]) -> Result<Row, LaneError> {
    let rate = |t: &Trial| t.value.decode_tokens_per_s.unwrap_or(0.0);
    // Keys and values of a position: two vectors per layer of the KV width, read once per later token.
    let mean_context = case.prompt.len() as f64 + (case.new_tokens as f64 - 1.0) / 2.0;
    let bytes = info.bytes_per_token as f64 + info.kv_bytes_per_token as f64 * mean_context;
    let share = samples("share", Direction::Info, trials, |t| rate(t) * bytes / t.limits.bandwidth)?;
    let memory: Vec<f64> =
        trials.iter().filter_map(|t| t.value.peak_memory_bytes).map(|b| b as f64).collect();
    let total = |t: &Trial| case.new_tokens as f64 / (t.value.prefill_s + t.value.decode_s);
    let row = single("decode", info, case, trials)
        .param("kv_cache", true)
        .limit("read_bandwidth", share.median())
        .metric("decode_tokens_per_s", samples("tokens/s", Direction::Higher, trials, rate)?)
        .metric("tokens_per_s", samples("tokens/s", Direction::Higher, trials, total)?)
        .metric("prefill_s", samples("s", Direction::Lower, trials, |t| t.value.prefill_s)?)
        .metric("decode_s", samples("s", Direction::Lower, trials, |t| t.value.decode_s)?)
        .metric("share", share)
        .metric("limit", samples("GB/s", Direction::Info, trials, |t| t.limits.bandwidth * 1e-9)?)
        .metric("peak_memory", Samples::new("bytes", Direction::Lower, memory)?);
    let work = batched::work(info, case, 1);
    Ok(placed(row, info.format.arithmetic(), work, &timed(trials, |t| t.decode_s))?)
}

fn recompute_row(info: &ModelInfo, case: &Case, trials: &[Trial], forward: f64) -> Result<Row, LaneError> {
    let lengths = case.prompt.len()..case.prompt.len() + case.new_tokens;
    let tokens: usize = lengths.clone().sum();
    let seconds = |t: &Trial| t.value.prefill_s + t.value.decode_s;
    let recomputed = |t: &Trial| tokens as f64 / seconds(t);
    let memory: Vec<f64> =
        trials.iter().filter_map(|t| t.value.peak_memory_bytes).map(|b| b as f64).collect();
    let share = samples("share", Direction::Info, trials, |t| {
        let least = |n| t.limits.computing(Work::of_sequence(info, n));
        lengths.clone().map(least).sum::<f64>() / seconds(t)
    })?;
    let row = single("decode-recompute", info, case, trials)
        .param("kv_cache", false)
        .limit(format!("{}_peak", info.format.arithmetic().name()), share.median())
        .metric(
            "tokens_per_s",
            samples("tokens/s", Direction::Higher, trials, |t| case.new_tokens as f64 / seconds(t))?,
        )
        .metric("recomputed_tokens_per_s", samples("tokens/s", Direction::Higher, trials, recomputed)?)
        .metric("share_of_forward", samples("share", Direction::Info, trials, |t| recomputed(t) / forward)?)
        .metric("share", share)
        .metric("limit", samples("GOP/s", Direction::Info, trials, |t| t.limits.peak * 1e-9)?)
        .metric("peak_memory", Samples::new("bytes", Direction::Lower, memory)?);
    let passes = lengths.clone().map(|n| Work::of_sequence(info, n));
    let work = passes.fold(Work::default(), |sum, pass| Work {
        bytes: sum.bytes + pass.bytes,
        operations: sum.operations + pass.operations,
        attention: sum.attention + pass.attention,
    });
    Ok(placed(row, info.format.arithmetic(), work, &timed(trials, |t| t.prefill_s + t.decode_s))?)
}
