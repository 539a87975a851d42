//! Prompts as read from JSON.

use redline_engine::Prompt;
use redline_wire::TextOrIds;

/// Converts text or ids to the engine's prompt.
pub fn prompt(from: TextOrIds) -> Prompt {
    match from {
        TextOrIds::Text(text) => Prompt::Text(text),
        TextOrIds::Ids(ids) => Prompt::Ids(ids),
    }
}
