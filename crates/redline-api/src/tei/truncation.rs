//! The end at which Text Embeddings Inference cuts texts.

use redline_engine::Truncate;
use serde::Deserialize;

use crate::json::named::names;
use crate::json::shape::{one_of, schemas};

/// The end at which TEI cuts.
pub(crate) fn end_of(direction: Option<TruncationDirection>) -> Truncate {
    match direction {
        Some(TruncationDirection::Left) => Truncate::Left,
        Some(TruncationDirection::Right) | None => Truncate::Right,
    }
}

/// The end at which texts are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(remote = "TruncationDirection")]
pub enum TruncationDirection {
    /// The beginning.
    #[serde(alias = "left")]
    Left,
    /// The end.
    #[serde(alias = "right")]
    Right,
}

names!(TruncationDirection);

schemas! {
    TruncationDirection: |_g| one_of(&["Left", "Right", "left", "right"]);
}
