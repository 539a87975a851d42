//! `generate`: the continuation of a prompt.

use redline_api::ApiError;
use redline_api::generate::{self, GenerateDefaults};
use redline_engine::Cancel;
use redline_wire::GenerateLine;

use super::{BatchModel, Done, Kind, RowRequest, TextKey, deliver, parse};
use crate::cell::{Cell, Holds};

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

    fn writes(&self) -> bool {
        true
    }

    fn begin(
        &self,
        on: BatchModel<'_>,
        row: RowRequest,
        cancel: &Cancel,
        done: Done,
    ) -> Result<(), ApiError> {
        let mut line: GenerateLine = parse(&row.line)?;
        let keys = line.take_chat_keys();
        let prompt = on.chat.prompt("prompt", line.prompt.take(), keys)?;
        let mut request = generate::request(line, prompt, &GenerateDefaults::default());
        let engine = &on.model.engine;
        request.stop_ids.extend(on.chat.stop_id(&request.prompt, request.ignore_eos, engine));
        let ticket = engine.submit_generate(request, cancel)?.outcome_only();
        deliver(ticket, done, |outcome| {
            vec![
                Cell::Text(outcome.text),
                Cell::Ids(outcome.token_ids),
                Cell::Text(outcome.finish_reason.name().to_owned()),
                Cell::Count(outcome.usage.prompt_tokens),
            ]
        });
        Ok(())
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
