//! Answers of handlers, and how they become HTTP responses.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use redline_wire::Usage;
use serde::Serialize;

use crate::fault::Fault;

/// The answer of a handler.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    body: Vec<u8>,
    /// Token counts for the log.
    pub(crate) usage: Option<Usage>,
}

impl Answer {
    /// A document with the status 200.
    pub(crate) fn json(document: &impl Serialize) -> Result<Self, Fault> {
        Self::with_status(StatusCode::OK, document)
    }

    /// A document with another status.
    pub(crate) fn with_status(status: StatusCode, document: &impl Serialize) -> Result<Self, Fault> {
        // Only numbers that are not finite cannot be written.
        let body = serde_json::to_vec(document).map_err(|_| Fault::internal("not_finite"))?;
        Ok(Self { status, body, usage: None })
    }

    /// Token counts for the log.
    pub(crate) fn with_usage(self, usage: Usage) -> Self {
        Self { usage: Some(usage), ..self }
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}

impl Fault {
    pub(crate) fn into_response(self) -> Response<Body> {
        let body = self.form.body(self.status, self.body().error);
        let answer = Answer { status: self.status, body, usage: None };
        let mut response = answer.into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
