//! Lane `mixed`: how much arriving prompts slow down running generations, and how much is gained by running both together.
//!
//! A trial runs three things in turn: the streams alone, the prompts alone (each is submitted when the previous one was
//! answered, and continued by one token), and both together. Streams decode from ids that begin differently, end-of-sequence
//! ignored, without a prefix cache.
//!
//! In the combined run, the first prompt arrives when a request of one token, submitted after the streams, was answered:
//! by then the streams are normally decoding, but the metrics do not rely on it. A gap is the time between neighbouring
//! tokens of a stream. Only gaps after every stream had its first token count. In the combined run, only those between the
//! arrival of a prompt and its token count, by the engine's own times. If the streams ended too soon, a trial has no such
//! gap and reports none. Percentiles are over the gaps of all streams of a trial; quotients and shares follow from other
//! metrics.

mod gaps;

use redline_engine::{Cancel, GenerateOutcome, ModelInfo, Ticket};

use super::prelude::*;
use crate::bench::requests::{continuation, generate, ids};
use crate::roofline::keys_seen;
use gaps::Gaps;

pub(super) const LANE: Lane = Lane {
    asks: "What do prompts that arrive cost those who generate?",
    checks: "streams and prompts together give the ids that they give apart, in every run",
    against: "the streams alone and the prompts alone, in turn with both together",
    metrics: &[
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
    ],
    flags: &[
        flag("streams", "N", "8").help("Sequences that decode together"),
        flag("stream-prompt-tokens", "N", "64").help("Tokens each of them begins with"),
        flag("new-tokens", "N", "64").help("Tokens to generate for each of them"),
        flag("prompts", "N", "2").help("Prompts that arrive, one after the other"),
        flag("prompt-tokens", "N", "auto")
            .help("Tokens of each prompt; auto: 2000, or as many as the context holds"),
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
    // One line per number of threads.
    columns: Some(&[
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
    ]),
    ..Lane::new("mixed", 0.10, LaneFunction::Model(run))
};

/// Default number of tokens of a prompt.
const PROMPT_TOKENS: usize = 2000;

#[derive(Clone, Copy, Debug)]
struct Case {
    streams: usize,
    stream_prompt_tokens: usize,
    new_tokens: usize,
    prompts: usize,
    prompt_tokens: usize,
}

/// What runs in each turn: streams, prompts.
const TURNS: [(bool, bool); 3] = [(true, false), (false, true), (true, true)];

#[derive(Debug)]
struct Answers {
    streams: Vec<GenerateOutcome>,
    prompts: Vec<GenerateOutcome>,
    /// Seconds until the last answer.
    seconds: f64,
}

#[derive(Debug)]
struct Trial {
    quiet: Gaps,
    mixed: Gaps,
    /// Seconds of the streams alone, of the prompts alone, and of both together.
    seconds: [f64; 3],
}

fn run(bench: &Bench<'_>, model: &BenchModel<'_>, values: &Values) -> Result<()> {
    let prompt_tokens = values.count_or_auto("prompt-tokens")?;
    let case = Case {
        streams: values.count("streams")?,
        stream_prompt_tokens: values.count("stream-prompt-tokens")?,
        new_tokens: values.count("new-tokens")?,
        prompts: values.count("prompts")?,
        prompt_tokens: prompt_tokens.unwrap_or(PROMPT_TOKENS),
    };
    let runs = values.runs()?;
    require(case.new_tokens >= 2, || "`--new-tokens` is 1, but a gap lies between two tokens".into())?;
    within_batch("streams", &[case.streams])?;
    for &threads in &bench.threads {
        let trials = Trials::load(bench, model, Setup::new(threads), runs, 1)?;
        let longest = trials.info().context.saturating_sub(1).max(1);
        let prompt_tokens = prompt_tokens.unwrap_or_else(|| PROMPT_TOKENS.min(longest));
        let case = Case { prompt_tokens, ..case };
        fits(bench, trials.info(), case)?;
        let row = checked_row(&trials, case)?;
        let what = format!("{threads} threads, {} streams, {} prompts", case.streams, case.prompts);
        bench.done(&what, vec![row])?;
    }
    Ok(())
}

/// Returns an error if a request exceeds the context or the free memory.
fn fits(bench: &Bench<'_>, info: &ModelInfo, case: Case) -> Result<()> {
    let stream = case.stream_prompt_tokens.saturating_add(case.new_tokens);
    let prompt = case.prompt_tokens.saturating_add(1);
    within_context(stream.max(prompt), info)?;
    let tokens = case.streams as f64 * stream as f64 + prompt as f64;
    let what = format!("the keys and values of {} streams of {stream} tokens and a prompt", case.streams);
    bench.fits(&what, tokens * info.kv_bytes_per_token as f64)
}

fn checked_row(trials: &Trials<'_>, case: Case) -> Result<Row> {
    let quiet = together(trials, case, TURNS[0])?;
    let alone = together(trials, case, TURNS[1])?;
    let turn = |turn| {
        let answers = together(trials, case, turn)?;
        same("stream", &quiet.streams, &answers.streams)?;
        same("prompt", &alone.prompts, &answers.prompts)?;
        Ok(answers)
    };
    let warmup = trials.warm_up(|_| turn(TURNS[2]).map(drop))?;
    let answers = trials.take(TURNS.len(), |i| turn(TURNS[i % TURNS.len()]))?;
    let results: Vec<Held<Trial>> = answers.chunks_exact(TURNS.len()).map(trial).collect();
    let ids: Vec<&[u32]> = quiet.streams.iter().chain(&alone.prompts).map(|o| &o.token_ids[..]).collect();
    Ok(row(trials.info(), case, &results)?.digest(digest::of_ids(&ids.concat())).warmed(warmup))
}

/// Submits the streams, waits for them to begin, runs the prompts one after the other, then waits for the streams.
fn together(trials: &Trials<'_>, case: Case, (with_streams, with_prompts): (bool, bool)) -> Result<Answers> {
    let (engine, clock) = (&trials.engine, trials.bench.clock);
    let request = |index, tokens, new| continuation(ids(tokens, index, trials.info().vocab), new);
    let (cancel, begin) = (Cancel::new(), clock.now_ns());
    let streams = if with_streams { case.streams } else { 0 };
    let tickets = (0..streams)
        .map(|index| request(index, case.stream_prompt_tokens, case.new_tokens))
        .map(|request| engine.submit_generate(request, &cancel))
        .collect::<Result<Vec<_>, _>>()?;
    if with_streams && with_prompts {
        generate(engine, request(case.streams, 1, 1))?;
    }
    let prompts = if with_prompts { case.prompts } else { 0 };
    let prompts = (0..prompts)
        .map(|index| generate(engine, request(case.streams + index, case.prompt_tokens, 1)))
        .collect::<Result<Vec<_>, _>>()?;
    let streams = tickets.into_iter().map(Ticket::wait).collect::<Result<Vec<_>, _>>()?;
    Ok(Answers { streams, prompts, seconds: clock.elapsed_s(begin) })
}

/// Checks that the ids are the same together as apart. An empty list was not run and is not checked.
fn same(what: &str, apart: &[GenerateOutcome], now: &[GenerateOutcome]) -> Result<()> {
    for (index, (apart, now)) in apart.iter().zip(now).enumerate() {
        let (apart, now) = (&apart.token_ids, &now.token_ids);
        verify(apart == now, || {
            format!("greedy ids of {what} {index} differ: {apart:?} apart, {now:?} later")
        })?;
    }
    Ok(())
}

/// Evaluates the turns of a trial. The limits and conditions are those of both together.
fn trial(turns: &[Held<Answers>]) -> Held<Trial> {
    let [quiet, alone, both] = [0, 1, 2].map(|turn| &turns[turn].value);
    // The span of each prompt, from its arrival to its token.
    let span = |prompt: &GenerateOutcome| (prompt.arrived_s, prompt.arrived_s + prompt.prefill_s);
    let spans: Vec<_> = both.prompts.iter().map(span).collect();
    turns[2].with(Trial {
        quiet: Gaps::all(&times(&quiet.streams)),
        mixed: Gaps::within(&spans, &times(&both.streams)),
        seconds: [quiet.seconds, alone.seconds, both.seconds],
    })
}

/// The times at which the tokens of each stream were chosen, in seconds of the engine's clock.
fn times(streams: &[GenerateOutcome]) -> Vec<Vec<f64>> {
    streams.iter().map(|one| one.token_s.iter().map(|s| one.arrived_s + s).collect()).collect()
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

fn row(info: &ModelInfo, case: Case, trials: &[Held<Trial>]) -> Result<Row> {
    let ratio = |trial: &Held<Trial>, value: fn(&Gaps) -> Option<f64>| {
        let ratio = value(&trial.value.mixed)? / value(&trial.value.quiet)?;
        Some(ratio).filter(|ratio| ratio.is_finite())
    };
    let p95 = |gaps: &Gaps| gaps.percentile(95.0);
    let together = |trial: &Held<Trial>| trial.value.seconds[2];
    let name = format!("mixed/s{}/p{}/t{}", case.streams, case.prompt_tokens, info.threads);
    Row::of_model(name, info)
        .param("streams", case.streams)
        .param("stream_prompt_tokens", case.stream_prompt_tokens)
        .param("new_tokens", case.new_tokens)
        .param("prompts", case.prompts)
        .param("prompt_tokens", case.prompt_tokens)
        .measured(LANE.metrics, trials)
        .each("quiet_gap_p50", |trial| trial.value.quiet.percentile(50.0))?
        .each("quiet_gap_p95", |trial| p95(&trial.value.quiet))?
        .each("mixed_gap_p50", |trial| trial.value.mixed.percentile(50.0))?
        .each("mixed_gap_p95", |trial| p95(&trial.value.mixed))?
        .each("gap_ratio", |trial| ratio(trial, p95))?
        .each("gap_mean_ratio", |trial| ratio(trial, Gaps::mean))?
        .each("mixed_gaps", |trial| trial.value.mixed.n() as f64)?
        .each("total_tokens_per_s", |trial| tokens(case) / together(trial))?
        .each("share_of_separate", |trial| trial.value.seconds[..2].iter().sum::<f64>() / together(trial))?
        .each("streams_s", |trial| trial.value.seconds[0])?
        .each("prompts_s", |trial| trial.value.seconds[1])?
        .each("together_s", together)?
        .held(info.format.arithmetic(), work(info, case), together)
}

#[cfg(test)]
mod tests {
    use redline_engine::{FinishReason, TokenCounts};

    use super::*;
    use crate::Clock;
    use crate::lanes::tests::{bench, info, samples, timed};

    const CASE: Case =
        Case { streams: 2, stream_prompt_tokens: 4, new_tokens: 3, prompts: 3, prompt_tokens: 5 };

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
        let trial = |mixed: &[f64]| {
            let (quiet, mixed) = (Gaps::of_ms(&[2.0, 2.0, 4.0]), Gaps::of_ms(mixed));
            timed(Trial { quiet, mixed, seconds: [3.0, 5.0, 10.0] })
        };
        let row = row(&info(), CASE, &[trial(&[3.0, 6.0, 9.0]), trial(&[])]).unwrap();
        let values = |name: &str| samples(&row, name);
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
        let seconds = ["streams_s", "prompts_s", "together_s"].map(values);
        assert_eq!(seconds, [vec![3.0; 2], vec![5.0; 2], vec![10.0; 2]]);
    }

    /// An answer that arrived at a time, whose tokens followed it after these seconds.
    fn answer(arrived_s: f64, token_s: &[f64]) -> GenerateOutcome {
        GenerateOutcome {
            receipt: None,
            text: String::new(),
            token_ids: Vec::new(),
            prompt_token_ids: Vec::new(),
            finish_reason: FinishReason::Length,
            logprobs: None,
            prompt_logprobs: None,
            usage: TokenCounts::default(),
            prefix_cache: None,
            plan_misses: 0,
            queue_s: 0.0,
            prefill_s: token_s[0],
            decode_s: 0.0,
            decode_tokens_per_s: None,
            token_s: token_s.to_vec(),
            seed: 0,
            mean_logprob: None,
            others: Vec::new(),
            cancelled: false,
            arrived_s,
            peak_memory_bytes: None,
            kernel_path: String::new(),
        }
    }

    #[test]
    fn gaps_of_both_together_are_those_while_a_prompt_is_computed() {
        let answers = |streams, prompts, seconds| timed(Answers { streams, prompts, seconds });
        let quiet = answers(vec![answer(10.0, &[1.0, 2.0, 4.0])], Vec::new(), 3.0);
        let alone = answers(Vec::new(), vec![answer(15.0, &[4.0])], 5.0);
        // Tokens at 21, 22, 25 and 26 s, and a prompt from 22 s to 25 s.
        let both = answers(vec![answer(20.0, &[1.0, 2.0, 5.0, 6.0])], vec![answer(22.0, &[3.0])], 10.0);
        let Trial { quiet, mixed, seconds } = trial(&[quiet, alone, both]).value;
        assert_eq!((quiet, mixed), (Gaps::of_ms(&[1000.0, 2000.0]), Gaps::of_ms(&[3000.0])));
        assert_eq!(seconds, [3.0, 5.0, 10.0]);
    }

    #[test]
    fn streams_and_a_prompt_must_fit_the_context_and_the_memory() {
        let clock = Clock::scripted(|| 0);
        let mut bench = bench(&clock);
        let fact = |result: Result<()>| match result {
            Err(LaneError::Usage(fact)) => fact,
            other => panic!("{other:?}"),
        };
        // Two streams of 7 tokens and one prompt with its token at a time: 20 tokens of 8 bytes.
        bench.machine.memory.available_bytes = Some(160);
        assert!(fits(&bench, &info(), CASE).is_ok());
        bench.machine.memory.available_bytes = Some(159);
        let told = fact(fits(&bench, &info(), CASE));
        assert!(
            told.starts_with("the keys and values of 2 streams of 7 tokens and a prompt would take 160 B"),
            "{told}"
        );
        let told = fact(fits(&bench, &info(), Case { prompt_tokens: 100, ..CASE }));
        assert!(told.starts_with("sequences of 101 tokens exceed the context of 100"), "{told}");
        let told = fact(fits(&bench, &info(), Case { stream_prompt_tokens: 98, ..CASE }));
        assert!(told.starts_with("sequences of 101 tokens exceed the context of 100"), "{told}");
    }
}
