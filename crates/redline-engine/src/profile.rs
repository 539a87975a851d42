//! What an engine tells of where its time goes: requests, passes, and what is in them.

use std::sync::Arc;

use redline_models::profile::Profile;

use crate::plan::Bucket;

/// Something a profile is made of. Times are nanoseconds of the engine's clock.
#[derive(Debug)]
pub enum ProfileEvent<'a> {
    /// An engine is ready.
    Started {
        /// How it runs, such as `avx512/bf16/kv-bf16`.
        kernel_path: &'a str,
        /// Threads of the team.
        threads: usize,
    },
    /// A request reached the engine's thread.
    Arrived {
        /// Its number.
        request: u64,
        /// When.
        at: u64,
    },
    /// A request was answered.
    Ended {
        /// Its number.
        request: u64,
        /// When.
        at: u64,
        /// Tokens run for it.
        computed_tokens: usize,
        /// Why it failed or ended early, in one word; `None` where it was finished.
        fault: Option<&'static str>,
    },
    /// A pass has been run.
    Pass(ProfiledPass<'a>),
}

/// A pass with its layers, operations, and who worked on them.
#[derive(Debug)]
pub struct ProfiledPass<'a> {
    /// The requests whose tokens were run, ascending.
    pub requests: &'a [u64],
    /// Rows of the pass: tokens of all its sequences.
    pub tokens: usize,
    /// Sequences.
    pub sequences: usize,
    /// Rows whose logits were wanted.
    pub outputs: usize,
    /// The plan it ran by.
    pub bucket: Bucket,
    /// When what began and ended.
    pub profile: &'a Profile,
}

/// Told of every event, on the engine's thread.
pub type ProfileLog = Arc<dyn Fn(&ProfileEvent<'_>) + Send + Sync>;
