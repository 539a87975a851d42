//! Errors of requests: status, code and field, and how errors of the engine become one.

use std::path::Path;

use axum::http::StatusCode;
use redline_api::error::ApiError;
use redline_api::error_body::{ErrorBody, ErrorDetail};
use redline_engine::EngineError;
use redline_engine::settings::{Command, Hint, Setting, Spelling};

use crate::error_format::ErrorFormat;

/// Longest message in bytes, and longest name of a field. Both quote requests.
const MAX_MESSAGE: usize = 600;
/// Seconds after which a refused request may come again.
const RETRY_SECONDS: u32 = 1;

/// Why a request is not answered.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    message: String,
    param: Option<String>,
    pub(crate) retry_after: Option<u32>,
    pub(crate) error_format: ErrorFormat,
    /// The fact without the hint, if an input is too long and may be cut.
    too_long: Option<String>,
}

impl Fault {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let (message, error_format) = (message.into(), ErrorFormat::OpenAi);
        Self { status, code, message, param: None, retry_after: None, error_format, too_long: None }
    }

    /// An invalid request.
    pub(crate) fn invalid(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// A request that cannot be run now.
    pub(crate) fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        let fault = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message);
        Self { retry_after: Some(RETRY_SECONDS), ..fault }
    }

    /// A request beyond a limit of the server.
    pub(crate) fn overloaded(code: &'static str, message: impl Into<String>) -> Self {
        let fault = Self::new(StatusCode::TOO_MANY_REQUESTS, code, message);
        Self { retry_after: Some(RETRY_SECONDS), ..fault }
    }

    /// Says when to come again, in seconds.
    pub(crate) fn after(self, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// A bug. The message says nothing about it, because it could quote the request.
    pub(crate) fn internal(code: &'static str) -> Self {
        let message = "the server failed while it ran the request; its log has the request id";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, code, message)
    }

    /// The server is ending.
    pub(crate) fn draining() -> Self {
        Self::unavailable("draining", "the server is ending and takes no more work")
    }

    /// The engine has work and makes no progress.
    pub(crate) fn frozen() -> Self {
        Self::unavailable("engine_frozen", "the engine makes no progress and takes no more work for now")
    }

    /// Names the field at fault.
    pub(crate) fn of_field(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    /// The error with paths from this directory on, so that clients do not learn where it is.
    pub(crate) fn with_paths_from(self, root: &Path) -> Self {
        let found = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        Self { message: self.message.replace(&format!("{}/", found.display()), ""), ..self }
    }

    /// The error with another status and code.
    pub(crate) fn recast(self, status: StatusCode, code: &'static str) -> Self {
        Self { status, code, ..self }
    }

    /// The error in the format of its route.
    pub(crate) fn in_format(self, error_format: ErrorFormat) -> Self {
        match (error_format, self.too_long) {
            (ErrorFormat::Tei, Some(fact)) => Self {
                status: StatusCode::PAYLOAD_TOO_LARGE,
                message: format!("{fact}; shorten it, or cut it with `truncate` = true"),
                error_format,
                too_long: None,
                ..self
            },
            (_, too_long) => {
                Self { status: error_format.status(self.status, self.code), error_format, too_long, ..self }
            }
        }
    }

    /// An error of a request's conversion or run. `param` is the field to blame for an error that names none.
    pub(crate) fn of(error: ApiError, param: &str) -> Self {
        let hint = error.hint();
        match error {
            ApiError::Field { param, fact, .. } => {
                Self::invalid("invalid_value", advised(&fact, hint)).of_field(param)
            }
            ApiError::Engine(error) => Self::of_engine(&error, param),
            ApiError::Chat(_) => Self::internal("tokenizer"),
            ApiError::InvalidTemplate(error) => {
                let message = advised(&error.to_string(), hint);
                Self::new(StatusCode::NOT_IMPLEMENTED, "invalid_chat_template", message)
            }
            error => Self::invalid("invalid_value", advised(&error.to_string(), hint)).of_field(param),
        }
    }

    /// An error of the engine. `param` is the field that invalid requests are blamed on.
    pub(crate) fn of_engine(error: &EngineError, param: &str) -> Self {
        let message = advised(&error.to_string(), error.hint());
        match error {
            EngineError::Request { field, .. } => {
                let is_too_long = error.hint().is_some_and(|hint| hint.names(Setting::Truncate));
                let too_long = is_too_long.then(|| error.to_string());
                let fault = Self::invalid("invalid_value", message).of_field(field.unwrap_or(param));
                Self { too_long, ..fault }
            }
            EngineError::Tokenizer(_) => Self::invalid("invalid_value", message).of_field(param),
            EngineError::NoTokenizer(_) => {
                Self::new(StatusCode::NOT_IMPLEMENTED, "wrong_model_kind", message).of_field(param)
            }
            EngineError::QueueFull { .. } | EngineError::Grammar { .. } => {
                Self::overloaded("queue_full", message)
            }
            EngineError::Late { .. } => Self::new(StatusCode::REQUEST_TIMEOUT, "deadline_exceeded", message),
            EngineError::KvFull { .. } | EngineError::Memory(_) => Self::unavailable("kv_full", message),
            EngineError::NoPlan { .. } => Self::unavailable("plan_missing", message),
            EngineError::Expired { .. } => Self::unavailable("queue_timeout", message),
            EngineError::NoAdapter { .. } => {
                Self::new(StatusCode::NOT_FOUND, "model_not_found", message).of_field("adapter")
            }
            EngineError::Cancelled => Self::draining(),
            EngineError::Stopped => Self::unavailable("engine_stopped", message),
            EngineError::NonFinite(_) => Self::internal("not_finite"),
            EngineError::Stalled => Self::internal("stalled"),
            EngineError::Panicked(_) => Self::internal("panicked"),
            EngineError::Model(_)
            | EngineError::Tier(_)
            | EngineError::Threads { .. }
            | EngineError::Option(_) => Self::internal("engine"),
        }
    }

    /// The error object.
    pub(crate) fn body(&self) -> ErrorBody {
        let error = ErrorDetail {
            message: shortened(&self.message),
            kind: self.kind().to_owned(),
            param: self.param.as_deref().map(shortened),
            code: self.code.to_owned(),
        };
        ErrorBody { error }
    }

    /// The class of the error, in OpenAI's words.
    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            408 => "timeout_error",
            413 => "request_too_large_error",
            422 => "unprocessable_entity_error",
            424 => "model_type_error",
            429 => "rate_limit_error",
            501 => "not_supported_error",
            503 => "unavailable_error",
            status if status >= 500 => "internal_error",
            _ => "invalid_request_error",
        }
    }
}

/// A fact and its hint in one text.
fn advised(fact: &str, hint: Option<Hint>) -> String {
    hint.map_or_else(|| fact.to_owned(), |hint| format!("{fact}; {}", hint.spelled(&FieldsOfRequests)))
}

/// Spells settings as fields of requests.
struct FieldsOfRequests;

impl Spelling for FieldsOfRequests {
    fn setting(&self, setting: Setting, value: Option<&str>) -> String {
        if setting == Setting::ChatTemplate {
            return "the server's `chat_template`".to_owned();
        }
        let name = match setting {
            Setting::MaxNewTokens => "max_tokens",
            setting => setting.name(),
        };
        value.map_or_else(|| format!("`{name}`"), |value| format!("`{name}` = {value}"))
    }

    fn command(&self, command: Command, _: Option<&str>) -> String {
        format!("`{}`", command.name())
    }
}

/// The text, or its beginning if it is long.
fn shortened(text: &str) -> String {
    if text.len() <= MAX_MESSAGE {
        return text.to_owned();
    }
    let end = (0..=MAX_MESSAGE).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    format!("{}...", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let body = Fault::invalid("invalid_value", "é".repeat(1000)).body();
        assert_eq!(body.error.message, format!("{}...", "é".repeat(300)));
    }

    /// The field `truncate` is true there, and an end to cut elsewhere.
    #[test]
    fn an_input_that_is_too_long_may_be_cut() {
        use redline_engine::settings::hint;
        let error = EngineError::Request {
            fact: "text 0: 9 tokens exceed the maximum of 8".to_owned(),
            hint: Some(hint!["choose an end to cut with ", Setting::Truncate.to("left|right")]),
            field: None,
        };
        let told = |error_format| {
            let fault = Fault::of_engine(&error, "inputs").in_format(error_format);
            (fault.status.as_u16(), fault.body().error.message)
        };
        let fact = "text 0: 9 tokens exceed the maximum of 8; ";
        assert_eq!(
            told(ErrorFormat::Tei),
            (413, format!("{fact}shorten it, or cut it with `truncate` = true"))
        );
        let plain = format!("{fact}choose an end to cut with `truncate` = left|right");
        assert_eq!(told(ErrorFormat::OpenAi), (400, plain));
    }

    #[test]
    fn what_the_engine_refuses_for_now_may_come_again() {
        let of = |error| {
            let fault = Fault::of_engine(&error, "prompt");
            (fault.status.as_u16(), fault.code, fault.retry_after.is_some(), fault.param)
        };
        assert_eq!(of(EngineError::QueueFull { requests: 3 }), (429, "queue_full", true, None));
        assert_eq!(of(EngineError::KvFull { tokens: 3 }), (503, "kv_full", true, None));
        assert_eq!(of(EngineError::Stopped), (503, "engine_stopped", true, None));
        let late = EngineError::Late { seconds: 1.0, tokens: None };
        assert_eq!(of(late), (408, "deadline_exceeded", false, None));
        let bad = EngineError::Request { fact: "f".to_owned(), hint: None, field: None };
        assert_eq!(of(bad), (400, "invalid_value", false, Some("prompt".to_owned())));
        let panicked = Fault::of_engine(&EngineError::Panicked("the prompt".to_owned()), "prompt");
        assert!(panicked.status == 500 && !panicked.body().error.message.contains("the prompt"));
    }
}
