//! The environment in which a lane runs: the machine, the measured model or tokenizer, the flags, and the recorder of
//! rows.

pub(crate) mod asked;
mod error;
mod flags;

use std::path::PathBuf;

use redline_engine::{Engine, EngineError, MAX_BATCH, ModelInfo, PlanPolicy};
use redline_kernels::{Simd, Tier};
use redline_tokenizer::{Encoder, Tokenizer, TokenizerError};

pub use error::LaneError;
pub use flags::{ALIASES, Flag, Values};

use crate::canary::Canary;
use crate::number;
use crate::warmup::{self, Warmup};
use crate::{Clock, Machine, Row};

/// The environment in which a lane runs.
pub struct Bench<'a> {
    /// The clock.
    pub clock: &'a Clock,
    /// This computer.
    pub machine: Machine,
    /// Thread counts to run with, in this order.
    pub threads: Vec<usize>,
    /// The tier to run; `None` for the fastest.
    pub tier: Option<Tier>,
    /// Reports finished work to a waiting user.
    pub progress: &'a dyn Fn(&str),
    /// Records the rows of a finished case at once, so that they are not lost if the next case fails.
    pub record: &'a dyn Fn(Vec<Row>) -> Result<(), LaneError>,
    /// Runs a command of this program in a new process. Returns its standard output, or its error message.
    pub process: &'a dyn Fn(&[String]) -> Result<String, String>,
}

/// The measured model.
pub struct Model<'a> {
    /// Loads the model.
    pub load: &'a dyn Fn(Setup) -> Result<Engine, EngineError>,
    /// Size of the packed weights in their file, which is also their size in memory; `None` if they were not packed.
    pub packed_bytes: Option<u64>,
    /// A second model that judges the text of this one; available for embedded models.
    pub judge: Option<Judge<'a>>,
}

/// A model that predicts the next token, with the vocabulary of the measured one.
pub struct Judge<'a> {
    /// Loads the judge with this number of threads.
    pub load: &'a dyn Fn(usize) -> Result<Engine, EngineError>,
    /// Text on which neither model was trained.
    pub text: &'a str,
}

/// The measured tokenizer.
pub struct Text<'a> {
    /// The name of the model or the file.
    pub name: &'a str,
    /// Loads the tokenizer with a given encoder.
    pub tokenizer: &'a dyn Fn(Encoder) -> Result<Tokenizer, TokenizerError>,
}

/// How a lane loads the model. Other settings are as on the command line.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Threads.
    pub threads: usize,
    /// Whether passes may run on fewer threads.
    pub adaptive_threads: bool,
    /// Whether the prefix cache is on.
    pub prefix_cache: bool,
    /// How passes are planned; `None` for the settings of the command line.
    pub plans: Option<PlanSetup>,
}

/// The plan settings of a lane.
#[derive(Clone, Debug)]
pub struct PlanSetup {
    /// The policy for missing plans.
    pub policy: PlanPolicy,
    /// The plan directory; `None` if plans are not stored.
    pub cache: Option<PathBuf>,
    /// Pass sizes in tokens that have a plan.
    pub tokens: Vec<usize>,
    /// Row counts that have a plan.
    pub rows: Vec<usize>,
}

impl Setup {
    /// A setup with this number of threads and without a prefix cache.
    pub fn new(threads: usize) -> Self {
        Self { threads, adaptive_threads: false, prefix_cache: false, plans: None }
    }
}

impl Bench<'_> {
    /// The tier to run.
    pub fn simd(&self) -> Simd {
        self.tier.and_then(|tier| Simd::new(tier).ok()).unwrap_or_else(Simd::best)
    }

    /// Records the rows of a finished case and reports it as `what`.
    pub fn done(&self, what: &str, rows: Vec<Row>) -> Result<(), LaneError> {
        (self.progress)(what);
        (self.record)(rows)
    }

    /// Runs `run` at least `least` times, until nothing happens for the first time. `misses` returns the number of plans
    /// made so far.
    pub(crate) fn warm_up(
        &self,
        least: usize,
        misses: impl Fn() -> u64,
        run: impl FnMut(usize) -> Result<(), LaneError>,
    ) -> Result<Warmup, LaneError> {
        warmup::warm_up(self.clock, least, misses, run)
    }

    /// A canary, for work that is not compared with the machine's limits.
    pub(crate) fn canary(&self, threads: usize) -> Result<Canary, LaneError> {
        Ok(Canary::new(threads, self.simd())?)
    }

    /// Returns an error if `bytes` exceed the free memory. The message contains `what` and its size.
    pub fn fits(&self, what: &str, bytes: f64) -> Result<(), LaneError> {
        let free = self.machine.free_bytes();
        if bytes <= free as f64 {
            return Ok(());
        }
        let (need, free) = (number::bytes(bytes as u64), number::bytes(free));
        Err(LaneError::Usage(format!("{what} would take {need}, but {free} of memory are free")))
    }
}

/// Returns an error for sequences longer than the model's context.
pub(crate) fn within_context(tokens: usize, info: &ModelInfo) -> Result<(), LaneError> {
    if tokens <= info.context {
        return Ok(());
    }
    let fact = format!("sequences of {tokens} tokens exceed the context of {}", info.context);
    Err(LaneError::Usage(format!("{fact}\n  in `{}`", info.name)))
}

/// Returns an error for batches larger than the engine decodes.
pub(crate) fn within_batch(batches: &[usize]) -> Result<(), LaneError> {
    match batches.iter().find(|&&batch| batch > MAX_BATCH) {
        None => Ok(()),
        Some(batch) => {
            Err(LaneError::Usage(format!("`--batch` is {batch}, but at most {MAX_BATCH} decode together")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::tests::info;

    #[test]
    fn what_does_not_fit_is_refused_with_numbers() {
        let mut machine = Machine::default();
        machine.memory.available_bytes = Some(3 << 20);
        let clock = Clock::scripted(|| 0);
        let bench = Bench {
            clock: &clock,
            machine,
            threads: vec![1],
            tier: None,
            progress: &|_| (),
            record: &|_| Ok(()),
            process: &|_| Err(String::new()),
        };
        assert!(bench.fits("it", f64::from(3 << 20)).is_ok());
        let LaneError::Usage(fact) = bench.fits("it", 1e30).unwrap_err() else { panic!() };
        assert!(fact.starts_with("it would take") && fact.contains("3 MiB"), "{fact}");
        assert!(within_context(101, &info()).is_err() && within_context(100, &info()).is_ok());
        assert!(within_batch(&[1, 64]).is_ok() && within_batch(&[65]).is_err());
    }
}
