//! What streamed answers have in common.

use serde::{Deserialize, Serialize};

/// An event of a streamed answer: a server-sent event whose data is JSON.
pub trait ServerEvent: Serialize {
    /// The name of the event, if it has one.
    fn name(&self) -> Option<&'static str> {
        None
    }
}

/// What the events of a stream contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamOptions {
    /// Whether the last event has the token counts.
    pub include_usage: Option<bool>,
    /// Whether every event has the token counts so far.
    pub continuous_usage_stats: Option<bool>,
    /// Whether events are padded to hide their lengths. Only `false` is supported.
    pub include_obfuscation: Option<bool>,
}
