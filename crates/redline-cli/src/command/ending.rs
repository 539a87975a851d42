//! The finish reason of a request: in JSON, as text, and as an exit status.

use std::process::ExitCode;

use redline_engine as engine;
use redline_wire as wire;

use crate::report::INTERRUPTED;

/// The finish reason in a document.
pub(super) fn finish_reason(from: engine::FinishReason) -> wire::FinishReason {
    match from {
        engine::FinishReason::Stop => wire::FinishReason::Stop,
        engine::FinishReason::Length => wire::FinishReason::Length,
        engine::FinishReason::Cancelled => wire::FinishReason::Cancelled,
    }
}

/// The remark appended to a line of figures.
pub(super) fn remark(reason: engine::FinishReason) -> &'static str {
    match reason {
        engine::FinishReason::Stop => " (stopped)",
        engine::FinishReason::Length => " (length reached)",
        engine::FinishReason::Cancelled => " (cancelled)",
    }
}

/// The exit code of a command that ran one request.
pub(super) fn code(reason: engine::FinishReason) -> ExitCode {
    match reason {
        engine::FinishReason::Cancelled => ExitCode::from(INTERRUPTED),
        engine::FinishReason::Stop | engine::FinishReason::Length => ExitCode::SUCCESS,
    }
}
