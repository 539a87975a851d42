//! The five tests of the lane `plan-cache`.

use std::path::{Path, PathBuf};

use redline_engine::{Buckets, Engine, GenerateOutcome, GenerateRequest, MAX_LOGITS_ROWS, PlanPolicy};
use redline_system::memory::current_bytes;
use tempfile::TempDir;

use super::{GOOD, LANE, grade_of_calls, grade_of_precompilation};
use crate::bench::PlanSetup;
use crate::bench::requests::{Prompts, continuation, continue_together, generate, ids};
use crate::lanes::prelude::*;

/// New tokens per call; those after the first are passes of one token.
const NEW_TOKENS: usize = 3;

/// Allowed growth in bytes over calls that find their plans: the engine's records of passes.
const MAX_GROWTH: f64 = (1 << 20) as f64;

/// Policies that must all give the same bits.
const POLICIES: &[PlanPolicy] =
    &[PlanPolicy::Tune, PlanPolicy::Estimate, PlanPolicy::Forbid, PlanPolicy::Off];

pub(super) struct Steps<'a> {
    pub(super) bench: &'a Bench<'a>,
    pub(super) model: &'a BenchModel<'a>,
    pub(super) threads: usize,
    pub(super) tokens: &'a [usize],
    pub(super) rows: &'a [usize],
    pub(super) calls: usize,
}

/// A call with so many tokens, and the seconds it took.
struct Call {
    tokens: usize,
    seconds: f64,
    outcome: GenerateOutcome,
}

impl Steps<'_> {
    fn load(&self, policy: PlanPolicy, cache: Option<&Path>) -> Result<Engine> {
        let (tokens, rows) = (self.tokens.to_vec(), self.rows.to_vec());
        let plans = PlanSetup { policy, cache: cache.map(PathBuf::from), tokens, rows };
        Ok((self.model.load)(Setup { plans: Some(plans), ..Setup::new(self.threads) })?)
    }

    /// The directory where plans are stored: the one that the user named, or a new one.
    fn folder(&self) -> Result<PlanFolder> {
        let named = self.model.plan_cache.clone().map(PlanFolder::Named);
        named.map_or_else(|| folder().map(PlanFolder::New), Ok)
    }

    /// The smallest prompt size.
    fn first_size(&self) -> usize {
        self.tokens.first().copied().unwrap_or(1)
    }

    fn call(&self, engine: &Engine, wanted: usize) -> Result<Call> {
        let tokens = length(engine, wanted);
        let prompt = ids(tokens, 0, engine.info().vocab);
        let request = GenerateRequest { logprobs: Some(1), ..continuation(prompt, NEW_TOKENS) };
        let (outcome, ns) = self.bench.clock.time(|| generate(engine, request));
        Ok(Call { tokens, seconds: ns as f64 * 1e-9, outcome: outcome? })
    }

    /// Calls every size in turn, as often as later calls are to be.
    fn calls(&self, engine: &Engine, sizes: &[usize]) -> Result<Vec<Call>> {
        let all = (0..self.calls).flat_map(|_| sizes);
        all.map(|&size| self.call(engine, size)).collect()
    }

    /// The first call measures what is not stored; the second finds everything.
    pub(super) fn hit_rate(&self) -> Result<Row> {
        let folder = self.folder()?;
        let engine = self.load(PlanPolicy::Tune, Some(folder.path()))?;
        let first = self.call(&engine, self.first_size())?;
        let later = self.calls(&engine, &[self.first_size()])?;
        for call in &later {
            no_misses("a call like the one before", call.outcome.plan_misses)?;
        }
        let speedup = first.seconds / median_s(&later)?;
        let row = row(&engine, "cache-hit-rate", grade_of_calls(0, speedup))
            .measured(LANE.metrics, &later)
            .one("first", first.seconds)?
            .one("first_misses", first.outcome.plan_misses as f64)?
            .each("second", |call| call.seconds)?
            .one("second_misses", 0.0)?
            .one("speedup", speedup)?
            .one("measurements", engine.plan_counters().measurements as f64)?;
        Ok(row.row)
    }

    /// Two processes in sequence make a plan for every size; then the first request of an engine finds them.
    pub(super) fn precompile(&self) -> Result<Row> {
        let folder = self.folder()?;
        let first = self.process(folder.path())?;
        let second = self.process(folder.path())?;
        let Counters { misses, measurements } = second.counters;
        no_misses("precompiling again in another process", misses)?;
        verify(measurements == 0, || format!("{measurements} timings in the second process"))?;
        let speedup = first.precompile_s / second.precompile_s;
        let engine = self.load(PlanPolicy::Forbid, Some(folder.path()))?;
        let begin = self.call(&engine, self.first_size())?;
        let steady = self.calls(&engine, &[self.first_size()])?;
        let row = row(&engine, "precompile", grade_of_precompilation(misses, speedup))
            .measured(LANE.metrics, &steady)
            .one("first", first.precompile_s)?
            .one("first_misses", first.counters.misses as f64)?
            .one("second", second.precompile_s)?
            .one("second_misses", misses as f64)?
            .one("speedup", speedup)?
            .one("plans", first.plans.len() as f64)?
            .one("measurements", first.counters.measurements as f64)?
            .one("first_over_steady", begin.seconds / median_s(&steady)?)?
            .each("steady", |call| call.seconds)?
            .all("tuning_gain", first.plans.iter().filter_map(|plan| plan.gain).collect())?;
        Ok(row.row)
    }

    /// Sequences of each batch: the planned numbers of rows that decode together.
    fn batches(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().copied().filter(|&batch| batch <= MAX_LOGITS_ROWS)
    }

    /// Decodes batches of each size. Returns the number of plans that were missing.
    fn decode_batches(&self, engine: &Engine) -> Result<u64> {
        let before = engine.plan_counters().misses;
        for batch in self.batches() {
            let tokens = length(engine, self.first_size());
            self.bench.fits_batch(batch, tokens + NEW_TOKENS, engine.info())?;
            let prompts = Prompts::default().batch(batch, tokens, engine.info().vocab);
            continue_together(engine, prompts, NEW_TOKENS)?;
        }
        Ok(engine.plan_counters().misses - before)
    }

    /// Every size of prompt and of batch misses once and never again, whatever runs in between.
    pub(super) fn batch_sizes(&self) -> Result<Row> {
        let engine = self.load(PlanPolicy::Estimate, None)?;
        let sizes: Vec<usize> = self.tokens.iter().rev().map(|&n| length(&engine, n)).collect();
        let first = sizes.iter().rev().map(|&size| self.call(&engine, size));
        let first = first.collect::<Result<Vec<Call>, _>>()?;
        let misses: u64 = first.iter().map(|call| call.outcome.plan_misses).sum();
        let buckets = Buckets::new(self.tokens, self.rows, engine.info().max_chunk).all().len() as u64;
        verify((1..=buckets).contains(&misses), || {
            format!("{misses} misses of {buckets} plans by calls of {} sizes", sizes.len())
        })?;
        let later = self.calls(&engine, &sizes)?;
        for Call { tokens, outcome, .. } in &later {
            no_misses(&format!("a call of {tokens} tokens, like one before"), outcome.plan_misses)?;
        }
        let batch_misses = self.decode_batches(&engine)?;
        verify(misses + batch_misses <= buckets, || {
            format!("{misses} misses by calls and {batch_misses} by batches, but there are {buckets} plans")
        })?;
        no_misses("decoding the same batches again", self.decode_batches(&engine)?)?;
        let batches = self.batches().map(|batch| batch.to_string()).collect::<Vec<_>>().join(" ");
        let row = row(&engine, "batch-sizes", GOOD)
            .param("batches", batches)
            .measured(LANE.metrics, &later)
            .all("first", first.iter().map(|call| call.seconds).collect())?
            .one("first_misses", misses as f64)?
            .each("second", |call| call.seconds)?
            .one("second_misses", 0.0)?
            .one("batch_misses", batch_misses as f64)?;
        Ok(row.row)
    }

    /// Every policy gives the same tokens with the same bits.
    pub(super) fn correctness(&self) -> Result<Row> {
        let folder = self.folder()?;
        let engine = self.load(PlanPolicy::Tune, Some(folder.path()))?;
        engine.precompile()?;
        let row = row(&engine, "correctness", GOOD);
        drop(engine);
        let (mut expected, mut calls): (Option<Vec<u32>>, _) = (None, Vec::new());
        for &policy in POLICIES {
            let engine = self.load(policy, Some(folder.path()))?;
            let first = calls.len();
            for &size in self.tokens {
                calls.push(self.call(&engine, size)?);
            }
            let answers: Vec<u32> = calls[first..].iter().flat_map(|call| bits(&call.outcome)).collect();
            verify(*expected.get_or_insert_with(|| answers.clone()) == answers, || {
                format!("tokens or log-probabilities differ under policy {}", policy.name())
            })?;
        }
        let row = row
            .digest(digest::of_ids(&expected.unwrap_or_default()))
            .measured(LANE.metrics, &calls)
            .one("policies", POLICIES.len() as f64)?
            .each("call", |call| call.seconds)?;
        Ok(row.row)
    }

    /// Calls that find their plans take no more memory than the first call of their size.
    pub(super) fn memory(&self) -> Result<Row> {
        let engine = self.load(PlanPolicy::Estimate, None)?;
        let largest = self.tokens.last().copied().unwrap_or(1);
        self.call(&engine, largest)?;
        let settled = current_bytes() as f64;
        let (mut growth, mut peaks) = (Vec::new(), Vec::new());
        for _ in 0..self.calls {
            for &size in self.tokens {
                let outcome = self.call(&engine, size)?.outcome;
                growth.push(current_bytes() as f64 - settled);
                peaks.extend(outcome.peak_memory_bytes.map(|bytes| bytes as f64));
            }
        }
        let most = growth.iter().copied().fold(0.0, f64::max);
        verify(most <= MAX_GROWTH, || format!("memory grew by {most} bytes over calls of known sizes"))?;
        let row = row(&engine, "memory", GOOD)
            .measured(LANE.metrics, &growth)
            .each("growth", |bytes| *bytes)?
            .all("peak_memory", peaks)?;
        Ok(row.row)
    }

    /// Runs `redline precompile` in a new process.
    fn process(&self, cache: &Path) -> Result<Precompiled> {
        let list = |sizes: &[usize]| sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let words = [
            "precompile".to_owned(),
            "--json".to_owned(),
            format!("--threads={}", self.threads),
            "--plan-policy=tune".to_owned(),
            format!("--plan-cache={}", cache.display()),
            format!("--plan-tokens={}", list(self.tokens)),
            format!("--plan-rows={}", list(self.rows)),
        ];
        let text = (self.bench.process)(&words).map_err(LaneError::Incorrect)?;
        serde_json::from_str(&text)
            .map_err(|_| LaneError::Incorrect(format!("`redline precompile --json` said: {text}")))
    }
}

/// The output of `redline precompile --json`.
#[derive(Debug, PartialEq, serde::Deserialize)]
struct Precompiled {
    precompile_s: f64,
    counters: Counters,
    plans: Vec<Plan>,
}

#[derive(Debug, PartialEq, serde::Deserialize)]
struct Counters {
    misses: u64,
    measurements: u64,
}

#[derive(Debug, PartialEq, serde::Deserialize)]
struct Plan {
    gain: Option<f64>,
}

/// The largest prompt length up to `wanted` that fits the context together with its continuation.
fn length(engine: &Engine, wanted: usize) -> usize {
    wanted.min(engine.info().context.saturating_sub(NEW_TOKENS)).max(1)
}

fn row(engine: &Engine, test: &'static str, grade: &'static str) -> Row {
    let info = engine.info();
    Row::new(format!("{test}/t{}/tp{}", info.threads, info.tp))
        .param("model", info.name.clone())
        .param("test", test)
        .param("threads", info.threads)
        .param("tp", info.tp)
        .param("format", info.format.to_string())
        .param("kv_format", info.kv_format.name())
        .param("grade", grade)
        .checked_on(info.kernel_path.clone())
}

/// A directory of stored plans.
enum PlanFolder {
    /// Named by the user; it stays.
    Named(PathBuf),
    /// Empty at first, and removed after the test.
    New(TempDir),
}

impl PlanFolder {
    fn path(&self) -> &Path {
        match self {
            Self::Named(path) => path,
            Self::New(folder) => folder.path(),
        }
    }
}

fn folder() -> Result<TempDir> {
    tempfile::tempdir().map_err(|error| LaneError::Usage(format!("no folder for plans: {error}")))
}

fn median_s(calls: &[Call]) -> Result<f64> {
    let seconds = calls.iter().map(|call| call.seconds).collect();
    Ok(Samples::new("s", Direction::Lower, seconds)?.median().unwrap_or(f64::NAN))
}

fn no_misses(what: &str, misses: u64) -> Result<()> {
    verify(misses == 0, || format!("{what} missed {misses} plans"))
}

/// Tokens and the bits of their log-probabilities.
fn bits(outcome: &GenerateOutcome) -> Vec<u32> {
    let chosen = outcome.logprobs.iter().flatten().map(|position| position.chosen.logprob.to_bits());
    outcome.token_ids.iter().copied().chain(chosen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_read() {
        let text = r#"{"plans":[{"gain":1.25},{"gain":null}],"counters":{"misses":2,"compiles":2,
            "measurements":9,"loads":0},"precompile_s":0.5}"#;
        let read = |text| serde_json::from_str::<Precompiled>(text).ok();
        let counters = Counters { misses: 2, measurements: 9 };
        let plans = vec![Plan { gain: Some(1.25) }, Plan { gain: None }];
        assert_eq!(read(text), Some(Precompiled { precompile_s: 0.5, counters, plans }));
        assert_eq!((read("{}"), read("error")), (None, None));
        assert!(no_misses("a call", 0).is_ok() && no_misses("a call", 1).is_err());
    }
}
