//! The finish reason of a request: as text, and as an exit status.

use std::process::ExitCode;

use redline_engine::FinishReason;

use crate::message::INTERRUPTED;

/// The remark appended to a line of figures.
pub(super) fn remark(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => " (stopped)",
        FinishReason::Length => " (length reached)",
        FinishReason::Cancelled => " (cancelled)",
    }
}

/// The exit code of a command that ran one request.
pub(super) fn code(reason: FinishReason) -> ExitCode {
    match reason {
        FinishReason::Cancelled => ExitCode::from(INTERRUPTED),
        FinishReason::Stop | FinishReason::Length => ExitCode::SUCCESS,
    }
}
