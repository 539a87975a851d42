//! The five tests of the lane `plan-cache`.

use std::path::{Path, PathBuf};

use redline_engine::{Buckets, Cancel, Engine, GenerateOutcome, GenerateRequest, PlanPolicy, Prompt, Ticket};
use serde_json::Value;
use tempfile::TempDir;

use super::{Grade, POLICIES};
use crate::bench::{Bench, LaneError, Model, PlanSetup, Setup, asked};
use crate::digest;
use crate::{Direction, Row, Samples};

/// New tokens per call; those after the first are passes of one token.
const NEW_TOKENS: usize = 3;

/// The context of the tests.
pub(super) struct Steps<'a> {
    pub(super) bench: &'a Bench<'a>,
    pub(super) model: &'a Model<'a>,
    pub(super) threads: usize,
    pub(super) tokens: &'a [usize],
    pub(super) rows: &'a [usize],
    pub(super) calls: usize,
}

/// A call and the seconds it took.
struct Call {
    seconds: f64,
    outcome: GenerateOutcome,
}

impl Steps<'_> {
    fn load(&self, policy: PlanPolicy, cache: Option<&Path>) -> Result<Engine, LaneError> {
        let (tokens, rows) = (self.tokens.to_vec(), self.rows.to_vec());
        let plans = PlanSetup { policy, cache: cache.map(PathBuf::from), tokens, rows };
        Ok((self.model.load)(Setup { plans: Some(plans), ..Setup::new(self.threads) })?)
    }

    /// The smallest prompt size.
    fn first_size(&self) -> usize {
        self.tokens.first().copied().unwrap_or(1)
    }

    fn call(&self, engine: &Engine, wanted: usize) -> Result<Call, LaneError> {
        let vocab = engine.info().vocab;
        let tokens = length(engine, wanted);
        let prompt = asked::ids(tokens, 0, vocab);
        let request = GenerateRequest {
            ignore_eos: true,
            logprobs: Some(1),
            ..GenerateRequest::new(Prompt::Ids(prompt), NEW_TOKENS)
        };
        let (outcome, ns) =
            self.bench.clock.time(|| engine.submit_generate(request, &Cancel::new()).and_then(Ticket::wait));
        Ok(Call { seconds: ns as f64 * 1e-9, outcome: outcome? })
    }

    /// The first call on an empty cache measures; the second finds everything.
    pub(super) fn hit_rate(&self) -> Result<Row, LaneError> {
        let folder = folder()?;
        let engine = self.load(PlanPolicy::Tune, Some(folder.path()))?;
        let first = self.call(&engine, self.first_size())?;
        let mut later = Vec::new();
        for _ in 0..self.calls {
            let call = self.call(&engine, self.first_size())?;
            no_misses("a call like the one before", call.outcome.plan_misses)?;
            later.push(call.seconds);
        }
        let second = Samples::new("s", Direction::Lower, later)?;
        let speedup = first.seconds / second.median().unwrap_or(f64::NAN);
        let counters = engine.plan_counters();
        Ok(row(&engine, "cache-hit-rate", Grade::of_calls(0, speedup))
            .metric("first", one("s", first.seconds)?)
            .metric("first_misses", one("misses", first.outcome.plan_misses as f64)?)
            .metric("second", second)
            .metric("second_misses", one("misses", 0.0)?)
            .metric("speedup", one("x", speedup)?)
            .metric("measurements", one("timings", counters.measurements as f64)?))
    }

    /// Two processes in sequence make a plan for every size; then the first request of an engine finds them.
    pub(super) fn precompile(&self) -> Result<Row, LaneError> {
        let folder = folder()?;
        let first = self.process(folder.path())?;
        let second = self.process(folder.path())?;
        no_misses("precompiling again in another process", second.misses)?;
        if second.measurements > 0 {
            let fact = format!("{} timings in the second process", second.measurements);
            return Err(LaneError::Incorrect(fact));
        }
        let speedup = first.seconds / second.seconds;
        let engine = self.load(PlanPolicy::Forbid, Some(folder.path()))?;
        let begin = self.call(&engine, self.first_size())?;
        let mut steady = Vec::new();
        for _ in 0..self.calls {
            steady.push(self.call(&engine, self.first_size())?.seconds);
        }
        let steady = Samples::new("s", Direction::Lower, steady)?;
        let over = begin.seconds / steady.median().unwrap_or(f64::NAN);
        Ok(row(&engine, "precompile", Grade::of_precompilation(second.misses, speedup))
            .metric("first", one("s", first.seconds)?)
            .metric("first_misses", one("misses", first.misses as f64)?)
            .metric("second", Samples::new("s", Direction::Lower, vec![second.seconds])?)
            .metric("second_misses", one("misses", second.misses as f64)?)
            .metric("speedup", one("x", speedup)?)
            .metric("plans", one("plans", first.plans as f64)?)
            .metric("measurements", one("timings", first.measurements as f64)?)
            .metric("first_over_steady", one("x", over)?)
            .metric("steady", steady)
            .metric("tuning_gain", Samples::new("x", Direction::Info, first.gains)?))
    }

    /// Every size misses once and never again, whatever runs in between.
    pub(super) fn batch_sizes(&self) -> Result<Row, LaneError> {
        let engine = self.load(PlanPolicy::Estimate, None)?;
        let sizes: Vec<usize> = self.tokens.iter().map(|&n| length(&engine, n)).collect();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let mut misses = 0;
        for &size in &sizes {
            let call = self.call(&engine, size)?;
            misses += call.outcome.plan_misses;
            first.push(call.seconds);
        }
        let buckets = Buckets::new(self.tokens, self.rows, engine.info().max_chunk).all().len() as u64;
        if misses == 0 || misses > buckets {
            let fact = format!("{misses} misses of {buckets} plans by calls of {} sizes", sizes.len());
            return Err(LaneError::Incorrect(fact));
        }
        for _ in 0..self.calls {
            for &size in sizes.iter().rev() {
                let call = self.call(&engine, size)?;
                no_misses(&format!("a call of {size} tokens, like one before"), call.outcome.plan_misses)?;
                second.push(call.seconds);
            }
        }
        Ok(row(&engine, "batch-sizes", Grade::Good)
            .metric("first", Samples::new("s", Direction::Info, first)?)
            .metric("first_misses", one("misses", misses as f64)?)
            .metric("second", Samples::new("s", Direction::Lower, second)?)
            .metric("second_misses", one("misses", 0.0)?))
    }

    /// Every policy gives the same tokens with the same bits.
    pub(super) fn correctness(&self) -> Result<Row, LaneError> {
        let folder = folder()?;
        self.load(PlanPolicy::Tune, Some(folder.path()))?.precompile()?;
        let mut expected: Option<Vec<u32>> = None;
        let (mut seconds, mut last) = (Vec::new(), None);
        for &policy in POLICIES {
            let engine = self.load(policy, Some(folder.path()))?;
            let mut found = Vec::new();
            for &size in self.tokens {
                let call = self.call(&engine, size)?;
                seconds.push(call.seconds);
                found.extend(bits(&call.outcome));
            }
            if *expected.get_or_insert_with(|| found.clone()) != found {
                let fact = format!("tokens or log-probabilities differ under policy {}", policy.name());
                return Err(LaneError::Incorrect(fact));
            }
            last = Some(engine);
        }
        let engine = last.ok_or_else(|| LaneError::Incorrect("no policy was run".into()))?;
        let row = row(&engine, "correctness", Grade::Good);
        Ok(row
            .digest(digest::of_ids(&expected.unwrap_or_default()))
            .metric("policies", one("policies", POLICIES.len() as f64)?)
            .metric("call", Samples::new("s", Direction::Lower, seconds)?))
    }

    /// Calls that find their plans take no more memory than the first call of their size.
    pub(super) fn memory(&self) -> Result<Row, LaneError> {
        let engine = self.load(PlanPolicy::Estimate, None)?;
        let largest = self.tokens.last().copied().unwrap_or(1);
        self.call(&engine, largest)?;
        let settled = redline_kernels::memory::current_bytes() as f64;
        let (mut growth, mut peaks) = (Vec::new(), Vec::new());
        for _ in 0..self.calls {
            for &size in self.tokens {
                let outcome = self.call(&engine, size)?.outcome;
                growth.push(redline_kernels::memory::current_bytes() as f64 - settled);
                peaks.extend(outcome.peak_memory_bytes.map(|bytes| bytes as f64));
            }
        }
        let most = growth.iter().copied().fold(0.0, f64::max);
        if most > MOST_GROWTH {
            return Err(LaneError::Incorrect(format!(
                "memory grew by {most} bytes over calls of known sizes"
            )));
        }
        Ok(row(&engine, "memory", Grade::Good)
            .metric("growth", Samples::new("bytes", Direction::Lower, growth)?)
            .metric("peak_memory", Samples::new("bytes", Direction::Lower, peaks)?))
    }

    /// Runs `redline precompile` in a new process.
    fn process(&self, cache: &Path) -> Result<Precompiled, LaneError> {
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
        Precompiled::read(&text)
            .ok_or_else(|| LaneError::Incorrect(format!("`redline precompile --json` said: {text}")))
    }
}

/// Allowed growth in bytes over calls that find their plans: the engine's records of passes.
const MOST_GROWTH: f64 = (1 << 20) as f64;

/// The output of `redline precompile --json`.
#[derive(Debug, PartialEq)]
struct Precompiled {
    seconds: f64,
    misses: u64,
    measurements: u64,
    plans: usize,
    gains: Vec<f64>,
}

impl Precompiled {
    fn read(text: &str) -> Option<Self> {
        let document: Value = serde_json::from_str(text).ok()?;
        let counter = |name: &str| document["counters"][name].as_u64();
        let plans = document["plans"].as_array()?;
        Some(Self {
            seconds: document["precompile_s"].as_f64()?,
            misses: counter("misses")?,
            measurements: counter("measurements")?,
            plans: plans.len(),
            gains: plans.iter().filter_map(|plan| plan["gain"].as_f64()).collect(),
        })
    }
}

/// The largest prompt length up to `wanted` that fits the context together with its continuation.
fn length(engine: &Engine, wanted: usize) -> usize {
    wanted.min(engine.info().context.saturating_sub(NEW_TOKENS)).max(1)
}

/// The row of a test.
fn row(engine: &Engine, test: &'static str, grade: Grade) -> Row {
    let info = engine.info();
    let mut row = Row::new(format!("{test}/t{}/tp{}", info.threads, info.tp))
        .param("model", info.name.clone())
        .param("test", test)
        .param("threads", info.threads)
        .param("tp", info.tp)
        .param("format", info.format.to_string())
        .param("kv_format", info.kv_format.name())
        .param("grade", grade.name());
    row.kernel_path = Some(info.kernel_path.clone());
    row.checked = true;
    row
}

fn folder() -> Result<TempDir, LaneError> {
    tempfile::tempdir().map_err(|error| LaneError::Usage(format!("no folder for plans: {error}")))
}

fn one(unit: &str, value: f64) -> Result<Samples, LaneError> {
    Ok(Samples::new(unit, Direction::Info, vec![value])?)
}

fn no_misses(what: &str, misses: u64) -> Result<(), LaneError> {
    if misses == 0 { Ok(()) } else { Err(LaneError::Incorrect(format!("{what} missed {misses} plans"))) }
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
        let expected = Precompiled { seconds: 0.5, misses: 2, measurements: 9, plans: 2, gains: vec![1.25] };
        assert_eq!(Precompiled::read(text), Some(expected));
        assert_eq!(Precompiled::read("{}"), None);
        assert_eq!(Precompiled::read("error"), None);
        assert!(no_misses("a call", 0).is_ok() && no_misses("a call", 1).is_err());
    }
}
