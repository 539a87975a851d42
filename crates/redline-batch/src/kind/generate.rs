//! `generate`: the continuation of a prompt.

use std::collections::BTreeMap;

use redline_api::error::ApiError;
use redline_api::jsonl::generate::GenerateLine;
use redline_api::jsonl::model::ChatModel;
use redline_engine::{Cancel, Grammar, GrammarKind, closed_schema};

use super::{Done, Kind, RowRequest, TextKey, parse, submit};
use crate::cell::{Cell, Holds};
use crate::fields::Fields;
use crate::json::Json;

/// Continues the prompt of a row.
pub(super) struct Generate;

/// Keys about prompts.
pub(super) const PROMPT: &[TextKey] =
    &[TextKey { names: &["prompt"], is_optional: true }, TextKey { names: &["messages"], is_optional: true }];

impl Kind for Generate {
    fn name(&self) -> &'static str {
        "generate"
    }

    fn texts(&self) -> &'static [TextKey] {
        PROMPT
    }

    fn refused(&self) -> &'static [&'static str] {
        &["n", "best_of", "logprobs", "prompt_logprobs", "prompt_logprobs_from"]
    }

    fn columns(&self, _: bool) -> Vec<(&'static str, Holds)> {
        columns()
    }

    fn fields(&self, values: &BTreeMap<String, Json>) -> Fields {
        let fields = values.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        // What is wrong with the values is said when they are tried.
        let given = parse::<GenerateLine>(&RowRequest::new(self, fields).line)
            .and_then(|line| line.grammar.grammar());
        match given {
            Ok(Some((
                _,
                Grammar { kind: GrammarKind::JsonSchema | GrammarKind::CompactJsonSchema, source },
            ))) => {
                let closed = serde_json::from_str(&source).ok().and_then(|schema| closed_schema(&schema));
                let schema = closed.map_or(source, |closed| closed.to_string());
                Fields::of_schema(&serde_json::from_str(&schema).unwrap_or(Json::Null))
            }
            _ => Fields::default(),
        }
    }

    fn writes(&self) -> bool {
        true
    }

    fn begin(&self, on: ChatModel<'_>, row: RowRequest, cancel: &Cancel, done: Done) -> Result<(), ApiError> {
        let request = on.generate(parse(&row.line)?)?;
        submit(on, request, cancel, done, |outcome| {
            vec![
                Cell::Text(outcome.text),
                Cell::Ids(outcome.token_ids),
                Cell::Text(outcome.finish_reason.name().to_owned()),
                Cell::Count(outcome.usage.prompt_tokens),
            ]
        })
    }
}

/// The columns of a text that a model wrote.
pub(super) fn columns() -> Vec<(&'static str, Holds)> {
    vec![
        ("generated", Holds::Text),
        ("token_ids", Holds::Ids),
        ("finish_reason", Holds::Text),
        ("prompt_tokens", Holds::Count),
    ]
}
