//! Options for loading and running a model.

use std::path::PathBuf;
use std::sync::Arc;

use redline_kernels::op::kv::{KvFormat, PAGE_TOKENS};
use redline_kernels::{Format, Tier};
use redline_models::activation::Activation;
use redline_models::adapter::AdapterLimits;
use redline_models::trace::Observation;
use redline_system::monotonic_clock;

use crate::plan::PlanOptions;
use crate::profile::ProfileLog;
use crate::stages::StageLog;
use crate::turns::Turns;

pub use redline_kernels::ClockFn;

/// How much memory keys and values may take before those of finished requests are evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefixCacheSize {
    /// 65536 tokens, but at most 2 GiB. Touching memory for the first time takes time, so small models should not fill 2 GiB.
    #[default]
    Automatic,
    /// This number of bytes.
    Bytes(u64),
}

impl PrefixCacheSize {
    /// Number of pages, if each takes `page_bytes`.
    pub(crate) fn pages(self, page_bytes: u64) -> usize {
        let bytes = match self {
            Self::Automatic => page_bytes.saturating_mul((65536 / PAGE_TOKENS) as u64).min(2 << 30),
            Self::Bytes(bytes) => bytes,
        };
        usize::try_from(bytes / page_bytes.max(1)).unwrap_or(usize::MAX)
    }
}

/// An event in the life of the pages of keys and values on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrefixDirEvent {
    /// The directory cannot be used: nothing is read from it or written to it.
    Unusable {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file is not a valid page. It is removed, and its keys and values are computed again.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A page could not be read. Pages that fail later for the same reason are not logged.
    NotRead {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A page could not be written. Pages that fail later for the same reason are counted but not logged.
    NotWritten {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A page was not read within the time that a request waits for it. Requests compute what they need until it is.
    Slow {
        /// The directory.
        dir: PathBuf,
    },
}

/// Receives every event, on any thread.
pub type PrefixDirLog = Arc<dyn Fn(&PrefixDirEvent) + Send + Sync>;

/// A directory for keys and values of earlier requests, which outlive the process. Processes and machines may share it.
#[derive(Clone)]
pub struct PrefixDir {
    /// The directory, created if it does not exist.
    pub dir: PathBuf,
    /// Maximum bytes of its files.
    pub bytes: u64,
    /// Receives the events.
    pub log: PrefixDirLog,
}

/// How adapters are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdapterOptions {
    /// Maximum bytes of adapters in memory, those of running requests aside.
    pub memory: u64,
    /// Maximum rank of an adapter.
    pub max_rank: usize,
    /// Maximum number of adapters that a request combines.
    pub max_uses: usize,
    /// Number of threads that read adapters, at least 1.
    pub threads: usize,
}

impl AdapterOptions {
    /// The default, but at most a quarter of a memory budget, if there is one.
    pub fn within(budget: Option<u64>) -> Self {
        let default = Self::default();
        Self { memory: budget.map_or(default.memory, |budget| default.memory.min(budget / 4)), ..default }
    }
}

impl Default for AdapterOptions {
    /// 1 GiB, rank 64, 4 adapters for a request, one thread.
    fn default() -> Self {
        Self { memory: 1 << 30, max_rank: 64, max_uses: 4, threads: 1 }
    }
}

/// Receives the observations of a pass, on the engine's thread.
pub type TraceLog = Arc<dyn Fn(&[Observation]) + Send + Sync>;

/// Receives the activations of a step and its number, on the engine's thread.
pub type ActivationLog = Arc<dyn Fn(usize, Activation<'_>) + Send + Sync>;

/// A model that is part of the binary.
#[derive(Clone, Copy, Debug)]
pub struct Embedded {
    /// Name of the model in answers and messages.
    pub name: &'static str,
    /// `config.json`
    pub config: &'static [u8],
    /// `generation_config.json`
    pub generation_config: &'static [u8],
    /// `tokenizer.json`
    pub tokenizer: &'static [u8],
    /// `chat_template.jinja`, if it has one.
    pub chat_template: Option<&'static str>,
    /// `model.safetensors`, only called when weights are read.
    pub weights: fn() -> &'static [u8],
}

/// Source of the model.
#[derive(Clone, Debug)]
pub enum Source {
    /// A Hugging Face model directory, a converted one, a GGUF file, or a directory with one.
    Path(PathBuf),
    /// Bytes in the binary.
    Embedded(Embedded),
}

/// How to load and run a model.
#[derive(Clone)]
pub struct Options {
    /// The model.
    pub source: Source,
    /// Threads of the team, at least 1.
    pub threads: usize,
    /// Run each pass on the number of threads, up to `threads`, that is currently fastest: fewer while other processes keep
    /// cores busy. Results do not depend on it. `false`: always use all threads.
    pub adaptive_threads: bool,
    /// Bind thread `i` of the team to the `i`th logical CPU that the process may use, and the threads that read adapters to the CPUs
    /// that are left, if there are any. Works on Linux only. Results do not depend on it.
    pub pin: bool,
    /// Number of logical devices that the model is split over, by outputs and heads: from 1 to 8, whatever the number of
    /// threads.
    pub tp: usize,
    /// Instruction tier; `None`: the fastest of this machine.
    pub tier: Option<Tier>,
    /// Weight format; `None`: the checkpoint's (f16 becomes f32).
    pub format: Option<Format>,
    /// Share of every layer's input columns that integer formats keep as bf16, in `[0, 1]`.
    pub outliers: f64,
    /// Map the weights of a converted directory instead of copying them: loading takes less time and memory. But if another
    /// process changes the file meanwhile, results change; if it shortens the file, this process is ended by a signal.
    pub mmap: bool,
    /// Format of keys and values; `None`: f32 with f32 weights, [`KvFormat::W8`] in encoders with integer
    /// weights, else bf16.
    pub kv_format: Option<KvFormat>,
    /// Maximum sequence length, if it is to be less than the model's own limit.
    pub max_context: Option<usize>,
    /// Maximum bytes of weights, activations, keys and values together; `None`: no limit.
    pub memory: Option<u64>,
    /// Keep keys and values of earlier requests, for requests that begin with the same tokens, as long as all keys and values
    /// take no more than this; `None`: keep none. Beyond, memory grows for running requests only.
    pub prefix_cache: Option<PrefixCacheSize>,
    /// Where they are kept on disk, too; `None`: nowhere. Without [`Options::prefix_cache`], it is not used.
    pub prefix_dir: Option<PrefixDir>,
    /// How adapters are kept; `None`: requests cannot use any.
    pub adapters: Option<AdapterOptions>,
    /// Maximum number of waiting and running requests.
    pub queue: usize,
    /// Seconds that prompts may add to a pass while some request generates; `None`: 4/5 of the time of a pass without prompts.
    pub stall_s: Option<f64>,
    /// How passes are planned, and their maximum size.
    pub plans: PlanOptions,
    /// Receives statistics of the residual stream for every pass and layer; collecting them takes time.
    pub trace: Option<TraceLog>,
    /// Receives a profile of every pass; collecting it takes time.
    pub profile: Option<ProfileLog>,
    /// Receives the time of every pass and of every adapter that is read.
    pub stages: Option<StageLog>,
    /// The clock: nanoseconds that never decrease. Durations in answers, time limits and the estimated cost of passes are read from it.
    pub clock: ClockFn,
    /// Engines that share their cores, and run one at a time; `None`: it runs whenever it has work.
    pub turns: Option<Turns>,
    /// Overwrite released pages of keys and values, and the activations before every pass, with NaN. It takes time and changes
    /// no result; tests use it to show that nothing depends on stale memory.
    pub poison: bool,
}

impl Options {
    /// The default of [`Options::queue`].
    pub const QUEUE: usize = 256;

    /// Where keys and values of earlier requests are kept on disk, if they are kept at all.
    pub(crate) fn disk(&self) -> Option<&PrefixDir> {
        self.prefix_cache.and(self.prefix_dir.as_ref())
    }

    /// The largest adapters that passes need memory for.
    pub(crate) fn adapter_limits(&self) -> AdapterLimits {
        let limits =
            |adapters: AdapterOptions| AdapterLimits { rank: adapters.max_rank, uses: adapters.max_uses };
        self.adapters.map(limits).unwrap_or_default()
    }

    /// Creates options with these values. Other fields take their defaults: one thread, the fastest tier, the checkpoint's
    /// formats, no memory limit, a prefix cache, up to 256 requests at a time, estimated plans, a monotonic clock.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            threads: 1,
            adaptive_threads: false,
            pin: false,
            tp: 1,
            tier: None,
            format: None,
            outliers: 0.0,
            mmap: false,
            kv_format: None,
            max_context: None,
            memory: None,
            prefix_cache: Some(PrefixCacheSize::Automatic),
            prefix_dir: None,
            adapters: None,
            queue: Self::QUEUE,
            stall_s: None,
            plans: PlanOptions::default(),
            trace: None,
            profile: None,
            stages: None,
            clock: monotonic_clock(),
            turns: None,
            poison: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PrefixCacheSize::{Automatic, Bytes};

    #[test]
    fn the_automatic_size_is_a_number_of_tokens_within_a_number_of_bytes() {
        // 32 KiB per token reach both limits.
        assert_eq!([1, 1 << 10, 2 << 20].map(|page| Automatic.pages(page)), [1024; 3]);
        assert_eq!([4 << 20, 2 << 30, 3 << 30].map(|page| Automatic.pages(page)), [512, 1, 0]);
        assert_eq!([0, 999, 1000, 5000].map(|bytes| Bytes(bytes).pages(1000)), [0, 0, 1, 5]);
    }
}
