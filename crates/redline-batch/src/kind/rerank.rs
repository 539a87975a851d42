//! `rerank`: how relevant a document, or each of several, is to a query.

use redline_api::error::ApiError;
use redline_api::jsonl::model::ChatModel;
use redline_engine::Cancel;

use super::{Done, Kind, RowRequest, TextKey, parse, submit};
use crate::cell::{Cell, Holds};

/// Rates the document of a row, or its documents in their order.
pub(super) struct Rerank;

impl Kind for Rerank {
    fn name(&self) -> &'static str {
        "rerank"
    }

    fn texts(&self) -> &'static [TextKey] {
        &[
            TextKey { names: &["query"], is_optional: false },
            TextKey { names: &["documents", "document"], is_optional: false },
        ]
    }

    fn list(&self) -> Option<&'static str> {
        Some("documents")
    }

    fn refused(&self) -> &'static [&'static str] {
        &["top_n", "threshold"]
    }

    fn columns(&self, lists: bool) -> Vec<(&'static str, Holds)> {
        vec![
            ("relevance", if lists { Holds::Numbers } else { Holds::Number }),
            ("prompt_tokens", Holds::Count),
        ]
    }

    fn begin(&self, on: ChatModel<'_>, row: RowRequest, cancel: &Cancel, done: Done) -> Result<(), ApiError> {
        let lists = row.has_list;
        let request = on.rerank(parse(&row.line)?)?;
        submit(on, request, cancel, done, move |outcome| {
            let mut ranked: Vec<_> = outcome.results.into_iter().flatten().collect();
            ranked.sort_unstable_by_key(|document| document.index);
            let relevance = match (lists, ranked.first()) {
                (true, _) => Cell::Numbers(ranked.iter().map(|document| document.relevance).collect()),
                (false, Some(document)) => Cell::Number(document.relevance),
                (false, None) => Cell::None,
            };
            vec![relevance, Cell::Count(outcome.cost.usage.prompt_tokens)]
        })
    }
}
