//! Error bodies of the server, in the forms of OpenAI, Anthropic, Ollama, TypeSafe and Text Embeddings Inference.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The body of an answer that reports an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorDetail {
    /// The fact with its numbers, and what to do about it.
    pub message: String,
    /// The class of the error, such as `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The field of the request at fault.
    pub param: Option<String>,
    /// A short name of the error.
    pub code: String,
}

/// The body of an answer that reports an invalid field in TypeSafe's form, with the error in OpenAI's form too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ValidationBody {
    /// The error.
    pub error: ErrorDetail,
    /// The invalid fields.
    pub detail: Vec<ValidationDetail>,
}

/// An invalid field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ValidationDetail {
    /// Where it is: `body`, then the names of fields and the indices of lists.
    pub loc: Vec<LocationPart>,
    /// The fact with its numbers, and what to do about it.
    pub msg: String,
    /// A short name of the error.
    #[serde(rename = "type")]
    pub kind: String,
}

/// A part of a field's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum LocationPart {
    /// A field.
    Name(String),
    /// An element of a list.
    Index(usize),
}

/// The body of an answer that reports an error in the form of Text Embeddings Inference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TeiErrorBody {
    /// The fact with its numbers, and what to do about it.
    pub error: String,
    /// The class of the error: `validation`, `backend`, `overloaded` or `unhealthy`.
    pub error_type: &'static str,
}

/// The body of an answer that reports an error in Ollama's form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OllamaErrorBody {
    /// The fact with its numbers, and what to do about it.
    pub error: String,
    /// The field of the request at fault.
    pub param: Option<String>,
    /// A short name of the error.
    pub code: String,
}

impl From<ErrorDetail> for OllamaErrorBody {
    fn from(error: ErrorDetail) -> Self {
        Self { error: error.message, param: error.param, code: error.code }
    }
}

/// The body of an answer that reports an error in Anthropic's form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AnthropicErrorBody {
    /// Always `error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The error.
    pub error: AnthropicError,
}

/// An error in Anthropic's form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AnthropicError {
    /// The class of the error, such as `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The fact with its numbers, and what to do about it.
    pub message: String,
    /// The field of the request at fault.
    pub param: Option<String>,
    /// A short name of the error.
    pub code: String,
}

impl AnthropicErrorBody {
    /// The body of an error with this status.
    pub fn of(status: u16, error: ErrorDetail) -> Self {
        let kind = match status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 | 529 => "overloaded_error",
            504 => "timeout_error",
            status if status >= 500 => "api_error",
            _ => "invalid_request_error",
        };
        let ErrorDetail { message, param, code, .. } = error;
        Self { kind: "error", error: AnthropicError { kind, message, param, code } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_is_fixed() {
        let detail = ErrorDetail {
            message: "m".to_owned(),
            kind: "invalid_request_error".to_owned(),
            param: Some("prompt[1]".to_owned()),
            code: "invalid_type".to_owned(),
        };
        let body = ErrorBody { error: detail };
        let json = serde_json::to_string(&body).unwrap();
        let expect = r#"{"error":{"message":"m","type":"invalid_request_error","param":"prompt[1]","code":"invalid_type"}}"#;
        assert_eq!(json, expect);
        assert_eq!(serde_json::from_str::<ErrorBody>(&json).unwrap(), body);
    }
}
