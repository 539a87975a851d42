//! `classify`: the probability of each class for a text.

use redline_api::error::ApiError;
use redline_api::jsonl::model::ChatModel;
use redline_engine::{Cancel, ClassifyOutcome, Label};

use super::{Done, Kind, RowRequest, TextKey, parse, submit};
use crate::cell::{Cell, Holds};

/// Classifies the text of a row.
pub(super) struct Classify;

impl Kind for Classify {
    fn name(&self) -> &'static str {
        "classify"
    }

    fn texts(&self) -> &'static [TextKey] {
        &[TextKey { names: &["text"], is_optional: false }]
    }

    fn refused(&self) -> &'static [&'static str] {
        &["texts"]
    }

    fn columns(&self, _: bool) -> Vec<(&'static str, Holds)> {
        vec![
            ("class", Holds::Text),
            ("probabilities", Holds::Numbers),
            ("margin", Holds::Number),
            ("prompt_tokens", Holds::Count),
        ]
    }

    fn begin(&self, on: ChatModel<'_>, row: RowRequest, cancel: &Cancel, done: Done) -> Result<(), ApiError> {
        let request = on.classify(parse(&row.line)?)?;
        submit(on, request, cancel, done, cells)
    }
}

fn cells(outcome: ClassifyOutcome) -> Vec<Cell> {
    let ClassifyOutcome { classes, texts, .. } = outcome;
    let Some(text) = texts.into_iter().flatten().next() else { return Vec::new() };
    let best = text.best.and_then(|best| classes.get(best));
    let class = match best {
        Some(Label::Text(name)) => Cell::Text(name.clone()),
        _ => Cell::None,
    };
    vec![class, Cell::Numbers(text.probabilities), Cell::Number(text.margin), Cell::Count(text.prompt_tokens)]
}
