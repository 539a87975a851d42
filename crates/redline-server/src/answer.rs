//! Answers of handlers, and how they become HTTP responses.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use redline_api::cost::Usage;
use redline_api::generation::stream::StreamFormat;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::fault::Fault;
use crate::log::Record;

/// Most bytes of a document that are handed to the connection at a time.
const PART: usize = 64 << 10;

/// The media type of documents.
pub(crate) const JSON: &str = "application/json";
/// The media type of events.
pub(crate) const EVENTS: &str = "text/event-stream; charset=utf-8";
/// The media type of lines of JSON.
pub(crate) const LINES: &str = "application/x-ndjson";

/// The answer of a handler.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    content: Content,
    /// Token counts for the log.
    pub(crate) usage: Option<Usage>,
    /// Headers besides the media type.
    headers: &'static [(&'static str, &'static str)],
}

/// What an answer consists of.
enum Content {
    Document(Document),
    /// A stream of this media type. It ends the line of the log.
    Stream(&'static str, Box<dyn FnOnce(Record) -> Body + Send>),
}

impl Answer {
    /// A document with the status 200.
    pub(crate) fn json(document: &impl Serialize) -> Result<Self, Fault> {
        Self::with_status(StatusCode::OK, document)
    }

    /// A document with another status.
    pub(crate) fn with_status(status: StatusCode, document: &impl Serialize) -> Result<Self, Fault> {
        // Only numbers that are not finite cannot be written.
        let bytes = serde_json::to_vec(document).map_err(|_| Fault::internal("not_finite"))?;
        Ok(Self { status, ..Self::text(JSON, bytes) })
    }

    /// A text of this media type with the status 200.
    pub(crate) fn text(media: &'static str, text: impl Into<Bytes>) -> Self {
        let content = Content::Document(Document { rest: text.into(), media, reserved: None });
        Self { status: StatusCode::OK, content, usage: None, headers: &[] }
    }

    /// No document, with the status 204.
    pub(crate) fn empty() -> Self {
        Self { status: StatusCode::NO_CONTENT, ..Self::text("text/plain", Bytes::new()) }
    }

    /// A stream in this format, with the status 200.
    pub(crate) fn stream(format: StreamFormat, body: impl FnOnce(Record) -> Body + Send + 'static) -> Self {
        let media = match format {
            StreamFormat::Events | StreamFormat::EventsWithEndMark => EVENTS,
            StreamFormat::Lines => LINES,
        };
        let content = Content::Stream(media, Box::new(body));
        Self { status: StatusCode::OK, content, usage: None, headers: &[] }
    }

    /// Token counts for the log.
    pub(crate) fn with_usage(self, usage: Usage) -> Self {
        Self { usage: Some(usage), ..self }
    }

    /// Adds headers.
    pub(crate) fn with_headers(self, headers: &'static [(&'static str, &'static str)]) -> Self {
        Self { headers, ..self }
    }

    /// Keeps memory for a document until it is sent. What was reserved beyond its size is given back.
    pub(crate) fn holding(mut self, reserved: Option<OwnedSemaphorePermit>) -> Self {
        if let (Content::Document(document), Some(mut reserved)) = (&mut self.content, reserved) {
            let rest = std::mem::take(&mut document.rest);
            let own = reserved.split(rest.len());
            document.rest = rest;
            document.reserved = Some(own.unwrap_or(reserved));
        }
        self
    }

    /// The response. The line of the log ends with its head, or with the last event.
    pub(crate) fn into_response(self, mut record: Record) -> Response<Body> {
        let is_stream = matches!(self.content, Content::Stream(..));
        let (body, media) = match self.content {
            Content::Document(document) => {
                record.status = self.status.as_u16();
                if let Some(usage) = self.usage {
                    record.count(usage);
                }
                let media = document.media;
                (Body::new(document), media)
            }
            Content::Stream(media, body) => (body(record), media),
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        for &(name, value) in self.headers {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if is_stream {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            // Proxies that collect an answer before they send it would hold events back.
            headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        }
        response
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).finish_non_exhaustive()
    }
}

/// A document that is sent in parts, so that its memory is held until most of it is sent.
struct Document {
    rest: Bytes,
    media: &'static str,
    reserved: Option<OwnedSemaphorePermit>,
}

impl HttpBody for Document {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.rest.len().min(PART);
        let part = self.rest.split_to(next);
        Poll::Ready((!part.is_empty()).then(|| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

impl Fault {
    pub(crate) fn into_response(self, mut record: Record) -> Response<Body> {
        record.code = Some(self.code);
        let bytes = self.error_format.body(self.status, self.body().error);
        let mut response = Answer { status: self.status, ..Answer::text(JSON, bytes) }.into_response(record);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use tokio::sync::Semaphore;

    use super::*;

    #[test]
    fn the_memory_of_a_document_is_held_until_it_is_sent() {
        let all = Arc::new(Semaphore::new(1 << 20));
        let reserved = all.clone().try_acquire_many_owned(1 << 20).unwrap();
        let text = "x".repeat(2 * PART);
        let answer = Answer::json(&text).unwrap().holding(Some(reserved));
        let Content::Document(document) = answer.content else { panic!("no document") };
        let size = text.len() + 2;
        assert_eq!(all.available_permits(), (1 << 20) - size);
        let (mut body, mut sent) = (Box::pin(document), Vec::new());
        assert_eq!(body.size_hint().exact(), Some(size as u64));
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(Ok(frame))) = body.as_mut().poll_frame(&mut context) {
            sent.push(frame.into_data().unwrap().len());
        }
        assert_eq!(sent, [PART, PART, 2]);
        drop(body);
        assert_eq!(all.available_permits(), 1 << 20);
    }
}
