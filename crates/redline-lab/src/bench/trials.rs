//! Timed runs of a loaded model.

use redline_engine::{Engine, ModelInfo};
use redline_kernels::Simd;

use super::{Bench, BenchModel, Result, Setup, within_context};
use crate::limits::Probe;
use crate::roofline::{Arithmetics, Held};
use crate::warmup::{self, Warmup};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Runs {
    /// Runs that count.
    pub(crate) timed: usize,
    /// Least number of runs before them.
    pub(crate) warmups: usize,
}

/// A loaded model, whose runs are timed between readings of the machine's limits.
pub(crate) struct Trials<'a> {
    pub(crate) bench: &'a Bench<'a>,
    pub(crate) engine: Engine,
    pub(crate) runs: Runs,
    probe: Probe,
}

impl<'a> Trials<'a> {
    /// Loads the model for sequences of up to `tokens` tokens.
    pub(crate) fn load(
        bench: &'a Bench<'a>,
        model: &BenchModel<'_>,
        setup: Setup,
        runs: Runs,
        tokens: usize,
    ) -> Result<Self> {
        let engine = (model.load)(setup)?;
        let info = engine.info();
        within_context(tokens, info)?;
        let simd = Simd::new(info.tier).unwrap_or_else(|_| Simd::best());
        let probe = bench.probe(info.threads, simd, info.bytes_per_token as usize)?;
        Ok(Self { bench, engine, runs, probe })
    }

    pub(crate) fn info(&self) -> &ModelInfo {
        self.engine.info()
    }

    /// Calls `run` until nothing happens for the first time. It takes the number of the run.
    pub(crate) fn warm_up(&self, run: impl FnMut(usize) -> Result<()>) -> Result<Warmup> {
        warmup::warm_up(self.bench.clock, self.runs.warmups, || self.engine.plan_counters().misses, run)
    }

    /// Takes the samples of a case with `arms` arms. `run` takes the number of the sample; arms take turns.
    pub(crate) fn take<T>(&self, arms: usize, run: impl FnMut(usize) -> Result<T>) -> Result<Vec<Held<T>>> {
        let samples = self.runs.timed.saturating_mul(arms);
        self.probe.hold(samples, Arithmetics::of(self.info()), self.bench.clock, run)
    }

    /// Warms up, then takes the samples of a case with one arm.
    pub(crate) fn run<T>(&self, run: impl Fn() -> Result<T>) -> Result<(Warmup, Vec<Held<T>>)> {
        let warmup = self.warm_up(|_| run().map(drop))?;
        Ok((warmup, self.take(1, |_| run())?))
    }
}
