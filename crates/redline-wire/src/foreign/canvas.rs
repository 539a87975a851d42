//! How a model fills masks, in answers and events of the routes for generated text.

use redline_settings::Algorithm;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{DiffusionStep, named};

/// How the masks of an answer were filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GenerationMeta {
    /// The algorithm that chose the masks.
    #[serde(serialize_with = "named::serialize")]
    #[schemars(with = "named::OneOf<Algorithm>")]
    pub algorithm: Algorithm,
    /// Number of forward passes, of all prompts together.
    pub passes: usize,
    /// Rows computed, summed over all passes.
    pub computed_tokens: usize,
    /// Number of masks in the prompts.
    pub prompt_masks: usize,
}

/// What is new of a canvas: first the canvas before its first pass, then every pass.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum CanvasEvent {
    /// The canvas before its first pass.
    Begun {
        /// All tokens; masks have the mask token's id.
        token_ids: Vec<u32>,
        /// The text of each token; `null` for a mask.
        texts: Vec<Option<String>>,
        /// Number of masks.
        masks_left: usize,
    },
    /// A pass.
    Passed {
        /// The pass, with the masks that it filled.
        #[serde(flatten)]
        step: DiffusionStep,
        /// The text of each token that was filled in.
        texts: Vec<String>,
        /// Number of masks that remain.
        masks_left: usize,
    },
}
