//! Lane `memory`: the memory use of a model: its weights, its activations, and the keys and values of a batch.
//!
//! Every sample is a fresh load, so that no memory of an earlier batch remains. The counting allocator measures the bytes
//! that the engine requests; the kernel's resident bytes are reported beside them. While a request runs, the allocated bytes
//! are sampled, so that the peak can be compared with the average.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redline_engine::{DiffuseRequest, Engine, MAX_LOGITS_ROWS, ModelInfo, Objective, Prompt};
use redline_kernels::op::kv::PAGE_TOKENS;
use redline_system::memory::{allocations, current_bytes, peak_bytes, reset_peak};

use super::prelude::*;
use crate::bench::requests::{Prompts, continue_together, diffuse};
use redline_system::machine::Resident;

pub(super) const LANE: Lane = Lane {
    asks: "How much memory do weights, activations, keys and values take, by batch, and how long is loading?",
    checks: "weights take what their file holds, requests at least the pages of their keys and values, greedy ids agree",
    against: "the bytes that shapes and formats ask for",
    metrics: "-load_s s|-loaded bytes|-load_peak bytes|-peak bytes|average bytes|#weights bytes|\
              activations bytes|activations_reserved bytes|#kv bytes|-grown bytes|per_item bytes|\
              -allocations_per_token allocations|-rss_anon_loaded bytes|-rss_anon_first bytes",
    flags: &Flags::ALL,
    smoke: "batch=1,2 prompt-tokens=5 new-tokens=3 num-runs=2",
    standard: "batch=1,4",
    // The columns of the seed's memory benchmark, in MB, then ours.
    columns: &["batch_size=batch|parameter_memory_mb=~weights*1e-6|activation_memory_mb=~activations*1e-6|\
                activation_reserved_mb=~activations_reserved*1e-6|peak_memory_mb=~peak*1e-6|\
                average_memory_mb=~average*1e-6|mb_per_batch_item=~per_item*1e-6|kv_memory_mb=~kv*1e-6|\
                grown_mb=~grown*1e-6|load_peak_mb=~load_peak*1e-6|~load_s|\
                rss_anon_loaded_mb=~rss_anon_loaded*1e-6|rss_anon_first_mb=~rss_anon_first*1e-6|parameters|\
                format|kernel_path=@kernels"],
    ..Lane::new("memory", 0.05, LaneFunction::Model(run))
};

flags! {
    struct Flags;
    batches: Vec<usize> = "batch", "N,..", "1,2,4,8", "Sequences that decode together";
    prompt_tokens: usize = "prompt-tokens", "N", "128", "Tokens of each prompt";
    new_tokens: usize = "new-tokens", "N", "16", "Tokens to generate for each";
    runs: usize = "num-runs", "N", "3", "Fresh loads of each batch, none of them warmed up";
}

/// Allowed relative difference between the weights in memory and in the file.
const TOLERANCE: f64 = 0.05;
/// Allowed allocations per token, by scheduler and answer. A pass makes none, however many layers it has.
const MAX_ALLOCATIONS: f64 = 32.0;
/// Interval between two samples of the allocated bytes.
const LOOK: Duration = Duration::from_millis(1);

#[derive(Clone, Copy)]
struct Case {
    batch: usize,
    prompt_tokens: usize,
    new_tokens: usize,
}

/// One load and its first request. Bytes are counted from before the load; peaks and allocations need a counting allocator.
struct Sample {
    info: ModelInfo,
    load_s: f64,
    /// Bytes after the load.
    loaded: f64,
    /// The peak while loading.
    load_peak: Option<f64>,
    /// The peak and the average during the request.
    peak: Option<f64>,
    average: f64,
    /// Bytes after the request, whose pages of keys and values are kept for the next.
    after: f64,
    /// Allocations per token of a sequence, in a repeated request.
    allocations_per_token: Option<f64>,
    /// Anonymous resident bytes after the load and after the request.
    resident: [Option<f64>; 2],
    ids: Vec<Vec<u32>>,
}

fn run(bench: &Bench<'_>, model: &BenchModel<'_>, values: &Values) -> Result<()> {
    let Flags { batches, prompt_tokens, new_tokens, runs } = Flags::of(values)?;
    within_batch("batch", &batches)?;
    for &threads in &bench.threads {
        let canary = bench.canary(threads)?;
        // The first sequence is the same in every batch.
        let mut first: Option<Vec<u32>> = None;
        for &batch in &batches {
            let case = Case { batch, prompt_tokens, new_tokens };
            let watched = canary.watch(runs, bench.clock, |_| {
                let sample = sample(bench, model, threads, case)?;
                check(model, case, &sample)?;
                let (ids, now) = (first.get_or_insert_with(|| sample.ids[0].clone()), &sample.ids[0]);
                verify(ids == now, || {
                    format!("greedy ids differ: {ids:?} and {now:?} in a batch of {batch}")
                })?;
                Ok::<_, LaneError>(sample)
            })?;
            let conditions = watched.iter().map(|w| w.condition).collect();
            let samples: Vec<Sample> = watched.into_iter().map(|w| w.value).collect();
            let row = row(case, &samples)?.conditions(conditions);
            bench.done(&format!("{threads} threads, batch {batch}"), vec![row])?;
        }
    }
    Ok(())
}

/// Loads the model, runs a batch, and measures memory meanwhile.
fn sample(bench: &Bench<'_>, model: &BenchModel<'_>, threads: usize, case: Case) -> Result<Sample> {
    let before = current_bytes();
    let since = |bytes: u64| bytes.saturating_sub(before) as f64;
    let resident = || Resident::now().anonymous_bytes.map(|bytes| bytes as f64);
    reset_peak();
    let setup = Setup { together: true, ..Setup::new(threads) };
    let (engine, load_ns) = bench.clock.time(|| (model.load)(setup));
    let engine = engine?;
    let (loaded, load_peak) = (since(current_bytes()), peak_bytes().map(since));
    let resident_loaded = resident();
    let tokens = case.prompt_tokens.saturating_add(case.new_tokens);
    within_context(tokens, engine.info())?;
    bench.fits_batch(case.batch, tokens, engine.info())?;
    lives_together(engine.info(), case)?;
    let (ids, average) = watched(|| request(&engine, case));
    Ok(Sample {
        ids: ids?,
        load_s: load_ns as f64 * 1e-9,
        loaded,
        load_peak,
        // The peak since the request began, including allocations by the sampling thread and the answer.
        peak: peak_bytes().map(since),
        average: average - before as f64,
        after: since(current_bytes()),
        resident: [resident_loaded, resident()],
        allocations_per_token: allocations_per_token(&engine, case)?,
        info: engine.info().clone(),
    })
}

/// Refuses a batch of which the first sequence would end before the last one begins: prompts share passes with those who generate.
fn lives_together(info: &ModelInfo, case: Case) -> Result<()> {
    let Case { batch, prompt_tokens, new_tokens } = case;
    let passes = (batch * prompt_tokens).div_ceil(info.max_chunk.saturating_sub(batch).max(1));
    require(info.objective != Objective::NEXT || new_tokens > passes, || {
        let fact = format!("{batch} prompts of {prompt_tokens} tokens take {passes} passes, so the first");
        format!("{fact} would end after {new_tokens} new tokens: give `--new-tokens {}`", passes + 1)
    })
}

/// Allocations per additional token of a sequence: the additional allocations of a request that generates twice as many tokens, divided
/// by the additional tokens. Both requests were run before, so first-time allocations do not count.
fn allocations_per_token(engine: &Engine, case: Case) -> Result<Option<f64>> {
    let longer = Case { new_tokens: 2 * case.new_tokens, ..case };
    if longer.prompt_tokens + longer.new_tokens > engine.info().context {
        return Ok(None);
    }
    let allocations_of = |case: Case| {
        request(engine, case)?;
        let before = allocations();
        request(engine, case)?;
        Ok::<_, LaneError>(allocations().zip(before).map(|(after, before)| (after - before) as f64))
    };
    let (few, many) = (allocations_of(case)?, allocations_of(longer)?);
    let tokens = (case.batch * case.new_tokens) as f64;
    Ok(many.zip(few).map(|(many, few)| (many - few).max(0.0) / tokens))
}

fn request(engine: &Engine, case: Case) -> Result<Vec<Vec<u32>>> {
    let info = engine.info();
    let prompts = Prompts::default().batch(case.batch, case.prompt_tokens, info.vocab);
    if info.objective == Objective::NEXT {
        return Ok(continue_together(engine, prompts, case.new_tokens)?.token_ids);
    }
    let canvas = |prompt| DiffuseRequest {
        ignore_eos: true,
        ..DiffuseRequest::new(Prompt::Ids(prompt), case.new_tokens)
    };
    let outcomes = diffuse(engine, prompts.into_iter().map(canvas))?;
    Ok(outcomes.into_iter().map(|outcome| outcome.token_ids).collect())
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

/// Bytes of activations in the largest pass of the batch. Prompts are read together, in passes of up to the engine's limit, with
/// logits after each; canvases are never run in pieces, and have logits for each mask.
fn activation_bytes(info: &ModelInfo, case: Case) -> u64 {
    let canvas = case.prompt_tokens + case.new_tokens;
    let (rows, outputs) = if info.objective == Objective::NEXT {
        ((case.batch * case.prompt_tokens).min(info.max_chunk), case.batch)
    } else {
        ((case.batch * canvas).min(info.max_chunk.max(canvas)), case.batch * case.new_tokens)
    };
    info.activation_bytes_per_row * rows as u64
        + info.activation_bytes_per_output * outputs.min(MAX_LOGITS_ROWS) as u64
}

/// Checks that packed weights take as much memory as in their file, and that a request takes the pages of its keys and
/// values.
fn check(model: &BenchModel<'_>, case: Case, sample: &Sample) -> Result<()> {
    let info = &sample.info;
    let ensure = |holds, fact: String| verify(holds, || format!("{fact}\n  in `{}`", info.name));
    if let Some(file) = model.packed_bytes {
        let memory = info.weight_bytes;
        let fact = format!("the weights take {memory} bytes in memory, but {file} in their file");
        ensure((memory as f64 / file as f64 - 1.0).abs() <= TOLERANCE, fact)?;
    }
    if let Some(peak) = sample.peak {
        let (kv, grown) = (kv_bytes(info, case), peak - sample.loaded);
        let fact = format!("a request with {kv} bytes of keys and values took only {grown} bytes");
        ensure(grown >= kv as f64, fact)?;
    }
    Ok(())
}

fn row(case: Case, samples: &[Sample]) -> Result<Row> {
    let Sample { info, ids, .. } = &samples[0];
    // Activations are reserved when the model is loaded; all other memory of a batch is allocated with it.
    let activations = activation_bytes(info, case) as f64;
    let item = |s: &Sample| Some((activations + s.peak? - s.loaded) / case.batch as f64);
    let row = Row::of_model(format!("memory/b{}/t{}", case.batch, info.threads), info)
        .param("batch", case.batch)
        .param("prompt_tokens", case.prompt_tokens)
        .param("new_tokens", case.new_tokens)
        .param("parameters", info.parameters)
        .digest(digest::of_ids(&ids.concat()))
        .measured(LANE.metrics, samples)
        .each("load_s", |s| s.load_s)?
        .each("loaded", |s| s.loaded)?
        .each("load_peak", |s| s.load_peak)?
        .each("peak", |s| s.peak)?
        .each("average", |s| s.average)?
        .one("weights", info.weight_bytes as f64)?
        .one("activations", activations)?
        .one("activations_reserved", info.activation_bytes as f64)?
        .one("kv", kv_bytes(info, case) as f64)?
        .each("grown", |s| (s.after - s.loaded).max(0.0))?
        .each("per_item", item)?
        .each("allocations_per_token", |s| s.allocations_per_token)?
        .each("rss_anon_loaded", |s| s.resident[0])?
        .each("rss_anon_first", |s| s.resident[1])?
        .row;
    // With a model that fills masks, a token may need a pass over a canvas, with lists of its rows.
    let by_token = info.objective == Objective::NEXT;
    let counted = by_token && samples.iter().any(|s| s.allocations_per_token.is_some());
    Ok(if counted { row.at_most("allocations_per_token", MAX_ALLOCATIONS) } else { row })
}

#[cfg(test)]
mod tests {
    use redline_engine::EngineError;

    use super::*;
    use crate::lanes::tests::{info, samples};

    const CASE: Case = Case { batch: 4, prompt_tokens: 60, new_tokens: 5 };

    fn sample() -> Sample {
        Sample {
            info: info(),
            load_s: 0.5,
            loaded: 3000.0,
            load_peak: Some(3500.0),
            peak: Some(3000.0 + 4096.0 + 104.0),
            average: 5000.0,
            after: 7100.0,
            allocations_per_token: Some(2.5),
            resident: [Some(9000.0), None],
            ids: vec![vec![1], vec![2]],
        }
    }

    #[test]
    fn keys_and_values_take_whole_pages() {
        assert_eq!(kv_bytes(&info(), CASE), 8 * 128 * 4);
        assert_eq!(kv_bytes(&info(), Case { batch: 1, new_tokens: 4, ..CASE }), 8 * 64);
    }

    #[test]
    fn activations_grow_with_the_batch_up_to_the_largest_pass() {
        let of = |batch| activation_bytes(&info(), Case { batch, ..CASE });
        assert_eq!(of(1), 60 * 4 + 10);
        assert_eq!((of(8), of(9)), (480 * 4 + 80, 512 * 4 + 90), "a pass has at most 512 tokens");
        assert_eq!(of(100), 512 * 4 + 640, "64 rows of logits are held at a time");
        let masked = ModelInfo { objective: Objective { shift: 1, ..Objective::MASKED }, ..info() };
        let of =
            |batch, prompt_tokens| activation_bytes(&masked, Case { batch, prompt_tokens, new_tokens: 5 });
        assert_eq!((of(2, 60), of(9, 60)), (130 * 4 + 100, 512 * 4 + 450));
        assert_eq!(of(4, 1000), 1005 * 4 + 200, "a canvas is run whole");
    }

    #[test]
    fn a_row_tells_bytes_per_item() {
        let row = row(CASE, &[sample(), Sample { peak: None, ..sample() }]).unwrap();
        let values = |name: &str| samples(&row, name);
        // Four prompts of 60 tokens in one pass, and a row of logits after each.
        assert_eq!(values("per_item"), [(240.0 * 4.0 + 4.0 * 10.0 + 4200.0) / 4.0]);
        assert_eq!((values("peak"), values("loaded")), (vec![7200.0], vec![3000.0; 2]));
        assert_eq!(
            (values("weights"), values("kv"), values("activations")),
            (vec![2000.0], vec![4096.0], vec![1000.0])
        );
        assert_eq!(values("activations_reserved"), [400.0]);
        assert_eq!((values("grown"), values("rss_anon_loaded").len()), (vec![4100.0; 2], 2));
        assert!(values("rss_anon_first").is_empty());
    }

    #[test]
    fn a_batch_of_which_the_first_ends_before_the_last_begins_is_refused() {
        let info = ModelInfo { max_chunk: 110, ..sample().info };
        let of = |batch, new_tokens| lives_together(&info, Case { batch, prompt_tokens: 50, new_tokens });
        // Ten prompts of 50 tokens take five passes with room for 100.
        assert!(of(1, 2).is_ok() && of(10, 6).is_ok());
        let Err(LaneError::Usage(fact)) = of(10, 5) else { panic!("not refused") };
        assert!(fact.contains("take 5 passes") && fact.ends_with("give `--new-tokens 6`"), "{fact}");
    }

    #[test]
    fn what_does_not_add_up_is_incorrect() {
        let with = |packed_bytes, peak| {
            let load = &|_| Err(EngineError::Stopped);
            let model =
                BenchModel { load, packed_bytes, plan_cache: None, kv_format: None, text: "", judge: None };
            check(&model, CASE, &Sample { peak, ..sample() })
        };
        assert!(with(None, None).is_ok() && with(Some(2090), Some(7096.0)).is_ok());
        let fact = |result: Result<()>| match result {
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

    #[test]
    fn allocations_are_limited_where_a_token_is_a_pass() {
        let with = |objective, allocations_per_token| {
            let info = ModelInfo { objective, ..info() };
            row(CASE, &[Sample { info, allocations_per_token, ..sample() }]).unwrap()
        };
        assert_eq!(with(Objective::NEXT, Some(32.0)).gates.len(), 1);
        assert!(with(Objective::NEXT, Some(32.0)).missed().is_empty());
        assert_eq!(with(Objective::NEXT, Some(32.5)).missed().len(), 1);
        // Where nobody counts allocations, there is nothing to limit.
        assert!(with(Objective::NEXT, None).gates.is_empty());
        assert!(with(Objective::MASKED, Some(99.0)).gates.is_empty());
    }
}
