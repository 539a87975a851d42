//! What an engine is made of.

use std::path::PathBuf;
use std::sync::Arc;

use redline_kernels::op::kv::KvFormat;
use redline_kernels::{Format, Tier};
use redline_models::activation::Activation;
use redline_models::trace::Observation;

use crate::plan::PlanOptions;
use crate::profile::ProfileLog;

pub use redline_kernels::Clock;

/// Told of the observations of a pass, on the engine's thread.
pub type TraceLog = Arc<dyn Fn(&[Observation]) + Send + Sync>;

/// Shown the activations of a step, by its number, on the engine's thread.
pub type ActivationLog = Arc<dyn Fn(usize, Activation<'_>) + Send + Sync>;

/// A model inside the binary.
#[derive(Clone, Copy, Debug)]
pub struct Embedded {
    /// What the model is called in answers and messages.
    pub name: &'static str,
    /// `config.json`
    pub config: &'static [u8],
    /// `generation_config.json`
    pub generation_config: &'static [u8],
    /// `tokenizer.json`
    pub tokenizer: &'static [u8],
    /// `model.safetensors`
    pub weights: &'static [u8],
}

/// Where the model comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A Hugging Face model directory, or one that was converted.
    Directory(PathBuf),
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
    /// Run each pass on the number of threads, up to `threads`, that is fastest at the moment: fewer while other processes keep
    /// cores busy. No result depends on it. `false`: always on all.
    pub adaptive_threads: bool,
    /// Logical devices that share the model out by outputs and heads, from 1 to 8, whatever the number of threads.
    pub tp: usize,
    /// Instruction tier; `None` takes the fastest of this machine.
    pub tier: Option<Tier>,
    /// Weight format; `None` takes the checkpoint's (f16 becomes f32).
    pub format: Option<Format>,
    /// Share of every layer's input columns that integer formats keep as bf16, in `[0, 1]`.
    pub outliers: f64,
    /// Format of keys and values; `None`: f32 with f32 weights, else bf16.
    pub kv_format: Option<KvFormat>,
    /// Longest sequence, where less than the model's own limit is wanted.
    pub max_context: Option<usize>,
    /// Bytes that weights, activations, keys and values may take together; `None` sets no limit.
    pub memory: Option<u64>,
    /// Keep keys and values of earlier requests, for those that begin with the same tokens.
    pub prefix_cache: bool,
    /// Requests that may wait or run at a time.
    pub queue: usize,
    /// Seconds that prompts may add to a pass while somebody generates; `None`: 4/5 of what it takes without them.
    pub stall_s: Option<f64>,
    /// How passes are planned, and how large they may be.
    pub plans: PlanOptions,
    /// Told what the residual stream looked like in every pass, layer by layer; it takes time.
    pub trace: Option<TraceLog>,
    /// Told where the time goes, pass by pass; it takes time.
    pub profile: Option<ProfileLog>,
    /// The time, for the durations in answers.
    pub clock: Clock,
    /// Overwrite pages of keys and values that are given back, and the activations before every pass, with NaN. It takes
    /// time and changes no result; for tests that nothing depends on what others left.
    pub poison: bool,
}

impl Options {
    /// Options for a model, everything else as by default: one thread, the fastest tier, the checkpoint's formats, no memory limit, a
    /// prefix cache, up to 256 requests at a time, estimated plans. `clock` is the time in nanoseconds, never going back.
    pub fn new(source: Source, clock: Clock) -> Self {
        Self {
            source,
            threads: 1,
            adaptive_threads: false,
            tp: 1,
            tier: None,
            format: None,
            outliers: 0.0,
            kv_format: None,
            max_context: None,
            memory: None,
            prefix_cache: true,
            queue: 256,
            stall_s: None,
            plans: PlanOptions::default(),
            trace: None,
            profile: None,
            clock,
            poison: false,
        }
    }
}
