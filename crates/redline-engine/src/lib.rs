//! The engine: score, generate, diffuse, embed and perplexity on a loaded model; classify and rerank on top of score.
//!
//! API boundary: requests and results are plain types, none of them `Serialize`. The engine runs on its own thread. It knows no
//! HTTP, reads no environment variable, reads only the clock it is given, and accesses files only through crates below it.
#![forbid(unsafe_code)]

mod adapters;
mod answer;
mod cancel;
mod error;
mod front;
mod gauges;
mod heartbeat;
mod identity;
mod memory;
mod mode;
mod options;
mod plan;
mod profile;
mod receipt;
mod request;
mod scheduler;
#[cfg(test)]
mod simulator;
mod stages;
mod task;
mod turns;
mod vocabulary;

pub use adapters::AdapterInfo;
pub use answer::outcome::{
    Classified, ClassifyOutcome, ComparisonOutcome, Continuation, DiffuseOutcome, DiffusionPass,
    DiffusionProgress, Divergence, EncodeOutcome, Encoded, EngineUse, Estimate, FilledMask, FinishReason,
    GenerateOutcome, GeneratedPiece, ItemError, ItemScore, LabelReading, MaskSamples, PerplexityOutcome,
    PositionLogprobs, PrefixCacheCounts, Ranked, ReportedPrompt, RequestCost, RerankOutcome, ScoreOutcome,
    TokenCounts, TokenLogprob,
};
pub use answer::ticket::{
    ClassifyTicket, DiffuseTicket, EmbedTicket, Event, GenerateTicket, RerankTicket, ScoreTicket, Ticket,
};
pub use cancel::Cancel;
pub use error::EngineError;
pub use front::multi_vector::max_sim;
pub use front::{
    AnyRequest, CommonFields, Engine, Hold, MAX_DEVICES, ModelInfo, ModelSummary, MultiVectorInfo,
    RerankPreset,
};
pub use gauges::{
    AdapterGauges, EngineGauges, Histogram, HistogramCounts, PageGauges, PassKind, PassTotals, Pulse,
    PulseState, RequestEnd, RequestGauges,
};
pub use identity::ModelIdentity;
pub use mode::autoregressive::guide::{Allowed, Constraint, Drafter, Guides};
pub use options::{
    ActivationLog, AdapterOptions, ClockFn, Embedded, Options, PrefixCacheSize, PrefixDir, PrefixDirEvent,
    PrefixDirLog, Source, TraceLog,
};
pub use plan::{
    Bucket, BucketMode, Buckets, PlanCounters, PlanEntry, PlanEvent, PlanLog, PlanOptions, PlanOrigin,
    PlanPolicy,
};
pub use profile::{ProfileEvent, ProfileLog, ProfiledPass};
pub use receipt::{
    ClassifierText, Receipt, ReceiptAdapter, ReceiptAnswer, ReceiptDifference, ReceiptLayer, ReceiptRequest,
};
pub use redline_grammar::{Grammar, GrammarKind, VERSION as GRAMMAR_VERSION, closed as closed_schema};
pub use redline_kernels::op::kv::KvFormat;
pub use redline_kernels::{Format, Tier};
pub use redline_models::activation::{Activation, ActivationId, ActivationName};
pub use redline_models::model::{ExpertCounts, OperationCounts};
pub use redline_models::profile::{Operation, Profile, Span};
pub use redline_models::spec::{Mask, Objective, Output};
pub use redline_models::trace::Observation;
pub use redline_settings as settings;
pub use redline_system::monotonic_clock;
pub use redline_weights::Sha256Digest;
pub use request::{
    AdapterChoice, Algorithm, BlockCache, DiffuseRequest, EmbedRequest, GenerateRequest, Label, LabelEnd,
    LongLabels, Penalties, PerplexityRequest, Pooling, Prompt, PromptLogprobs, Queueing, ReceiptOptions,
    Sampling, ScoreRequest, Tokenization, Truncate, VectorForm,
};
pub use request::{ClassifyRequest, JudgeOptions, RerankRequest};
pub use stages::{Stage, StageLog, StageTime};
pub use turns::Turns;
pub use vocabulary::{chat_template, tokenizer_files, vocabulary};

/// Maximum number of rows whose logits are computed together.
pub const MAX_LOGITS_ROWS: usize = plan::OUTPUT_ROWS;
