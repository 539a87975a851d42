//! What a lane runs with: the machine, the model or the tokenizer that is measured, its flags, and who takes its rows.

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

/// What a lane runs with.
pub struct Bench<'a> {
    /// The clock.
    pub clock: &'a Clock,
    /// This computer.
    pub machine: Machine,
    /// Thread counts to run with, in this order.
    pub threads: Vec<usize>,
    /// The tier to run; `None`: the fastest.
    pub tier: Option<Tier>,
    /// Told what was done, for whoever waits.
    pub progress: &'a dyn Fn(&str),
    /// Takes the rows of every case as soon as it is done, so that nothing is lost if the next one fails.
    pub record: &'a dyn Fn(Vec<Row>) -> Result<(), LaneError>,
    /// Runs a command of this program in a process of its own: what it printed, or its complaint.
    pub process: &'a dyn Fn(&[String]) -> Result<String, String>,
}

/// The model that is measured.
pub struct Model<'a> {
    /// Loads it.
    pub load: &'a dyn Fn(Setup) -> Result<Engine, EngineError>,
    /// Bytes of its weights in their file, where it was packed before, so that memory holds as many.
    pub packed_bytes: Option<u64>,
    /// Who can say what its text is worth; an embedded model has somebody.
    pub judge: Option<Judge<'a>>,
}

/// A model that predicts the next token, and knows the tokens of the one that is measured.
pub struct Judge<'a> {
    /// Loads it, with so many threads.
    pub load: &'a dyn Fn(usize) -> Result<Engine, EngineError>,
    /// Text that neither was trained on.
    pub text: &'a str,
}

/// The tokenizer that is measured.
pub struct Text<'a> {
    /// Its model or its file.
    pub name: &'a str,
    /// Reads it, to encode like that.
    pub tokenizer: &'a dyn Fn(Encoder) -> Result<Tokenizer, TokenizerError>,
}

/// How a lane wants the model loaded; the rest is as on the command line.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Threads.
    pub threads: usize,
    /// Whether passes may run on fewer.
    pub adaptive_threads: bool,
    /// Whether keys and values of earlier requests are kept.
    pub prefix_cache: bool,
    /// How passes are planned; `None`: as on the command line.
    pub plans: Option<PlanSetup>,
}

/// How a lane wants passes planned.
#[derive(Clone, Debug)]
pub struct PlanSetup {
    /// What a missing plan does.
    pub policy: PlanPolicy,
    /// Where plans are kept; `None`: nowhere.
    pub cache: Option<PathBuf>,
    /// Tokens of passes that have a plan.
    pub tokens: Vec<usize>,
    /// Rows that have one.
    pub rows: Vec<usize>,
}

impl Setup {
    /// With so many threads, and nothing kept from request to request.
    pub fn new(threads: usize) -> Self {
        Self { threads, adaptive_threads: false, prefix_cache: false, plans: None }
    }
}

impl Bench<'_> {
    /// The tier to run.
    pub fn simd(&self) -> Simd {
        self.tier.and_then(|tier| Simd::new(tier).ok()).unwrap_or_else(Simd::best)
    }

    /// Hands over the rows of a case that is done; `what` it was.
    pub fn done(&self, what: &str, rows: Vec<Row>) -> Result<(), LaneError> {
        (self.progress)(what);
        (self.record)(rows)
    }

    /// Runs `run` at least `least` times, until nothing happens for the first time; `misses` tells how many plans had to be
    /// made so far.
    pub(crate) fn warm_up(
        &self,
        least: usize,
        misses: impl Fn() -> u64,
        run: impl FnMut(usize) -> Result<(), LaneError>,
    ) -> Result<Warmup, LaneError> {
        warmup::warm_up(self.clock, least, misses, run)
    }

    /// A canary for work that is not held against the machine's limits.
    pub(crate) fn canary(&self, threads: usize) -> Result<Canary, LaneError> {
        Ok(Canary::new(threads, self.simd())?)
    }

    /// Refuses what would take more memory than is free; `what` is told with its size.
    pub fn fits(&self, what: &str, bytes: f64) -> Result<(), LaneError> {
        let free = self.machine.free_bytes();
        if bytes <= free as f64 {
            return Ok(());
        }
        let (need, free) = (number::bytes(bytes as u64), number::bytes(free));
        Err(LaneError::Usage(format!("{what} would take {need}, but {free} of memory are free")))
    }
}

/// Refuses sequences longer than the model's context.
pub(crate) fn within_context(tokens: usize, info: &ModelInfo) -> Result<(), LaneError> {
    if tokens <= info.context {
        return Ok(());
    }
    let fact = format!("sequences of {tokens} tokens exceed the context of {}", info.context);
    Err(LaneError::Usage(format!("{fact}\n  in `{}`", info.name)))
}

/// Refuses batches that the engine does not decode.
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
