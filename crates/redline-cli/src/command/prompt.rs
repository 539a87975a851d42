//! Prompts from flags.

use redline_engine::Prompt;

use crate::message::Failure;
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
