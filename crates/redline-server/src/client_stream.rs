//! The stream of a connection, below HTTP: clients that close their half of it, and errors of the HTTP parser.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::answer::JSON;
use crate::config::ServerLimits;
use crate::error_format::ErrorFormat;
use crate::fault::Fault;

/// How often a client that has closed its half is probed.
const PROBE_PERIOD: Duration = Duration::from_secs(1);
/// An interim response, which clients ignore. A client that is gone, instead of having closed its half only, resets the connection.
const PROBE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The request that a connection is answering, if any. Each field is shared while that part of the work lasts.
#[derive(Clone, Default)]
pub(crate) struct OpenRequest {
    /// Until the body of the request is read.
    pub(crate) upload: Arc<()>,
    /// Until the last byte of the answer is taken.
    pub(crate) answer: Arc<()>,
    /// Until the answer begins.
    pub(crate) head: Arc<()>,
}

/// Whether this part of the work lasts. The stream of the connection and its service share it at all times.
fn lasts(part: &Arc<()>) -> bool {
    Arc::strong_count(part) > 2
}

/// The stream of a connection. A client that closes its half still gets the answer to its request; one that is gone cancels it.
pub(crate) struct ClientStream<S> {
    stream: S,
    request: OpenRequest,
    /// Whether bytes of an answer wait until the client reads.
    blocked: bool,
    /// Whether bytes were sent since the last probe.
    sent: bool,
    /// Runs from the end of what the client sends.
    probes: Option<Interval>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientStream<S> {
    pub(crate) fn new(stream: S, request: OpenRequest) -> Self {
        Self { stream, request, blocked: false, sent: false, probes: None }
    }

    /// Finds out whether the client is there. It may take until the next probe.
    fn probe(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if !self.blocked && lasts(&self.request.head) {
            match Pin::new(&mut self.stream).poll_write(context, PROBE)? {
                Poll::Ready(written) if written < PROBE.len() => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(_) | Poll::Pending => {}
            }
            let _ = Pin::new(&mut self.stream).poll_flush(context)?;
        }
        // After a reset, writing fails even if nothing is written, and reading does not.
        let _ = Pin::new(&mut self.stream).poll_write(context, &[])?;
        Ok(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before || !lasts(&this.request.answer) {
            return Poll::Ready(Ok(()));
        }
        loop {
            let is_first = this.probes.is_none();
            let probes = this.probes.get_or_insert_with(|| {
                // The first tick comes at once.
                let mut probes = interval(PROBE_PERIOD);
                // Between two ticks there is a second in which something may be sent, also if one is late.
                probes.set_missed_tick_behavior(MissedTickBehavior::Delay);
                probes
            });
            ready!(probes.poll_tick(context));
            if lasts(&this.request.upload) {
                // The body may have come with the end and not be read yet; after a second, its rest will not come.
                if is_first {
                    continue;
                }
                return Poll::Ready(Ok(()));
            }
            // Within an answer there is no probe. Where nothing is sent that would find out whether the client is there, it counts
            // as gone, so that nobody computes for it.
            if !(lasts(&this.request.head) || this.blocked || std::mem::take(&mut this.sent)) {
                return Poll::Ready(Ok(()));
            }
            this.probe(context)?;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let stream = Pin::new(&mut this.stream);
        let written = match parser_error(bytes) {
            // The connection ends, so it does not matter if a part is not taken.
            Some(answer) => stream.poll_write(context, &answer).map_ok(|_| bytes.len()),
            None => stream.poll_write(context, bytes),
        };
        this.blocked = written.is_pending();
        this.sent |= matches!(written, Poll::Ready(Ok(1..)));
        written
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// The answer to send instead of one of the HTTP parser, whose errors have no body. All other answers with an error have one.
fn parser_error(bytes: &[u8]) -> Option<Vec<u8>> {
    let head = std::str::from_utf8(bytes.strip_prefix(b"HTTP/1.1 4")?).ok()?;
    if !(head.ends_with("\r\n\r\n") && head.contains("\r\ncontent-length: 0\r\n")) {
        return None;
    }
    let (status, code, message) = match head.get(..2)? {
        "00" => (StatusCode::BAD_REQUEST, "invalid_http", "the request is not valid HTTP/1.1".to_owned()),
        "14" => (StatusCode::URI_TOO_LONG, "path_too_long", "the path is too long".to_owned()),
        "31" => {
            let message = format!(
                "the head of the request is too large; send at most {} bytes and 100 headers",
                ServerLimits::HEAD_BYTES
            );
            (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", message)
        }
        _ => return None,
    };
    Some(closing(Fault::new(status, code, message)))
}

/// The bytes of an answer that reports an error, after which the connection is closed.
pub(crate) fn closing(fault: Fault) -> Vec<u8> {
    let body = ErrorFormat::OpenAi.body(fault.status, fault.body().error);
    let retry = fault.retry_after.map_or_else(String::new, |seconds| format!("retry-after: {seconds}\r\n"));
    let head = format!(
        "HTTP/1.1 {}\r\ncontent-type: {JSON}\r\n{retry}connection: close\r\ncontent-length: {}\r\n\r\n",
        fault.status,
        body.len()
    );
    [head.into_bytes(), body].concat()
}
