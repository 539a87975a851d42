//! What streamed answers have in common.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object::objects;
use crate::shape;
use crate::{ErrorBody, GenerationMeta, Usage};

/// An event of a streamed answer: a server-sent event whose data is JSON.
pub trait ServerEvent: Serialize {
    /// The name of the event, if it has one.
    fn name(&self) -> Option<&'static str> {
        None
    }
}

/// What the events of a stream contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "StreamOptions")]
pub struct StreamOptions {
    /// Whether the last event has the token counts.
    pub include_usage: Option<bool>,
    /// Whether every event has the token counts so far.
    pub continuous_usage_stats: Option<bool>,
    /// Whether events contain what is new of a canvas.
    pub include_canvas: Option<bool>,
    /// Whether events are padded to hide their lengths. Only `false` is supported.
    #[schemars(with = "Option<shape::False>")]
    pub include_obfuscation: Option<bool>,
}

objects!(StreamOptions);

/// An event of a streamed answer that consists of choices.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum StreamEvent<C> {
    /// New text.
    Chunk(StreamChunk<C>),
    /// Why the answer ends before its time.
    Failed(ErrorBody),
}

impl<C: Serialize> ServerEvent for StreamEvent<C> {}

/// A part of a streamed answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StreamChunk<C> {
    /// Identifies the answer.
    pub id: String,
    /// `text_completion` or `chat.completion.chunk`.
    pub object: &'static str,
    /// When the request came, in seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// What is new of a choice; none in the chunk with the token counts.
    pub choices: Vec<C>,
    /// Token counts so far; absent unless they were asked for, and `null` in chunks without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Option<Usage>>,
    /// In the chunk with the token counts, of a model that fills masks: how they were filled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<GenerationMeta>,
}
