//! The data from which an encoder is built.

use crate::{AddedToken, model::Checked};
use serde_json::Value;

/// The parts of a `tokenizer.json` that an encoder needs.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) place: &'a str,
    pub(crate) checked: &'a Checked<'a>,
    /// The added tokens with their ids.
    pub(crate) added: &'a [(AddedToken, u32)],
    pub(crate) normalizer: &'a Value,
    pub(crate) pre_tokenizer: &'a Value,
}
