//! Lane `mixed`: how much arriving prompts slow down running generations, and how much is gained by running both together.
//!
//! A trial runs three things in turn, each between two readings of the machine's limits: the streams alone, the prompts
//! alone (each is submitted when the previous one was answered, and continued by one token), and both together. Streams
//! decode from ids that begin differently, end-of-sequence ignored, without a prefix cache. Before timing, and in every
//! trial, streams and prompts must give the same ids together as apart.
//!
//! In the combined run, the first prompt arrives when a request of one token, submitted after the streams, was answered:
//! by then the streams are normally decoding, but the metrics do not rely on it. A gap is the time between neighbouring
//! tokens of a stream. Only gaps after every stream had its first token count. In the combined run, only those between the
//! arrival of a prompt and its token count, by the engine's own times. If the streams ended too soon, a trial has no such
//! gap and reports none. Percentiles are over the gaps of all streams of a trial; quotients and shares follow from other
//! metrics.

mod gaps;

use redline_engine::{
    Cancel, Engine, GenerateOutcome, GenerateRequest, MAX_BATCH, ModelInfo, Prompt, Ticket,
};
use redline_kernels::Simd;

use super::{Lane, MetricSpec, Run, all_threads, higher, info, lower};
use crate::bench::{Bench, Flag, LaneError, Model, Setup, Values, asked, within_context};
use crate::digest;
use crate::limits::Probe;
use crate::result::{Cell, Column};
use crate::roofline::{Arithmetics, Held, Work, held, keys_seen};
use crate::{Direction, Row, Samples};
use gaps::Gaps;

/// The `mixed` lane.
pub const LANE: Lane = Lane {
    name: "mixed",
    asks: "What do prompts that arrive cost those who generate?",
    checks: "streams and prompts together give the ids that they give apart, in every run",
    against: "the streams alone and the prompts alone, in turn with both together",
    metrics: METRICS,
    threshold: 0.10,
    flags: &[
        Flag { name: "streams", value: "N", default: "8", help: "Sequences that decode together" },
        Flag {
            name: "stream-prompt-tokens",
            value: "N",
            default: "64",
            help: "Tokens each of them begins with",
        },
        Flag { name: "new-tokens", value: "N", default: "64", help: "Tokens to generate for each of them" },
        Flag { name: "prompts", value: "N", default: "2", help: "Prompts that arrive, one after the other" },
        Flag {
            name: "prompt-tokens",
            value: "N",
            default: "auto",
            help: "Tokens of each prompt; auto: 2000, or as many as the context holds",
        },
        Flag::runs("3"),
        Flag::warmups("1"),
    ],
    smoke: &[
        ("streams", "2"),
        ("stream-prompt-tokens", "4"),
        ("new-tokens", "6"),
        ("prompts", "1"),
        ("prompt-tokens", "40"),
        ("num-runs", "2"),
    ],
    standard: &[("streams", "4"), ("new-tokens", "32")],
    threads: all_threads,
    columns: Some(COLUMNS),
    shown: None,
    note: None,
    styles: &[],
    baseline: None,
    run: Run::Model(run),
};

const METRICS: &[MetricSpec] = &[
    lower("quiet_gap_p50", "ms"),
    lower("quiet_gap_p95", "ms"),
    lower("mixed_gap_p50", "ms"),
    lower("mixed_gap_p95", "ms"),
    info("gap_ratio", "x"),
    info("gap_mean_ratio", "x"),
    info("mixed_gaps", "gaps"),
    higher("total_tokens_per_s", "tokens/s"),
    info("share_of_separate", "share"),
    info("streams_s", "s"),
    info("prompts_s", "s"),
    info("together_s", "s"),
    info("share", "share"),
    info("limit", ""),
];

const fn median(name: &'static str, metric: &'static str) -> Column {
    Column { name, cell: Cell::Metric(metric, Samples::median, 1.0) }
}

/// One line per number of threads.
const COLUMNS: &[Column] = &[
    Column::param("streams"),
    Column::param("stream_prompt_tokens"),
    Column::param("new_tokens"),
    Column::param("prompts"),
    Column::param("prompt_tokens"),
    Column { name: "num_trials", cell: Cell::Samples("total_tokens_per_s") },
    median("quiet_gap_p50_ms", "quiet_gap_p50"),
    median("quiet_gap_p95_ms", "quiet_gap_p95"),
    median("mixed_gap_p50_ms", "mixed_gap_p50"),
    median("mixed_gap_p95_ms", "mixed_gap_p95"),
    median("gap_ratio", "gap_ratio"),
    median("gap_mean_ratio", "gap_mean_ratio"),
    median("mixed_gaps", "mixed_gaps"),
    median("total_tokens_per_s", "total_tokens_per_s"),
    median("share_of_separate", "share_of_separate"),
    Column::param("threads"),
    Column::param("format"),
    Column::LIMIT,
    Column::SHARE_OF_LIMIT,
    Column::KERNEL_PATH,
];

/// Default number of tokens of a prompt.
const PROMPT_TOKENS: usize = 2000;

/// The streams and prompts.
#[derive(Clone, Copy, Debug)]
struct Case {
    streams: usize,
    stream_prompt_tokens: usize,
    new_tokens: usize,
    prompts: usize,
    prompt_tokens: usize,
    runs: usize,
    warmups: usize,
}

/// What runs in each turn: streams, prompts.
const TURNS: [(bool, bool); 3] = [(true, false), (false, true), (true, true)];

/// The answers of one turn.
#[derive(Debug)]
struct Ran {
    streams: Vec<GenerateOutcome>,
    prompts: Vec<GenerateOutcome>,
    /// Seconds until the last answer.
    seconds: f64,
}

/// The result of a trial.
#[derive(Debug)]
struct Trial {
    quiet: Gaps,
    mixed: Gaps,
    /// Seconds of the streams alone and of the prompts alone.
    apart_s: [f64; 2],
    together_s: Held<f64>,
}

fn run(bench: &Bench<'_>, model: &Model<'_>, values: &Values) -> Result<(), LaneError> {
    let asked = values.count_or_auto("prompt-tokens")?;
    let case = Case {
        streams: values.count("streams")?,
        stream_prompt_tokens: values.count("stream-prompt-tokens")?,
        new_tokens: values.count("new-tokens")?,
        prompts: values.count("prompts")?,
        prompt_tokens: asked.unwrap_or(PROMPT_TOKENS),
        runs: values.count("num-runs")?,
        warmups: values.count("warmup-runs")?,
    };
    if case.new_tokens < 2 {
        return Err(LaneError::Usage("`--new-tokens` is 1, but a gap lies between two tokens".into()));
    }
    if case.streams > MAX_BATCH {
        let fact = format!("`--streams` is {}, but at most {MAX_BATCH} decode together", case.streams);
        return Err(LaneError::Usage(fact));
    }
    for &threads in &bench.threads {
        let engine = (model.load)(Setup::new(threads))?;
        let longest = engine.info().context.saturating_sub(1).max(1);
        let prompt_tokens = asked.unwrap_or_else(|| PROMPT_TOKENS.min(longest));
        let case = Case { prompt_tokens, ..case };
        fits(bench, engine.info(), case)?;
        let row = row(bench, &engine, case)?;
        let what = format!("{threads} threads, {} streams, {} prompts", case.streams, case.prompts);
        bench.done(&what, vec![row])?;
    }
    Ok(())
}

/// Returns an error if a request exceeds the context or the free memory.
fn fits(bench: &Bench<'_>, info: &ModelInfo, case: Case) -> Result<(), LaneError> {
    let stream = case.stream_prompt_tokens.saturating_add(case.new_tokens);
    let prompt = case.prompt_tokens.saturating_add(1);
    within_context(stream.max(prompt), info)?;
    let tokens = case.streams as f64 * stream as f64 + prompt as f64;
    let what = format!("the keys and values of {} streams of {stream} tokens and a prompt", case.streams);
    bench.fits(&what, tokens * info.kv_bytes_per_token as f64)
}

fn row(bench: &Bench<'_>, engine: &Engine, case: Case) -> Result<Row, LaneError> {
    let info = engine.info();
    let simd = Simd::new(info.tier).unwrap_or_else(|_| Simd::best());
    let probe = Probe::new(info.threads, simd, info.bytes_per_token as usize)?;
    let quiet = together(bench, engine, case, TURNS[0])?;
    let alone = together(bench, engine, case, TURNS[1])?;
    let turn = |turn| {
        let ran = together(bench, engine, case, turn)?;
        same("stream", &quiet.streams, &ran.streams)?;
        same("prompt", &alone.prompts, &ran.prompts)?;
        Ok::<_, LaneError>(ran)
    };
    let misses = || engine.plan_counters().misses;
    let warmup = bench.warm_up(case.warmups, misses, |_| turn(TURNS[2]).map(|_| ()))?;
    let n = case.runs.saturating_mul(TURNS.len());
    let ran = probe.hold(n, Arithmetics::of(info), bench.clock, |i| turn(TURNS[i % TURNS.len()]))?;
    let trials: Vec<Trial> = ran.chunks_exact(TURNS.len()).map(trial).collect();
    let ids: Vec<u32> =
        quiet.streams.iter().chain(&alone.prompts).flat_map(|o| o.token_ids.iter().copied()).collect();
    Ok(told(info, case, &trials, digest::of_ids(&ids))?.warmed(warmup))
}

/// Submits the streams, waits for them to begin, runs the prompts one after the other, then waits for the streams.
fn together(
    bench: &Bench<'_>,
    engine: &Engine,
    case: Case,
    (streams, prompts): (bool, bool),
) -> Result<Ran, LaneError> {
    let count = |there: bool, n: usize| if there { n } else { 0 };
    let vocab = engine.info().vocab;
    let request = |index: usize, tokens: usize, new: usize| GenerateRequest {
        ignore_eos: true,
        ..GenerateRequest::new(Prompt::Ids(asked::ids(tokens, index, vocab)), new)
    };
    let (cancel, begin) = (Cancel::new(), bench.clock.now_ns());
    let tickets = (0..count(streams, case.streams))
        .map(|index| request(index, case.stream_prompt_tokens, case.new_tokens))
        .map(|request| engine.submit_generate(request, &cancel))
        .collect::<Result<Vec<_>, _>>()?;
    if streams && prompts {
        engine.submit_generate(request(case.streams, 1, 1), &cancel).and_then(Ticket::wait)?;
    }
    let prompts = (0..count(prompts, case.prompts))
        .map(|index| request(case.streams + index, case.prompt_tokens, 1))
        .map(|request| engine.submit_generate(request, &cancel).and_then(Ticket::wait))
        .collect::<Result<Vec<_>, _>>()?;
    let streams = tickets.into_iter().map(Ticket::wait).collect::<Result<Vec<_>, _>>()?;
    Ok(Ran { streams, prompts, seconds: bench.clock.elapsed_s(begin) })
}

/// Checks that the ids are the same together as apart. An empty list was not run and is not checked.
fn same(what: &str, apart: &[GenerateOutcome], now: &[GenerateOutcome]) -> Result<(), LaneError> {
    for (index, (apart, now)) in apart.iter().zip(now).enumerate() {
        let (apart, now) = (&apart.token_ids, &now.token_ids);
        if apart != now {
            let fact = format!("greedy ids of {what} {index} differ: {apart:?} apart, {now:?} later");
            return Err(LaneError::Incorrect(fact));
        }
    }
    Ok(())
}

/// Evaluates the turns of a trial.
fn trial(turns: &[Held<Ran>]) -> Trial {
    let [quiet, alone, both] = [0, 1, 2].map(|turn| &turns[turn].value);
    Trial {
        quiet: Gaps::all(&times(&quiet.streams)),
        mixed: Gaps::within(&spans(&both.prompts), &times(&both.streams)),
        apart_s: [quiet.seconds, alone.seconds],
        together_s: turns[2].with(both.seconds),
    }
}

/// The times at which the tokens of each stream were chosen, in seconds of the engine's clock.
fn times(streams: &[GenerateOutcome]) -> Vec<Vec<f64>> {
    streams.iter().map(|one| one.token_s.iter().map(|s| one.arrived_s + s).collect()).collect()
}

/// The span of each prompt, from its arrival to its token.
fn spans(prompts: &[GenerateOutcome]) -> Vec<(f64, f64)> {
    prompts.iter().map(|one| (one.arrived_s, one.arrived_s + one.prefill_s)).collect()
}

/// Tokens of streams and prompts, both read and new.
fn tokens(case: Case) -> f64 {
    let stream = case.stream_prompt_tokens as f64 + case.new_tokens as f64;
    case.streams as f64 * stream + case.prompts as f64 * (case.prompt_tokens as f64 + 1.0)
}

/// The minimum work of streams and prompts: compute every token except the last of each, and read the weights for every token of
/// a stream, and from its second token on also the stream's stored keys and values.
fn work(info: &ModelInfo, case: Case) -> Work {
    let (streams, prompts, new) = (case.streams as f64, case.prompts as f64, case.new_tokens as f64);
    let run = case.stream_prompt_tokens + case.new_tokens - 1;
    let keys = streams * keys_seen(0, run) + prompts * keys_seen(0, case.prompt_tokens);
    let rows = streams * run as f64 + prompts * case.prompt_tokens as f64;
    let pass = Work::of_pass(info, rows, keys, streams * new + prompts);
    let stored = (new - 1.0) * (case.stream_prompt_tokens as f64 + (new - 2.0) / 2.0);
    Work { bytes: new * pass.bytes + streams * stored * info.kv_bytes_per_token as f64, ..pass }
}

fn told(info: &ModelInfo, case: Case, trials: &[Trial], digest: String) -> Result<Row, LaneError> {
    let of = |unit: &str, direction, value: &dyn Fn(&Trial) -> Option<f64>| {
        Samples::new(unit, direction, trials.iter().filter_map(value).collect())
    };
    let ms = |gaps: fn(&Trial) -> &Gaps, percent| {
        of("ms", Direction::Lower, &move |t| gaps(t).percentile(percent))
    };
    let ratio = |value: fn(&Gaps) -> Option<f64>| {
        let quotient = move |t: &Trial| Some(value(&t.mixed)? / value(&t.quiet)?);
        of("x", Direction::Info, &move |t| quotient(t).filter(|ratio| ratio.is_finite()))
    };
    let seconds = |value: fn(&Trial) -> f64| of("s", Direction::Info, &move |t| Some(value(t)));
    let rate = |t: &Trial| Some(tokens(case) / t.together_s.value);
    let share = |t: &Trial| Some(t.apart_s.iter().sum::<f64>() / t.together_s.value);
    let name = format!("mixed/s{}/p{}/t{}", case.streams, case.prompt_tokens, info.threads);
    let mut row = Row::new(name)
        .param("model", info.name.clone())
        .param("threads", info.threads)
        .param("format", info.format.to_string())
        .param("kv_format", info.kv_format.name())
        .param("streams", case.streams)
        .param("stream_prompt_tokens", case.stream_prompt_tokens)
        .param("new_tokens", case.new_tokens)
        .param("prompts", case.prompts)
        .param("prompt_tokens", case.prompt_tokens)
        .digest(digest)
        .metric("quiet_gap_p50", ms(|t| &t.quiet, 50.0)?)
        .metric("quiet_gap_p95", ms(|t| &t.quiet, 95.0)?)
        .metric("mixed_gap_p50", ms(|t| &t.mixed, 50.0)?)
        .metric("mixed_gap_p95", ms(|t| &t.mixed, 95.0)?)
        .metric("gap_ratio", ratio(|gaps| gaps.percentile(95.0))?)
        .metric("gap_mean_ratio", ratio(Gaps::mean)?)
        .metric("mixed_gaps", of("gaps", Direction::Info, &|t| Some(t.mixed.n() as f64))?)
        .metric("total_tokens_per_s", of("tokens/s", Direction::Higher, &rate)?)
        .metric("share_of_separate", of("share", Direction::Info, &share)?)
        .metric("streams_s", seconds(|t| t.apart_s[0])?)
        .metric("prompts_s", seconds(|t| t.apart_s[1])?)
        .metric("together_s", seconds(|t| t.together_s.value)?);
    row.kernel_path = Some(info.kernel_path.clone());
    row.checked = true;
    let timed: Vec<Held<f64>> = trials.iter().map(|t| t.together_s).collect();
    Ok(held(row, info.format.arithmetic(), work(info, case), &timed)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::Condition;
    use crate::lanes::tests::info;
    use crate::roofline::Limits;

    const CASE: Case = Case {
        streams: 2,
        stream_prompt_tokens: 4,
        new_tokens: 3,
        prompts: 3,
        prompt_tokens: 5,
        runs: 1,
        warmups: 1,
    };
    const LIMITS: Limits = Limits { bandwidth: 1e4, peak: 1e3, attention_peak: 500.0 };

    #[test]
    fn work_reads_the_weights_for_every_token_of_a_stream() {
        let work = work(&info(), CASE);
        // Streams compute 6 of 7 tokens, with 4 and 5 stored ones for the last two; prompts compute 5.
        assert_eq!(work.bytes, 3.0 * 1000.0 + 2.0 * 8.0 * (4.0 + 5.0));
        assert_eq!(work.operations, (2.0 * 6.0 + 3.0 * 5.0) * 100.0 + (2.0 * 3.0 + 3.0) * 50.0);
        assert_eq!(work.attention, 3.0 * (2.0 * 21.0 + 3.0 * 15.0));
    }

    #[test]
    fn a_row_compares_both_together_with_each_apart() {
        let trial = |mixed: &[f64]| Trial {
            quiet: Gaps::of_ms(&[2.0, 2.0, 4.0]),
            mixed: Gaps::of_ms(mixed),
            apart_s: [3.0, 5.0],
            together_s: Held { value: 10.0, limits: LIMITS, condition: Condition::default() },
        };
        let row = told(&info(), CASE, &[trial(&[3.0, 6.0, 9.0]), trial(&[])], "d".into()).unwrap();
        let values = |name: &str| row.metrics.get(name).unwrap().samples().values().to_vec();
        assert_eq!((row.case.as_str(), row.checked), ("mixed/s2/p5/t1", true));
        assert_eq!((values("quiet_gap_p50"), values("mixed_gap_p50")), (vec![2.0; 2], vec![6.0]));
        assert!((values("quiet_gap_p95")[0] - 3.8).abs() < 1e-12);
        assert!((values("mixed_gap_p95")[0] - 8.7).abs() < 1e-12);
        assert!((values("gap_ratio")[0] - 8.7 / 3.8).abs() < 1e-12);
        assert!((values("gap_mean_ratio")[0] - 6.0 / (8.0 / 3.0)).abs() < 1e-12);
        // If no gap counts, none is reported.
        assert_eq!((values("gap_ratio").len(), values("mixed_gaps")), (1, vec![3.0, 0.0]));
        // 2 streams of 4 + 3 tokens, 3 prompts of 5 + 1.
        assert_eq!((values("total_tokens_per_s"), values("share_of_separate")), (vec![3.2; 2], vec![0.8; 2]));
    }
}
