//! What callers can set: the names of settings and commands, the values of those settings that are a choice or a size, and hints
//! that name them.
//!
//! Every front end, the JSON types and the engine share these, so that each is typed once.

#![forbid(unsafe_code)]

mod choice;
mod hint;
mod setting;
mod size;

pub use choice::{
    Algorithm, BlockCache, FinishReason, LabelEnd, LongLabels, Named, PlanPolicy, Pooling, Tokenization,
    Truncate, VectorForm,
};
pub use hint::{FieldNames, Hint, Spelling, Word};
pub use setting::{Command, Setting};
pub use size::{BadSize, bytes};

/// Largest magnitude of the scale of an adapter. Far beyond it activations overflow, which would look like a damaged checkpoint.
pub const LARGEST_ADAPTER_SCALE: f32 = 10_000.0;
