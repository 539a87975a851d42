//! `score`: the probability of each label as the next token after query and item.

use redline_api::error::ApiError;
use redline_api::jsonl::model::ChatModel;
use redline_engine::Cancel;

use super::{Done, Kind, RowRequest, TextKey, parse, submit};
use crate::cell::{Cell, Holds};

/// Scores the item of a row, or its items.
pub(super) struct Score;

impl Kind for Score {
    fn name(&self) -> &'static str {
        "score"
    }

    fn texts(&self) -> &'static [TextKey] {
        &[
            TextKey { names: &["query"], is_optional: true },
            TextKey { names: &["items", "item"], is_optional: false },
            TextKey { names: &["messages"], is_optional: true },
        ]
    }

    fn list(&self) -> Option<&'static str> {
        Some("items")
    }

    fn refused(&self) -> &'static [&'static str] {
        &["full_logprobs", "return_token_ids"]
    }

    fn columns(&self, lists: bool) -> Vec<(&'static str, Holds)> {
        vec![("scores", if lists { Holds::Lists } else { Holds::Numbers }), ("prompt_tokens", Holds::Count)]
    }

    fn begin(&self, on: ChatModel<'_>, row: RowRequest, cancel: &Cancel, done: Done) -> Result<(), ApiError> {
        let lists = row.has_list;
        let request = on.score(parse(&row.line)?)?;
        submit(on, request, cancel, done, move |outcome| {
            let mut scores = outcome.items.into_iter().flatten().map(|item| item.scores);
            let scores = if lists {
                Cell::Lists(scores.collect())
            } else {
                scores.next().map_or(Cell::None, Cell::Numbers)
            };
            vec![scores, Cell::Count(outcome.cost.usage.prompt_tokens)]
        })
    }
}
