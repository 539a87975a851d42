//! How a model fills masks, in answers and events of the routes for generated text.

use schemars::JsonSchema;
use serde::Serialize;

use crate::error::ApiError;
use crate::generation::mode::CanvasPiece;
use crate::jsonl::diffuse::{DiffusionStep, diffusion_step};
use crate::model::LoadedModel;

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

/// Number of masks that remain, for each prompt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Canvases(Vec<usize>);

impl Canvases {
    /// Canvases of this number of prompts.
    pub(crate) fn new(prompts: usize) -> Self {
        Self(vec![0; prompts])
    }

    /// The event of what is new of a prompt's canvas.
    pub(crate) fn event(
        &mut self,
        model: &LoadedModel,
        prompt: usize,
        piece: CanvasPiece,
    ) -> Result<CanvasEvent, ApiError> {
        let mut none = 0;
        let left = self.0.get_mut(prompt).unwrap_or(&mut none);
        match piece {
            CanvasPiece::Begun(token_ids) => {
                let mask = model.engine.info().mask_id;
                let text = |&id: &u32| if Some(id) == mask { Ok(None) } else { text_of(model, id).map(Some) };
                let texts = token_ids.iter().map(text).collect::<Result<Vec<_>, ApiError>>()?;
                *left = texts.iter().filter(|text| text.is_none()).count();
                Ok(CanvasEvent::Begun { token_ids, texts, masks_left: *left })
            }
            CanvasPiece::Passed(pass) => {
                let texts = pass.filled.iter().map(|filled| text_of(model, filled.token));
                let texts = texts.collect::<Result<_, _>>()?;
                *left = left.saturating_sub(pass.filled.len());
                Ok(CanvasEvent::Passed { step: diffusion_step(&pass), texts, masks_left: *left })
            }
        }
    }
}

/// The text of a token alone; empty if the tokenizer does not know it.
fn text_of(model: &LoadedModel, id: u32) -> Result<String, ApiError> {
    match model.engine.tokenizer().filter(|tokenizer| tokenizer.token(id).is_some()) {
        Some(tokenizer) => Ok(tokenizer.token_text(id)?),
        None => Ok(String::new()),
    }
}
