//! Prompts, from flags and from lines.

use redline_engine::Prompt;
use redline_wire::TextOrIds;

use crate::report::Failure;
use crate::value::Ids;

/// The prompt given by a pair of flags, `--NAME` and `--NAME-ids`.
pub(super) fn given(name: &str, text: Option<&str>, ids: Option<&Ids>) -> Result<Prompt, Failure> {
    match (text, ids) {
        (Some(text), _) => Ok(Prompt::Text(text.to_owned())),
        (None, Some(ids)) => Ok(Prompt::Ids(ids.0.clone())),
        (None, None) => Err(Failure::usage(
            format!("no {name} given"),
            format!("`--{name} TEXT`, `--{name}-ids 1,2,3`, or whole requests with `--jsonl FILE`"),
        )),
    }
}

/// Converts text or ids from a line to the engine's prompt.
pub(super) fn of_line(from: TextOrIds) -> Prompt {
    match from {
        TextOrIds::Text(text) => Prompt::Text(text),
        TextOrIds::Ids(ids) => Prompt::Ids(ids),
    }
}
