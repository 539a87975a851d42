//! The engine: score, generate and perplexity on a loaded model; classify and rerank on top of score.
//!
//! API boundary: requests and results are plain types, none of them `Serialize`. The engine runs on its own thread. It knows no
//! HTTP, reads no environment variable, reads only the clock it is given, and accesses files only through the weights and
//! tokenizer crates.
#![forbid(unsafe_code)]

mod cache;
mod cancel;
mod core;
mod engine;
mod error;
mod judge;
mod machine;
mod mode;
mod options;
mod outcome;
mod plan;
mod prefix_cache;
mod profile;
mod prompt;
mod random;
mod request;
mod runner;
mod sampler;
mod scheduler;
pub mod simulator;
mod statistics;
mod task;
mod team_size;
mod ticket;
mod transcript;

pub use cancel::Cancel;
pub use engine::{Engine, MAX_DEVICES, ModelInfo};
pub use error::EngineError;
pub use judge::{Classified, ClassifyOutcome, ClassifyRequest, Ranked, RerankOutcome, RerankRequest};
pub use options::{ActivationLog, Clock, Embedded, Options, Source, TraceLog};
pub use outcome::{
    BatchOutcome, ComparisonOutcome, DiffuseOutcome, DiffusionPass, DiffusionProgress, Divergence, EngineUse,
    Estimate, FilledMask, FinishReason, GenerateOutcome, ItemError, ItemScore, MonteCarlo, PerplexityOutcome,
    PositionLogprobs, PrefixCacheUse, ScoreOutcome, Taken, TokenLogprob, Usage,
};
pub use plan::{
    Bucket, BucketMode, Buckets, PlanCounters, PlanEntry, PlanEvent, PlanLog, PlanOptions, PlanOrigin,
    PlanPolicy,
};
pub use profile::{ProfileEvent, ProfileLog, ProfiledPass};
pub use redline_models::activation::{Activation, ActivationId, ActivationName};
pub use redline_models::model::OperationCounts;
pub use redline_models::profile::{Operation, Profile, Span};
pub use redline_models::spec::Objective;
pub use redline_models::trace::Observation;
pub use redline_settings as settings;
pub use request::{
    Algorithm, BatchRequest, BlockCache, DiffuseRequest, GenerateRequest, Label, LongLabels,
    PerplexityRequest, Prompt, PromptLogprobs, Sampling, ScoreRequest, Tokenization, Truncate,
};
pub use ticket::{
    BatchTicket, ClassifyTicket, DiffuseTicket, Event, GenerateTicket, RerankTicket, ScoreTicket, Ticket,
};

/// Maximum number of prompts in an [`Engine::generate_batch`] request.
pub const MAX_BATCH: usize = machine::OUTPUT_ROWS;
