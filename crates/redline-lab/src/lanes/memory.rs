//! Lane `memory`: the memory use of a model: its weights, its activations, and the keys and values of a batch.
//!
//! Every sample is a fresh load, so that no memory of an earlier batch remains. The counting allocator measures the bytes
//! that the engine requests; the kernel's resident bytes are reported beside them. While a request runs, the allocated bytes
//! are sampled, so that the peak can be compared with the average.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redline_engine::{BatchRequest, Cancel, DiffuseRequest, Engine, ModelInfo, Objective, Prompt};
use redline_kernels::memory::{allocations, current_bytes, peak_bytes, reset_peak};
use redline_kernels::op::kv::PAGE_TOKENS;

use super::{Lane, MetricSpec, Run, all_threads, count, info, lower};
use crate::bench::{Bench, Flag, LaneError, Model, Setup, Values, asked, within_batch, within_context};
use crate::digest;
use crate::machine::Resident;
use crate::result::{Cell, Column};
use crate::{Direction, Row, Samples};

/// The `memory` lane.
pub const LANE: Lane = Lane {
    name: "memory",
    asks: "How much memory do weights, activations, keys and values take, by batch, and how long is loading?",
    checks: "weights take what their file holds, requests at least the pages of their keys and values, greedy ids agree",
    against: "the bytes that shapes and formats ask for",
    metrics: METRICS,
    threshold: 0.05,
    flags: &[
        Flag { name: "batch", value: "N,..", default: "1,2,4,8", help: "Sequences that decode together" },
        Flag { name: "prompt-tokens", value: "N", default: "128", help: "Tokens of each prompt" },
        Flag { name: "new-tokens", value: "N", default: "16", help: "Tokens to generate for each" },
        Flag { help: "Fresh loads of each batch, none of them warmed up", ..Flag::runs("3") },
    ],
    smoke: &[("batch", "1,2"), ("prompt-tokens", "5"), ("new-tokens", "3"), ("num-runs", "2")],
    standard: &[("batch", "1,4")],
    threads: all_threads,
    columns: Some(COLUMNS),
    shown: None,
    note: None,
    styles: &[],
    baseline: None,
    run: Run::Model(run),
};

const METRICS: &[MetricSpec] = &[
    lower("load_s", "s"),
    lower("loaded", "bytes"),
    lower("load_peak", "bytes"),
    lower("peak", "bytes"),
    info("average", "bytes"),
    count("weights", "bytes"),
    info("activations", "bytes"),
    count("kv", "bytes"),
    lower("grown", "bytes"),
    info("per_item", "bytes"),
    lower("allocations_per_token", "allocations"),
    lower("rss_anon_loaded", "bytes"),
    lower("rss_anon_first", "bytes"),
];

const MB: f64 = 1e-6;

/// The columns of the seed's memory benchmark, in MB, then ours.
const COLUMNS: &[Column] = &[
    Column { name: "batch_size", cell: Cell::Param("batch") },
    Column { name: "parameter_memory_mb", cell: Cell::Metric("weights", Samples::median, MB) },
    Column { name: "activation_memory_mb", cell: Cell::Metric("activations", Samples::median, MB) },
    Column { name: "peak_memory_mb", cell: Cell::Metric("peak", Samples::median, MB) },
    Column { name: "average_memory_mb", cell: Cell::Metric("average", Samples::median, MB) },
    Column { name: "mb_per_batch_item", cell: Cell::Metric("per_item", Samples::median, MB) },
    Column { name: "kv_memory_mb", cell: Cell::Metric("kv", Samples::median, MB) },
    Column { name: "grown_mb", cell: Cell::Metric("grown", Samples::median, MB) },
    Column { name: "load_peak_mb", cell: Cell::Metric("load_peak", Samples::median, MB) },
    Column::median("load_s"),
    Column { name: "rss_anon_loaded_mb", cell: Cell::Metric("rss_anon_loaded", Samples::median, MB) },
    Column { name: "rss_anon_first_mb", cell: Cell::Metric("rss_anon_first", Samples::median, MB) },
    Column::param("parameters"),
    Column::param("format"),
    Column::KERNEL_PATH,
];

/// Allowed relative difference between the weights in memory and in the file.
const TOLERANCE: f64 = 0.05;
/// Allowed allocations per token, by scheduler and answer. A pass makes none, however many layers it has.
const MOST_ALLOCATIONS: f64 = 32.0;
/// Interval between two samples of the allocated bytes.
const LOOK: Duration = Duration::from_millis(1);

/// The request after each load.
#[derive(Clone, Copy)]
struct Case {
    batch: usize,
    prompt_tokens: usize,
    new_tokens: usize,
}

/// One load and its first request. Bytes are counted from before the load.
struct Sample {
    load_s: f64,
    /// Allocated after the load.
    loaded: f64,
    /// The peak while loading; `None` without a counting allocator.
    load_peak: Option<f64>,
    /// The peak during the request.
    peak: Option<f64>,
    /// The average during the request.
    average: f64,
    /// Bytes after the request, whose pages of keys and values are kept for the next.
    after: f64,
    /// Allocations per token of a sequence, in a repeated request; `None` without a counting allocator.
    allocations_per_token: Option<f64>,
    resident: [Option<u64>; 2],
    ids: Vec<Vec<u32>>,
}

fn run(bench: &Bench<'_>, model: &Model<'_>, values: &Values) -> Result<(), LaneError> {
    let batches = values.counts("batch")?;
    within_batch(&batches)?;
    let (prompt_tokens, new_tokens) = (values.count("prompt-tokens")?, values.count("new-tokens")?);
    let runs = values.count("num-runs")?;
    for &threads in &bench.threads {
        let canary = bench.canary(threads)?;
        // The first sequence is the same in every batch.
        let mut first: Option<Vec<u32>> = None;
        for &batch in &batches {
            let case = Case { batch, prompt_tokens, new_tokens };
            let mut told = None;
            let watched = canary.watch(runs, bench.clock, |_| {
                let (sample, info) = sample(bench, model, threads, case)?;
                check(model, &info, case, &sample)?;
                let ids = first.get_or_insert_with(|| sample.ids[0].clone());
                if *ids != sample.ids[0] {
                    let fact =
                        format!("greedy ids differ: {ids:?} and {:?} in a batch of {batch}", sample.ids[0]);
                    return Err(LaneError::Incorrect(fact));
                }
                told = Some(info);
                Ok(sample)
            })?;
            let conditions = watched.iter().map(|w| w.condition).collect();
            let samples: Vec<Sample> = watched.into_iter().map(|w| w.value).collect();
            let rows = told.map(|info| row(&info, case, &samples)).transpose()?;
            let rows = rows.map(|row| row.conditions(conditions)).into_iter().collect();
            bench.done(&format!("{threads} threads, batch {batch}"), rows)?;
        }
    }
    Ok(())
}

/// Loads the model, runs a batch, and measures memory meanwhile.
fn sample(
    bench: &Bench<'_>,
    model: &Model<'_>,
    threads: usize,
    case: Case,
) -> Result<(Sample, ModelInfo), LaneError> {
    let before = current_bytes();
    let since = |bytes: u64| bytes.saturating_sub(before) as f64;
    reset_peak();
    let start = bench.clock.now_ns();
    let engine = (model.load)(Setup::new(threads))?;
    let load_s = bench.clock.elapsed_s(start);
    let (loaded, load_peak) = (current_bytes(), peak_bytes());
    let resident = Resident::now().anonymous_bytes;
    let info = engine.info().clone();
    let tokens = case.prompt_tokens.saturating_add(case.new_tokens);
    within_context(tokens, &info)?;
    let kv = info.kv_bytes_per_token as f64 * tokens as f64 * case.batch as f64;
    bench.fits(&format!("the keys and values of {} sequences of {tokens} tokens", case.batch), kv)?;
    let (outcome, average) = watched(|| request(&engine, case, info.vocab));
    // The peak since the request began, including allocations by the sampling thread and the answer.
    let (outcome, peak) = (outcome?, peak_bytes());
    let (after, resident_after) = (current_bytes(), Resident::now().anonymous_bytes);
    let allocations_per_token = allocations_per_token(&engine, case, info.vocab)?;
    let sample = Sample {
        load_s,
        loaded: since(loaded),
        load_peak: load_peak.map(since),
        peak: peak.map(since),
        average: average - before as f64,
        after: since(after),
        allocations_per_token,
        resident: [resident, resident_after],
        ids: outcome,
    };
    Ok((sample, info))
}

/// Allocations per additional token of a sequence: the additional allocations of a request that generates twice as many tokens, divided
/// by the additional tokens. Both requests were run before, so first-time allocations do not count.
fn allocations_per_token(engine: &Engine, case: Case, vocab: usize) -> Result<Option<f64>, LaneError> {
    let longer = Case { new_tokens: 2 * case.new_tokens, ..case };
    if longer.prompt_tokens + longer.new_tokens > engine.info().context {
        return Ok(None);
    }
    let taken = |case: Case| {
        request(engine, case, vocab)?;
        let before = allocations();
        request(engine, case, vocab)?;
        Ok::<_, LaneError>(allocations().zip(before).map(|(after, before)| (after - before) as f64))
    };
    let (few, many) = (taken(case)?, taken(longer)?);
    let tokens = (case.batch * case.new_tokens) as f64;
    Ok(many.zip(few).map(|(many, few)| (many - few).max(0.0) / tokens))
}

/// The new ids of every sequence.
fn request(engine: &Engine, case: Case, vocab: usize) -> Result<Vec<Vec<u32>>, LaneError> {
    let prompts = (0..case.batch).map(|index| Prompt::Ids(asked::ids(case.prompt_tokens, index, vocab)));
    let max_new_tokens = case.new_tokens;
    if engine.info().objective == Objective::Next {
        let request = BatchRequest { prompts: prompts.collect(), max_new_tokens, ignore_eos: true };
        return Ok(engine.generate_batch(&request, &Cancel::new())?.token_ids);
    }
    let requests = prompts
        .map(|prompt| DiffuseRequest { ignore_eos: true, ..DiffuseRequest::new(prompt, max_new_tokens) });
    Ok(asked::canvases(engine, requests)?.into_iter().map(|outcome| outcome.token_ids).collect())
}

/// Does the work. Returns its result and the average of the allocated bytes, sampled at regular intervals.
fn watched<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let (mut sum, mut looks) = (0.0, 0.0);
            loop {
                sum += current_bytes() as f64;
                looks += 1.0;
                if done.load(Ordering::Relaxed) {
                    return sum / looks;
                }
                std::thread::sleep(LOOK);
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        (result, watcher.join().unwrap_or_else(|_| current_bytes() as f64))
    })
}

/// Bytes of the pages for the keys and values of the batch.
fn kv_bytes(info: &ModelInfo, case: Case) -> u64 {
    let tokens = (case.prompt_tokens + case.new_tokens).next_multiple_of(PAGE_TOKENS);
    info.kv_bytes_per_token * (tokens * case.batch) as u64
}

/// Checks that packed weights take as much memory as in their file, and that a request takes the pages of its keys and
/// values.
fn check(model: &Model<'_>, info: &ModelInfo, case: Case, sample: &Sample) -> Result<(), LaneError> {
    let wrong = |fact: String| Err(LaneError::Incorrect(format!("{fact}\n  in `{}`", info.name)));
    if let Some(file) = model.packed_bytes
        && (info.weight_bytes as f64 / file as f64 - 1.0).abs() > TOLERANCE
    {
        let memory = info.weight_bytes;
        return wrong(format!("the weights take {memory} bytes in memory, but {file} in their file"));
    }
    let (kv, grown) = (kv_bytes(info, case), sample.peak.map(|peak| peak - sample.loaded));
    if grown.is_some_and(|grown| grown < kv as f64) {
        let grown = grown.unwrap_or_default();
        return wrong(format!("a request with {kv} bytes of keys and values took only {grown} bytes"));
    }
    Ok(())
}

fn row(info: &ModelInfo, case: Case, samples: &[Sample]) -> Result<Row, LaneError> {
    let of = |unit: &str, direction, value: &dyn Fn(&Sample) -> Option<f64>| {
        Samples::new(unit, direction, samples.iter().filter_map(value).collect())
    };
    let (lower, info_only) = (Direction::Lower, Direction::Info);
    let resident = |s: &Sample, when: usize| s.resident[when].map(|bytes| bytes as f64);
    // Activations are allocated once, independent of the batch; all other memory grows with the batch.
    let item = |s: &Sample| Some((info.activation_bytes as f64 + s.peak? - s.loaded) / case.batch as f64);
    let ids = samples.first().map(|s| s.ids.concat()).unwrap_or_default();
    let constant = |bytes: u64| Samples::new("bytes", info_only, vec![bytes as f64]);
    let mut row = Row::new(format!("memory/b{}/t{}", case.batch, info.threads))
        .param("model", info.name.clone())
        .param("threads", info.threads)
        .param("format", info.format.to_string())
        .param("kv_format", info.kv_format.name())
        .param("batch", case.batch)
        .param("prompt_tokens", case.prompt_tokens)
        .param("new_tokens", case.new_tokens)
        .param("parameters", info.parameters)
        .digest(digest::of_ids(&ids))
        .metric("load_s", of("s", lower, &|s| Some(s.load_s))?)
        .metric("loaded", of("bytes", lower, &|s| Some(s.loaded))?)
        .metric("load_peak", of("bytes", lower, &|s| s.load_peak)?)
        .metric("peak", of("bytes", lower, &|s| s.peak)?)
        .metric("average", of("bytes", info_only, &|s| Some(s.average))?)
        .metric("weights", constant(info.weight_bytes)?)
        .metric("activations", constant(info.activation_bytes)?)
        .metric("kv", constant(kv_bytes(info, case))?)
        .metric("grown", of("bytes", lower, &|s| Some((s.after - s.loaded).max(0.0)))?)
        .metric("per_item", of("bytes", info_only, &item)?)
        .metric("allocations_per_token", of("allocations", lower, &|s| s.allocations_per_token)?)
        .metric("rss_anon_loaded", of("bytes", lower, &|s| resident(s, 0))?)
        .metric("rss_anon_first", of("bytes", lower, &|s| resident(s, 1))?);
    row.kernel_path = Some(info.kernel_path.clone());
    row.checked = true;
    // With a model that fills masks, a token may need a pass over a canvas, with lists of its rows.
    let by_token = info.objective == Objective::Next;
    let counted = by_token && samples.iter().any(|s| s.allocations_per_token.is_some());
    Ok(if counted { row.at_most("allocations_per_token", MOST_ALLOCATIONS) } else { row })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::tests::info;

    const CASE: Case = Case { batch: 4, prompt_tokens: 60, new_tokens: 5 };

    fn sample() -> Sample {
        Sample {
            load_s: 0.5,
            loaded: 3000.0,
            load_peak: Some(3500.0),
            peak: Some(3000.0 + 4096.0 + 104.0),
            average: 5000.0,
            after: 7100.0,
            allocations_per_token: Some(2.5),
            resident: [Some(9000), None],
            ids: vec![vec![1], vec![2]],
        }
    }

    fn nothing(_: Setup) -> Result<Engine, redline_engine::EngineError> {
        Err(redline_engine::EngineError::Stopped)
    }

    #[test]
    fn keys_and_values_take_whole_pages() {
        assert_eq!(kv_bytes(&info(), CASE), 8 * 128 * 4);
        assert_eq!(kv_bytes(&info(), Case { batch: 1, new_tokens: 4, ..CASE }), 8 * 64);
    }

    #[test]
    fn a_row_tells_bytes_per_item() {
        let row = row(&info(), CASE, &[sample(), Sample { peak: None, ..sample() }]).unwrap();
        let values = |name: &str| row.metrics.get(name).unwrap().samples().values().to_vec();
        assert_eq!(values("per_item"), [(400.0 + 4200.0) / 4.0]);
        assert_eq!((values("peak"), values("loaded")), (vec![7200.0], vec![3000.0; 2]));
        assert_eq!(
            (values("weights"), values("kv"), values("activations")),
            (vec![2000.0], vec![4096.0], vec![400.0])
        );
        assert_eq!((values("grown"), values("rss_anon_loaded").len()), (vec![4100.0; 2], 2));
        assert!(values("rss_anon_first").is_empty());
    }

    #[test]
    fn what_does_not_add_up_is_incorrect() {
        let with = |packed_bytes, peak| {
            let model = Model { load: &nothing, packed_bytes, judge: None };
            check(&model, &info(), CASE, &Sample { peak, ..sample() })
        };
        assert!(with(None, None).is_ok() && with(Some(2090), Some(7096.0)).is_ok());
        let fact = |result: Result<(), LaneError>| match result {
            Err(LaneError::Incorrect(fact)) => fact,
            other => panic!("{other:?}"),
        };
        assert!(fact(with(Some(2200), None)).contains("2200 in their file"));
        assert!(fact(with(Some(1800), None)).contains("2000 bytes in memory"));
        assert!(fact(with(None, Some(7095.0))).contains("took only 4095"));
    }

    #[test]
    fn the_average_lies_among_the_looks() {
        let (value, average) = watched(|| 7);
        assert!(value == 7 && average >= 0.0 && average.is_finite());
    }
}
