//! The environment in which a lane runs: the machine, the measured model or tokenizer, the flags, and the recorder of
//! rows.

mod calls;
mod error;
mod flags;
mod metrics;
pub(crate) mod random;
pub(crate) mod requests;
mod servers;
mod trials;

use std::fmt;
use std::path::PathBuf;

use redline_engine::{AdapterOptions, Engine, EngineError, ModelInfo, Options, PlanPolicy, StageLog};
use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Simd, Tier};
use redline_tokenizer::{Encoder, Tokenizer, TokenizerError};

#[cfg(test)]
pub(crate) use calls::tests::slowing_clock;
pub(crate) use calls::{CallTime, calls_within, same_bits, spread};
pub use error::LaneError;
pub(crate) use error::{Result, require, verify};
pub use flags::{ALIASES, Flag, Values};
pub(crate) use flags::{FlagValue, PROMPT, Parse, RUNS, WARMUPS, flags, listed, optional, positive};
pub use metrics::MetricSpec;
pub(crate) use metrics::timed;
pub use servers::{MeasuredServer, Servers, StartedServer};
pub(crate) use trials::{Runs, Trials};

use crate::Row;
use crate::canary::Canary;
use crate::limits::Probe;
use crate::warmup::{self, Warmup};
use redline_system::{Clock, Machine, number};

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
    /// Minimum duration in nanoseconds of a reading of the machine's limits or of the canary beside the work.
    pub reading_ns: u64,
    /// Reports finished work to a waiting user.
    pub progress: &'a dyn Fn(&str),
    /// Reports to the user what the figures do not show, such as a case that was left out.
    pub note: &'a dyn Fn(&str),
    /// Records the rows of a finished case at once, so that they are not lost if the next case fails.
    pub record: &'a dyn Fn(Vec<Row>) -> Result<()>,
    /// Runs a command of this program in a new process. Returns its standard output, or its error message.
    pub process: &'a dyn Fn(&[String]) -> Result<String, String>,
}

/// The measured model.
pub struct BenchModel<'a> {
    /// Loads the model.
    pub load: &'a dyn Fn(Setup) -> Result<Engine, EngineError>,
    /// Size of the packed weights in their file, which is also their size in memory; `None` if they were not packed.
    pub packed_bytes: Option<u64>,
    /// The directory of stored plans that the user named; `None` if none was named.
    pub plan_cache: Option<PathBuf>,
    /// Format of keys and values that the user named; `None` if none was named.
    pub kv_format: Option<KvFormat>,
    /// A text on which the embedded models were not trained.
    pub text: &'a str,
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
    /// Whether prompts join passes at once, whatever that costs those who generate.
    pub together: bool,
    /// Format of keys and values; `None` for the setting of the command line.
    pub kv_format: Option<KvFormat>,
    /// How passes are planned; `None` for the settings of the command line.
    pub plans: Option<PlanSetup>,
    /// How requests with adapters are served; `None` if there are none.
    pub serving: Option<Serving>,
}

/// How a lane serves requests with adapters.
#[derive(Clone)]
pub struct Serving {
    /// How adapters are kept.
    pub adapters: AdapterOptions,
    /// Maximum number of waiting and running requests.
    pub queue: usize,
    /// Whether threads are bound to logical CPUs.
    pub pin: bool,
    /// Receives the time of passes and of adapters that are read.
    pub stages: StageLog,
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { adapters, queue, pin, stages: _ } = self;
        f.debug_struct("Serving")
            .field("adapters", adapters)
            .field("queue", queue)
            .field("pin", pin)
            .finish_non_exhaustive()
    }
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
        Self {
            threads,
            adaptive_threads: false,
            prefix_cache: false,
            together: false,
            kv_format: None,
            plans: None,
            serving: None,
        }
    }

    /// The options of an engine, changed for how requests are served.
    pub fn served(&self, options: Options) -> Options {
        let options =
            if self.together { Options { stall_s: Some(f64::INFINITY), ..options } } else { options };
        let Some(Serving { adapters, queue, pin, stages }) = self.serving.clone() else { return options };
        Options { adapters: Some(adapters), queue, pin, stages: Some(stages), ..options }
    }
}

impl Bench<'_> {
    pub(crate) fn simd(&self) -> Simd {
        self.tier.and_then(|tier| Simd::new(tier).ok()).unwrap_or_else(Simd::best)
    }

    /// Records the rows of a finished case and reports it as `what`.
    pub(crate) fn done(&self, what: &str, rows: Vec<Row>) -> Result<()> {
        (self.progress)(what);
        (self.record)(rows)
    }

    /// Calls `run`, which makes no plans, at least `least` times, until nothing happens for the first time.
    pub(crate) fn warm_up(&self, least: usize, run: impl FnMut(usize) -> Result<()>) -> Result<Warmup> {
        warmup::warm_up(self.clock, least, || 0, run)
    }

    /// A canary, for work that is not compared with the machine's limits.
    pub(crate) fn canary(&self, threads: usize) -> Result<Canary> {
        Ok(Canary::new(threads, self.simd(), self.reading_ns)?)
    }

    /// A probe of the machine's limits, for work that is compared with them. It reads `bytes` bytes.
    pub(crate) fn probe(&self, threads: usize, simd: Simd, bytes: usize) -> Result<Probe> {
        Ok(Probe::new(threads, simd, bytes, self.reading_ns)?)
    }

    /// Returns an error if `bytes` exceed the free memory. The message contains `what` and its size.
    pub(crate) fn fits(&self, what: &str, bytes: f64) -> Result<()> {
        let free = self.machine.free_bytes();
        require(bytes <= free as f64, || {
            let (need, free) = (number::bytes(bytes as u64), number::bytes(free));
            format!("{what} would take {need}, but {free} of memory are free")
        })
    }

    /// Returns an error if the keys and values of `batch` sequences of `tokens` tokens exceed the free memory.
    pub(crate) fn fits_batch(&self, batch: usize, tokens: usize, info: &ModelInfo) -> Result<()> {
        let bytes = info.kv_bytes_per_token as f64 * tokens as f64 * batch as f64;
        self.fits(&format!("the keys and values of {batch} sequences of {tokens} tokens"), bytes)
    }
}

/// Bytes of weights, or of keys and values, to cycle through, so that they come from memory: as many MiB as the user asks for, or four
/// times the last-level cache, at most 512 MiB.
pub(crate) fn cycled_bytes(machine: &Machine, mib: Option<usize>) -> usize {
    const MOST: u64 = 512 << 20;
    let caches =
        || machine.last_level_cache().map_or(MOST, |cache| cache.saturating_mul(4)).min(MOST) as usize;
    mib.map_or_else(caches, |mib| mib.saturating_mul(1 << 20))
}

/// Returns an error for sequences longer than the model's context.
pub(crate) fn within_context(tokens: usize, info: &ModelInfo) -> Result<()> {
    require(tokens <= info.context, || {
        let fact = format!("sequences of {tokens} tokens exceed the context of {}", info.context);
        format!("{fact}\n  in `{}`", info.name)
    })
}

/// Returns an error for batches, the values of `--flag`, that are larger than the engine has places for.
pub(crate) fn within_batch(flag: &str, batches: &[usize]) -> Result<()> {
    batches.iter().try_for_each(|&batch| {
        require(batch <= Options::QUEUE, || {
            let places = Options::QUEUE;
            format!("`--{flag}` is {batch}, but an engine has places for {places} requests")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::tests::{bench, info};

    #[test]
    fn what_does_not_fit_is_refused_with_numbers() {
        let clock = Clock::scripted(|| 0);
        let mut bench = bench(&clock);
        bench.machine.memory.available_bytes = Some(3 << 20);
        assert!(bench.fits("it", f64::from(3 << 20)).is_ok());
        let LaneError::Usage(fact) = bench.fits("it", 1e30).unwrap_err() else { panic!() };
        assert!(fact.starts_with("it would take") && fact.contains("3 MiB"), "{fact}");
        assert!(within_context(101, &info()).is_err() && within_context(100, &info()).is_ok());
        assert!(within_batch("batch", &[1, 256]).is_ok() && within_batch("batch", &[257]).is_err());
    }

    #[test]
    fn weights_exceed_the_caches_within_reason() {
        let cache = |bytes| redline_system::machine::Cache {
            level: 3,
            kind: "unified".to_owned(),
            size_bytes: Some(bytes),
            line_bytes: None,
            shared_by: None,
            instances: Some(1),
        };
        let with = |bytes| cycled_bytes(&Machine { caches: vec![cache(bytes)], ..Machine::default() }, None);
        assert_eq!((with(32 << 20), with(480 << 20)), (128 << 20, 512 << 20));
        assert_eq!(cycled_bytes(&Machine::default(), None), 512 << 20);
        assert_eq!(cycled_bytes(&Machine::default(), Some(3)), 3 << 20);
    }

    #[test]
    fn a_refusal_names_what_is_needed_before_what_is_free() {
        let clock = Clock::scripted(|| 0);
        let mut bench = bench(&clock);
        bench.machine.memory.available_bytes = Some(3 << 20);
        let fact = |result: Result<()>| match result {
            Err(LaneError::Usage(fact)) => fact,
            other => panic!("{other:?}"),
        };
        let told = fact(bench.fits("it", f64::from(5 << 20)));
        assert_eq!(told, "it would take 5 MiB, but 3 MiB of memory are free");
        // A token of each sequence takes eight bytes.
        assert!(bench.fits_batch(4, 98_304, &info()).is_ok());
        assert!(bench.fits_batch(4, 98_305, &info()).is_err());
        let told = fact(bench.fits_batch(8, 98_304, &info()));
        let need = "the keys and values of 8 sequences of 98304 tokens would take 6 MiB";
        assert!(told.starts_with(need), "{told}");
    }
}
