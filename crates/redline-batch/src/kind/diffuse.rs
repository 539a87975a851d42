//! `diffuse`: the masks of a prompt, and those after it, filled.

use redline_api::{ApiError, diffuse};
use redline_engine::{Cancel, DiffuseRequest, Prompt};
use redline_wire::DiffuseLine;

use super::generate::{PROMPT, columns};
use super::{BatchModel, Done, Kind, RowRequest, TextKey, deliver, parse};
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

    fn begin(
        &self,
        on: BatchModel<'_>,
        row: RowRequest,
        cancel: &Cancel,
        done: Done,
    ) -> Result<(), ApiError> {
        let mut line: DiffuseLine = parse(&row.line)?;
        let keys = line.take_chat_keys();
        let prompt = on.chat.prompt("prompt", line.prompt.take(), keys)?;
        let defaults = DiffuseRequest::new(Prompt::Text(String::new()), diffuse::MAX_NEW_TOKENS);
        let mut request = diffuse::request(line, prompt, &defaults);
        let engine = &on.model.engine;
        request.stop_ids.extend(on.chat.stop_id(&request.prompt, request.ignore_eos, engine));
        let ticket = engine.submit_diffuse(request, cancel)?.outcome_only();
        deliver(ticket, done, |outcome| {
            vec![
                Cell::Text(outcome.text),
                Cell::Ids(outcome.token_ids),
                Cell::Text(outcome.finish_reason.name().to_owned()),
                Cell::Count(outcome.prompt_tokens),
            ]
        });
        Ok(())
    }
}
