//! What reads calls.

use crate::buffer::Buffer;
use crate::deltas::Deltas;
use crate::tool::Tools;

/// How far a reader came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It needs more.
    More,
    /// What it read is a call, or several.
    Done,
    /// What it read since the last commit of the buffer is no call.
    Failed,
}

/// Reads calls.
pub(crate) trait CallReader: Send {
    /// Reads on, from the mark of a call on.
    fn read(&mut self, buffer: &mut Buffer, deltas: &mut Deltas, tools: &Tools) -> Step;

    /// Whether the answer reasons.
    fn reasons(&self) -> bool {
        false
    }
}
