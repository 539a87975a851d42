//! The formats in which routes report errors.

use axum::http::StatusCode;
use redline_api::error_body::{
    AnthropicErrorBody, ErrorBody, ErrorDetail, LocationPart, OllamaErrorBody, TeiErrorBody, ValidationBody,
    ValidationDetail,
};
use serde::Serialize;

/// The format of a route's errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ErrorFormat {
    /// OpenAI's.
    #[default]
    OpenAi,
    /// TypeSafe's: an invalid field has the status 422. The error is there in OpenAI's format too, which its client also reads.
    SystemOne,
    /// That of Text Embeddings Inference: an invalid field has the status 422, an inference that failed 424, and a request for which
    /// there is no room now 429.
    Tei,
    /// Anthropic's.
    Anthropic,
    /// Ollama's.
    Ollama,
}

/// The codes of bodies that are no JSON objects, or that break off.
const NO_JSON: [&str; 2] = ["invalid_json", "invalid_body"];

/// The codes of requests for which there is no room now.
const NO_ROOM: [&str; 2] = ["kv_full", "queue_timeout"];

impl ErrorFormat {
    /// The headers with the id of a request.
    pub(crate) fn id_headers(self) -> &'static [&'static str] {
        match self {
            Self::SystemOne => &["x-request-id", "x-typesafe-request-id"],
            Self::Anthropic => &["x-request-id", "request-id"],
            Self::OpenAi | Self::Ollama | Self::Tei => &["x-request-id"],
        }
    }

    /// The name of a model in a request. Clients of Ollama may write `demo` as `demo:latest`.
    pub(crate) fn plain_name(self, asked: &str) -> &str {
        match self {
            Self::Ollama => asked.strip_suffix(":latest").unwrap_or(asked),
            _ => asked,
        }
    }

    /// The status of an error in this format. `code` is its short name.
    pub(crate) fn status(self, status: StatusCode, code: &str) -> StatusCode {
        let is_field = status == StatusCode::BAD_REQUEST && !NO_JSON.contains(&code);
        match self {
            Self::SystemOne | Self::Tei if is_field => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Tei if status == StatusCode::INTERNAL_SERVER_ERROR => StatusCode::FAILED_DEPENDENCY,
            Self::Tei if NO_ROOM.contains(&code) => StatusCode::TOO_MANY_REQUESTS,
            _ => status,
        }
    }

    /// The body of an answer that reports an error.
    pub(crate) fn body(self, status: StatusCode, error: ErrorDetail) -> Vec<u8> {
        match self {
            Self::SystemOne if status == StatusCode::UNPROCESSABLE_ENTITY => {
                let detail = ValidationDetail {
                    loc: location(error.param.as_deref().unwrap_or_default()),
                    msg: error.message.clone(),
                    kind: error.code.clone(),
                };
                written(&ValidationBody { error, detail: vec![detail] })
            }
            Self::OpenAi | Self::SystemOne => written(&ErrorBody { error }),
            Self::Anthropic => written(&AnthropicErrorBody::of(status.as_u16(), error)),
            Self::Ollama => written(&OllamaErrorBody::from(error)),
            Self::Tei => {
                let error_type = match status.as_u16() {
                    429 => "overloaded",
                    503 => "unhealthy",
                    424 => "backend",
                    status if status >= 500 => "backend",
                    _ => "validation",
                };
                written(&TeiErrorBody { error: error.message, error_type })
            }
        }
    }
}

fn written(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).unwrap_or_default()
}

/// The parts of a field's name, such as `questions.route.criteria[2]`.
fn location(param: &str) -> Vec<LocationPart> {
    let mut parts = vec![LocationPart::Name("body".to_owned())];
    for name in param.split('.').filter(|name| !name.is_empty()) {
        add_parts(name, &mut parts);
    }
    parts
}

/// Adds a name and the indices that follow it. Names are keys of requests, so there may be any number of indices.
fn add_parts(mut name: &str, parts: &mut Vec<LocationPart>) {
    let mut indices = Vec::new();
    let last_index = |name: &str| {
        let (rest, index) = name.strip_suffix(']')?.rsplit_once('[')?;
        Some((rest.len(), index.parse().ok()?))
    };
    while let Some((end, index)) = last_index(name) {
        indices.push(LocationPart::Index(index));
        name = &name[..end];
    }
    if !name.is_empty() {
        parts.push(LocationPart::Name(name.to_owned()));
    }
    parts.extend(indices.into_iter().rev());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(param: Option<&str>) -> ErrorDetail {
        ErrorDetail {
            message: "m".to_owned(),
            kind: "k".to_owned(),
            param: param.map(str::to_owned),
            code: "c".to_owned(),
        }
    }

    #[test]
    fn an_error_has_the_format_of_its_route() {
        let body = |format: ErrorFormat, status: u16, param| {
            String::from_utf8(format.body(StatusCode::from_u16(status).unwrap(), error(param))).unwrap()
        };
        let plain = r#"{"error":{"message":"m","type":"k","param":null,"code":"c"}}"#;
        assert_eq!(body(ErrorFormat::OpenAi, 422, None), plain);
        assert_eq!(body(ErrorFormat::SystemOne, 413, None), plain);
        let detail = r#""detail":[{"loc":["body","questions","a[b","criteria",2],"msg":"m","type":"c"}]}"#;
        assert!(body(ErrorFormat::SystemOne, 422, Some("questions.a[b.criteria[2]")).ends_with(detail));
        let anthropic =
            r#"{"type":"error","error":{"type":"not_found_error","message":"m","param":null,"code":"c"}}"#;
        assert_eq!(body(ErrorFormat::Anthropic, 404, None), anthropic);
        let ollama = r#"{"error":"m","param":"options","code":"c"}"#;
        assert_eq!(body(ErrorFormat::Ollama, 400, Some("options")), ollama);
        assert_eq!(body(ErrorFormat::Tei, 424, None), r#"{"error":"m","error_type":"backend"}"#);
        assert_eq!(body(ErrorFormat::Tei, 413, None), r#"{"error":"m","error_type":"validation"}"#);
    }

    #[test]
    fn an_invalid_field_has_the_status_of_the_format() {
        let status = |format: ErrorFormat, status: u16, code| {
            format.status(StatusCode::from_u16(status).unwrap(), code).as_u16()
        };
        assert_eq!(status(ErrorFormat::OpenAi, 400, "invalid_value"), 400);
        for format in [ErrorFormat::SystemOne, ErrorFormat::Tei] {
            assert_eq!(status(format, 400, "invalid_value"), 422);
            assert_eq!(NO_JSON.map(|code| status(format, 400, code)), [400; 2]);
            assert_eq!(status(format, 404, "model_not_found"), 404);
        }
        for (format, failed, full) in [
            (ErrorFormat::OpenAi, 500, 503),
            (ErrorFormat::SystemOne, 500, 503),
            (ErrorFormat::Tei, 424, 429),
        ] {
            assert_eq!(status(format, 500, "not_finite"), failed);
            assert_eq!(status(format, 503, "kv_full"), full);
            assert_eq!(status(format, 503, "queue_timeout"), full);
            assert_eq!(status(format, 503, "draining"), 503);
            assert_eq!(status(format, 429, "queue_full"), 429);
        }
    }
}
