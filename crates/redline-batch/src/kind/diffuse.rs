//! `diffuse`: the masks of a prompt, and those after it, filled.

use redline_api::error::ApiError;
use redline_api::jsonl::model::ChatModel;
use redline_engine::Cancel;

use super::generate::{PROMPT, columns};
use super::{Done, Kind, RowRequest, TextKey, parse, submit};
use crate::cell::{Cell, Holds};

/// Fills the masks of a row.
pub(super) struct Diffuse;

impl Kind for Diffuse {
    fn name(&self) -> &'static str {
        "diffuse"
    }

    fn texts(&self) -> &'static [TextKey] {
        PROMPT
    }

    fn refused(&self) -> &'static [&'static str] {
        &[]
    }

    fn columns(&self, _: bool) -> Vec<(&'static str, Holds)> {
        columns()
    }

    fn writes(&self) -> bool {
        true
    }

    fn begin(&self, on: ChatModel<'_>, row: RowRequest, cancel: &Cancel, done: Done) -> Result<(), ApiError> {
        let request = on.diffuse(parse(&row.line)?)?;
        submit(on, request, cancel, done, |outcome| {
            vec![
                Cell::Text(outcome.text),
                Cell::Ids(outcome.token_ids),
                Cell::Text(outcome.finish_reason.name().to_owned()),
                Cell::Count(outcome.prompt_tokens),
            ]
        })
    }
}
