//! When the threads of an engine work, for callers that measure how busy they are.

use std::sync::Arc;

/// What a thread of an engine works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A pass of requests; windows of perplexity are not among them.
    Pass,
    /// Reading and packing an adapter that is published.
    Load,
    /// Reading and packing an evicted adapter again, for a request that needs it.
    Restore,
}

/// Time in which a thread of an engine worked, in nanoseconds of the engine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageTime {
    /// The work.
    pub stage: Stage,
    /// The beginning.
    pub start: u64,
    /// The end.
    pub end: u64,
}

/// Receives the time of every pass and of every adapter that is read, on the thread that worked.
pub type StageLog = Arc<dyn Fn(StageTime) + Send + Sync>;
