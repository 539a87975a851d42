//! `embed`: a vector for a text.

use redline_api::error::ApiError;
use redline_api::jsonl::model::ChatModel;
use redline_engine::Cancel;

use super::{Done, Kind, RowRequest, TextKey, parse, submit};
use crate::cell::{Cell, Holds};

/// Embeds the text of a row.
pub(super) struct Embed;

impl Kind for Embed {
    fn name(&self) -> &'static str {
        "embed"
    }

    fn texts(&self) -> &'static [TextKey] {
        &[TextKey { names: &["text"], is_optional: false }]
    }

    fn refused(&self) -> &'static [&'static str] {
        &["texts"]
    }

    fn columns(&self, _: bool) -> Vec<(&'static str, Holds)> {
        vec![("embedding", Holds::Numbers), ("prompt_tokens", Holds::Count)]
    }

    fn begin(&self, on: ChatModel<'_>, row: RowRequest, cancel: &Cancel, done: Done) -> Result<(), ApiError> {
        let request = on.embed(parse(&row.line)?);
        submit(on, request, cancel, done, |outcome| match outcome.texts.into_iter().next() {
            Some(text) => vec![Cell::Numbers(text.values), Cell::Count(text.prompt_tokens)],
            None => Vec::new(),
        })
    }
}
