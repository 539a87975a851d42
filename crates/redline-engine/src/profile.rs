//! Events of an engine's profile: requests, passes, and the operations within them.

use std::sync::Arc;

use redline_models::profile::Profile;

use crate::plan::Bucket;

/// An event of a profile. Times are nanoseconds of the engine's clock.
#[derive(Debug)]
pub enum ProfileEvent<'a> {
    /// An engine is ready.
    Started {
        /// Tier and formats, such as `avx512/bf16/kv-bf16`.
        kernel_path: &'a str,
        /// Threads of the team.
        threads: usize,
    },
    /// A request reached the engine's thread.
    Arrived {
        /// The request's number.
        request: u64,
        /// Time of the event.
        at: u64,
    },
    /// A request was answered.
    Ended {
        /// The request's number.
        request: u64,
        /// Time of the event.
        at: u64,
        /// Number of tokens run for the request.
        computed_tokens: usize,
        /// Why it failed or ended early, in one word; `None` if it was finished.
        fault: Option<&'static str>,
    },
    /// A pass has been run.
    Pass(ProfiledPass<'a>),
}

/// A pass with its layers, its operations, and the threads that worked on them.
#[derive(Debug)]
pub struct ProfiledPass<'a> {
    /// The requests whose tokens were run, in ascending order; none for a window or an observed step.
    pub requests: &'a [u64],
    /// Rows of the pass: tokens of all its sequences.
    pub tokens: usize,
    /// Number of sequences.
    pub sequences: usize,
    /// Number of rows whose logits were computed.
    pub outputs: usize,
    /// The bucket whose plan was used.
    pub bucket: Bucket,
    /// Begin and end of layers and operations.
    pub profile: &'a Profile,
}

/// Receives every event, on the engine's thread.
pub type ProfileLog = Arc<dyn Fn(&ProfileEvent<'_>) + Send + Sync>;
