//! Lane `forward`: a single pass over whole sequences that are not cached, which gives the prefill speed by batch and length.
//!
//! The pass is a score request whose items are token ids that begin differently, so that no prefix is shared: the engine computes
//! every token and evaluates the whole vocabulary after the last token of each sequence. With a model that fills masks, each
//! sequence is a canvas whose last token is a mask. Before timing, the probabilities of the first and the last sequence are
//! compared bit for bit with those of each sequence alone.

use redline_engine::{
    DiffuseRequest, Engine, ItemError, ItemScore, Label, ModelInfo, Objective, Prompt, ScoreOutcome,
    ScoreRequest,
};
use redline_kernels::Simd;

use super::{Lane, MetricSpec, Run, all_threads, higher, info, lower};
use crate::bench::{Bench, Flag, LaneError, Model, Setup, Values, asked, within_batch, within_context};
use crate::digest;
use crate::limits::Probe;
use crate::result::{Cell, Column};
use crate::roofline::{Arithmetics, Held, Work, held, keys_seen};
use crate::{Direction, Row, Samples};

/// The `forward` lane.
pub const LANE: Lane = Lane {
    name: "forward",
    asks: "How fast does the model read sequences it has not seen, by batch and length?",
    checks: "the probabilities after the first and the last sequence are those of each alone, bit for bit, in every run",
    against: "the machine's read bandwidth and arithmetic peak, read around every run",
    metrics: METRICS,
    threshold: 0.05,
    flags: &[
        Flag { name: "batch", value: "N,..", default: "1,2,4,8", help: "Sequences" },
        Flag { name: "length", value: "N,..", default: "128,256,512", help: "Tokens of each" },
        Flag::runs("5"),
        Flag::warmups("1"),
    ],
    smoke: &[("batch", "1,3"), ("length", "7"), ("num-runs", "2")],
    standard: &[("batch", "1,4"), ("length", "128,256")],
    threads: all_threads,
    columns: Some(COLUMNS),
    shown: None,
    note: None,
    styles: &[],
    baseline: None,
    run: Run::Model(run),
};

const METRICS: &[MetricSpec] = &[
    higher("tokens_per_s", "tokens/s"),
    lower("seconds", "s"),
    info("ms_per_token", "ms"),
    info("share", "share"),
    info("limit", ""),
];

/// The columns of the seed's forward benchmark, then ours.
const COLUMNS: &[Column] = &[
    Column { name: "batch_size", cell: Cell::Param("batch") },
    Column { name: "seq_length", cell: Cell::Param("length") },
    Column { name: "num_runs", cell: Cell::Samples("seconds") },
    Column { name: "tokens_per_second", cell: Cell::Metric("tokens_per_s", Samples::median, 1.0) },
    Column::median("ms_per_token"),
    Column::MEAN_S,
    Column::STD_S,
    Column::MIN_S,
    Column::MAX_S,
    Column::param("threads"),
    Column::param("format"),
    Column::LIMIT,
    Column::SHARE_OF_LIMIT,
    Column::KERNEL_PATH,
];

fn run(bench: &Bench<'_>, model: &Model<'_>, values: &Values) -> Result<(), LaneError> {
    let (batches, lengths) = (values.counts("batch")?, values.counts("length")?);
    let (runs, warmups) = (values.count("num-runs")?, values.count("warmup-runs")?);
    within_batch(&batches)?;
    for &threads in &bench.threads {
        let engine = (model.load)(Setup::new(threads))?;
        let info = engine.info();
        within_context(lengths.iter().copied().max().unwrap_or(0), info)?;
        let simd = Simd::new(info.tier).unwrap_or_else(|_| Simd::best());
        let probe = Probe::new(info.threads, simd, info.bytes_per_token as usize)?;
        for &length in &lengths {
            for &batch in &batches {
                let row = row(bench, &engine, &probe, Case { batch, length, runs, warmups })?;
                bench.done(&format!("{threads} threads, batch {batch}, length {length}"), vec![row])?;
            }
        }
    }
    Ok(())
}

/// A batch shape, and the number of runs.
#[derive(Clone, Copy)]
struct Case {
    batch: usize,
    length: usize,
    runs: usize,
    warmups: usize,
}

fn row(bench: &Bench<'_>, engine: &Engine, probe: &Probe, case: Case) -> Result<Row, LaneError> {
    let info = engine.info();
    let sequences: Vec<Vec<i64>> =
        (0..case.batch).map(|index| asked::ids(case.length, index, info.vocab)).collect();
    let pass = |sequences: &[Vec<i64>]| match info.objective {
        Objective::Next => pass(engine, sequences),
        Objective::Masked { .. } => canvases(bench, engine, sequences),
    };
    let (_, expected) = pass(&sequences)?;
    for index in [0, case.batch - 1] {
        let (_, alone) = pass(&sequences[index..=index])?;
        same(&alone, &expected[index..=index])?;
    }
    let misses = || engine.plan_counters().misses;
    let warmup = bench.warm_up(case.warmups, misses, |_| pass(&sequences).map(|_| ()))?;
    let trials = probe.hold(case.runs, Arithmetics::of(info), bench.clock, |_| pass(&sequences))?;
    for trial in &trials {
        same(&expected, &trial.value.1)?;
    }
    let timed: Vec<Held<f64>> = trials.iter().map(|t| t.with(t.value.0)).collect();
    Ok(told(info, case, &timed, digest::of_ids(&expected))?.warmed(warmup))
}

/// Seconds of a pass, and the bits of a probability after each sequence.
type Passed = (f64, Vec<u32>);

/// Runs canvases whose last token is a mask, and evaluates the vocabulary for that token.
fn canvases(bench: &Bench<'_>, engine: &Engine, sequences: &[Vec<i64>]) -> Result<Passed, LaneError> {
    let mask = engine.info().mask_id.map(i64::from);
    // Replace ids that happen to be the mask, so that each canvas has only one.
    let known = |ids: &Vec<i64>| ids[1..].iter().map(|&id| if Some(id) == mask { 0 } else { id }).collect();
    let requests = sequences.iter().map(|ids| DiffuseRequest {
        steps: Some(1),
        ignore_eos: true,
        ..DiffuseRequest::new(Prompt::Ids(known(ids)), 1)
    });
    let requests: Vec<DiffuseRequest> = requests.collect();
    let start = bench.clock.now_ns();
    let outcomes = asked::canvases(engine, requests.into_iter())?;
    let seconds = bench.clock.elapsed_s(start);
    let filled = outcomes.iter().flat_map(|outcome| &outcome.passes).flat_map(|pass| &pass.filled);
    Ok((seconds, filled.map(|filled| (filled.confidence as f32).to_bits()).collect()))
}

/// Runs whole sequences and evaluates the vocabulary after each.
fn pass(engine: &Engine, sequences: &[Vec<i64>]) -> Result<Passed, LaneError> {
    let (query, labels) = (Prompt::Ids(Vec::new()), vec![Label::Ids(vec![0])]);
    let items = sequences.iter().cloned().map(Prompt::Ids).collect();
    let outcome = engine.score(ScoreRequest::new(query, items, labels))?;
    if outcome.taken.computed_tokens == outcome.taken.usage.prompt_tokens {
        return Ok((outcome.taken.compute_s, probabilities(&outcome)?));
    }
    let (some, all) = (outcome.taken.computed_tokens, outcome.taken.usage.prompt_tokens);
    Err(LaneError::Incorrect(format!("the pass ran {some} of {all} tokens")))
}

/// The bits of the label's log-probability after each sequence.
fn probabilities(outcome: &ScoreOutcome) -> Result<Vec<u32>, LaneError> {
    let bits = |item: &Result<ItemScore, ItemError>| match item {
        Ok(item) => Ok(item.logprobs[0].to_bits()),
        Err(error) => Err(LaneError::Incorrect(error.message.clone())),
    };
    outcome.items.iter().map(bits).collect()
}

fn same(expected: &[u32], found: &[u32]) -> Result<(), LaneError> {
    if expected == found {
        return Ok(());
    }
    let values = |bits: &[u32]| bits.iter().map(|&b| f32::from_bits(b)).collect::<Vec<_>>();
    let fact = format!("log-probabilities {:?} alone or before, {:?} now", values(expected), values(found));
    Err(LaneError::Incorrect(fact))
}

/// The minimum work of a pass: read the weights once, multiply every token with the weights and with the keys it attends
/// to, and multiply the last token of each sequence with the vocabulary.
fn work(info: &ModelInfo, case: Case) -> Work {
    let (batch, length) = (case.batch as f64, case.length as f64);
    let keys = match info.objective {
        Objective::Next => keys_seen(0, case.length),
        Objective::Masked { .. } => length * length,
    };
    Work::of_pass(info, batch * length, batch * keys, batch)
}

fn told(info: &ModelInfo, case: Case, timed: &[Held<f64>], digest: String) -> Result<Row, LaneError> {
    let tokens = (case.batch * case.length) as f64;
    let samples = |unit: &str, direction, value: &dyn Fn(f64) -> f64| {
        Samples::new(unit, direction, timed.iter().map(|t| value(t.value)).collect())
    };
    let mut row = Row::new(format!("forward/b{}/l{}/t{}", case.batch, case.length, info.threads))
        .param("model", info.name.clone())
        .param("threads", info.threads)
        .param("format", info.format.to_string())
        .param("kv_format", info.kv_format.name())
        .param("batch", case.batch)
        .param("length", case.length)
        .digest(digest)
        .metric("tokens_per_s", samples("tokens/s", Direction::Higher, &|s| tokens / s)?)
        .metric("seconds", samples("s", Direction::Lower, &|s| s)?)
        .metric("ms_per_token", samples("ms", Direction::Info, &|s| s * 1e3 / tokens)?);
    row.kernel_path = Some(info.kernel_path.clone());
    row.checked = true;
    Ok(held(row, info.format.arithmetic(), work(info, case), timed)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::Condition;
    use crate::lanes::tests::info;
    use crate::roofline::Limits;

    #[test]
    fn a_pass_reads_weights_once_and_multiplies_every_token() {
        let case = Case { batch: 2, length: 3, runs: 1, warmups: 1 };
        // Per sequence: 3 tokens, 1 + 2 + 3 keys, one row of logits.
        let expected =
            Work { bytes: 1000.0, operations: 2.0 * (3.0 * 100.0 + 50.0), attention: 2.0 * 6.0 * 3.0 };
        assert_eq!(work(&info(), case), expected);
    }

    #[test]
    fn a_row_tells_rate_and_share() {
        let limits = Limits { bandwidth: 1e4, peak: 1e3, attention_peak: 500.0 };
        let case = Case { batch: 2, length: 3, runs: 1, warmups: 1 };
        let row =
            told(&info(), case, &[Held { value: 2.0, limits, condition: Condition::default() }], "d".into())
                .unwrap();
        let median = |name: &str| row.metrics.get(name).unwrap().samples().median().unwrap();
        assert_eq!((median("tokens_per_s"), median("seconds")), (3.0, 2.0));
        assert!((median("ms_per_token") - 1000.0 / 3.0).abs() < 1e-9);
        // The bound is 700 operations at 1000 per second plus 36 at 500, not 1000 bytes at 10000.
        assert_eq!(row.limit.as_deref(), Some("f32_peak"));
        assert!((row.share_of_limit.unwrap() - 0.772 / 2.0).abs() < 1e-9);
    }

    #[test]
    fn different_outputs_are_incorrect() {
        assert!(same(&[1, 2], &[1, 2]).is_ok());
        assert!(matches!(same(&[1], &[2]), Err(LaneError::Incorrect(_))));
    }
}
