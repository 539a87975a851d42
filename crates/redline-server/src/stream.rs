//! The body of a streamed answer: server-sent events, or lines.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::http::StatusCode;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use redline_api::generation::mode::PromptEnd;
use redline_api::generation::stream::{ServerEvent, StreamFormat, StreamedAnswer};
use redline_engine::FinishReason;

use crate::admission::{Place, failed};
use crate::app::App;
use crate::fault::Fault;
use crate::log::Record;
use crate::pipe::{PipeEvent, PipeReader};

/// Bytes after which events are handed to the connection.
const FRAME: usize = 16 << 10;
/// The data after the last event, where an answer has such a mark.
const END_MARK: &[u8] = b"data: [DONE]\n\n";

/// A streamed answer. Dropping it cancels its requests.
pub(crate) struct EventBody<S: StreamedAnswer>(Option<Open<S>>);

/// An answer that has not ended.
struct Open<S: StreamedAnswer> {
    app: Arc<App>,
    answer: S,
    pipe: PipeReader,
    /// Number of prompts that have not ended.
    running: usize,
    begun: bool,
    param: &'static str,
    /// The line in the log, which is written when the answer ends.
    record: Record,
    place: Place,
}

impl<S: StreamedAnswer> EventBody<S> {
    /// The body of an answer to the prompts of a pipe. `param` is the field to blame for an error that names none.
    pub(crate) fn new(
        app: Arc<App>,
        place: Place,
        pipe: PipeReader,
        answer: S,
        param: &'static str,
        record: Record,
    ) -> Self {
        let running = pipe.prompts();
        Self(Some(Open { app, answer, pipe, running, begun: false, param, record, place }))
    }
}

impl<S: StreamedAnswer> HttpBody for EventBody<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(open) = &mut self.0 else { return Poll::Ready(None) };
        let mut out = Vec::new();
        let filled = catch_unwind(AssertUnwindSafe(|| open.fill(context, &mut out)));
        match filled.unwrap_or_else(|_| Err(Fault::internal("panicked"))) {
            Ok(Progress::Open) => {}
            Ok(Progress::Ended) => {
                open.record.status = StatusCode::OK.as_u16();
                open.place.answered();
                self.0 = None;
            }
            Err(fault) => {
                // The answer may be in any state after a panic.
                let _ = catch_unwind(AssertUnwindSafe(|| open.fail(&fault, &mut out)));
                (open.record.status, open.record.code) = (fault.status.as_u16(), Some(fault.code));
                self.0 = None;
            }
        }
        match (out.is_empty(), &self.0) {
            (false, _) => Poll::Ready(Some(Ok(Frame::data(out.into())))),
            (true, Some(_)) => Poll::Pending,
            (true, None) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}

/// Whether more events follow.
enum Progress {
    Open,
    Ended,
}

impl<S: StreamedAnswer> Open<S> {
    /// Appends events until the engine has nothing more to tell, or a frame is full.
    fn fill(&mut self, context: &Context<'_>, out: &mut Vec<u8>) -> Result<Progress, Fault> {
        let mut events = Vec::new();
        if !std::mem::replace(&mut self.begun, true) {
            self.answer.begin(&mut events);
        }
        while self.running > 0 {
            write(S::FORMAT, &mut events, out)?;
            if out.len() >= FRAME {
                return Ok(Progress::Open);
            }
            match self.pipe.poll(context) {
                Poll::Pending => return Ok(Progress::Open),
                // An error follows.
                Poll::Ready(PipeEvent::Piece(_, piece))
                    if piece.finish_reason == Some(FinishReason::Cancelled) => {}
                Poll::Ready(PipeEvent::Piece(prompt, piece)) => {
                    let sent = self.answer.piece(prompt, piece, &mut events);
                    sent.map_err(|error| failed(&self.app, error, self.param))?;
                }
                Poll::Ready(PipeEvent::Ended(prompt, ended)) => {
                    let end: PromptEnd =
                        ended.map_err(|error| failed(&self.app, error.into(), self.param))?;
                    self.answer.ended(prompt, end);
                    if end.cancelled {
                        return Err(Fault::draining());
                    }
                    self.running -= 1;
                }
                Poll::Ready(PipeEvent::Overflow) => return Err(slow_reader()),
            }
        }
        self.answer.end(&mut events);
        write(S::FORMAT, &mut events, out)?;
        if S::FORMAT == StreamFormat::EventsWithEndMark {
            out.extend(END_MARK);
        }
        Ok(Progress::Ended)
    }

    /// Appends the events of an error.
    fn fail(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        let mut events = Vec::new();
        self.answer.fail(fault.body().error, &mut events);
        // An event that cannot be written is left out; the stream ends all the same.
        let _ = write(S::FORMAT, &mut events, out);
    }
}

impl<S: StreamedAnswer> Drop for Open<S> {
    fn drop(&mut self) {
        self.record.count(self.answer.usage());
    }
}

/// The error of a client that does not read its answer.
fn slow_reader() -> Fault {
    let message = "too much of the answer waits to be read; read it as it comes, or do not stream it";
    Fault::new(StatusCode::REQUEST_TIMEOUT, "slow_reader", message)
}

/// Appends events in the format of a stream.
fn write<E: ServerEvent>(format: StreamFormat, events: &mut Vec<E>, out: &mut Vec<u8>) -> Result<(), Fault> {
    for event in events.drain(..) {
        // Only numbers that are not finite cannot be written.
        let data = serde_json::to_vec(&event).map_err(|_| Fault::internal("not_finite"))?;
        if format == StreamFormat::Lines {
            out.extend(data);
            out.push(b'\n');
            continue;
        }
        if let Some(name) = event.name() {
            out.extend(b"event: ");
            out.extend(name.as_bytes());
            out.push(b'\n');
        }
        out.extend(b"data: ");
        out.extend(data);
        out.extend(b"\n\n");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use redline_api::cost::Usage;
    use redline_api::error::ApiError;
    use redline_api::error_body::{ErrorBody, ErrorDetail};
    use redline_api::generation::mode::{GenerationPiece, GenerationRequest};
    use redline_api::model::LoadedModel;
    use redline_api::openai::completions::CompletionEvent;
    use redline_engine::{AnyRequest as _, Engine, GenerateRequest, Options, Prompt, Source};

    use super::*;
    use crate::log::Log;
    use crate::route::Call;

    /// An answer with a bug.
    struct Buggy;

    impl StreamedAnswer for Buggy {
        type Event = CompletionEvent;

        const FORMAT: StreamFormat = StreamFormat::EventsWithEndMark;

        fn begin(&mut self, _: &mut Vec<CompletionEvent>) {}

        fn piece(
            &mut self,
            _: usize,
            _: GenerationPiece,
            _: &mut Vec<CompletionEvent>,
        ) -> Result<(), ApiError> {
            panic!("a bug")
        }

        fn ended(&mut self, _: usize, _: PromptEnd) {}

        fn end(&mut self, _: &mut Vec<CompletionEvent>) {}

        fn fail(&mut self, error: ErrorDetail, events: &mut Vec<CompletionEvent>) {
            events.push(CompletionEvent::Failed(ErrorBody { error }));
        }

        fn usage(&self) -> Usage {
            Usage::default()
        }
    }

    #[test]
    fn a_panic_ends_its_stream_with_an_error() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
        let engine = Engine::load(Options { threads: 1, ..Options::new(Source::Path(dir)) }).unwrap();
        let model = LoadedModel { name: "demo".to_owned(), engine };
        let (to, lines) = std::sync::mpsc::channel();
        let (log, writer) = Log::start(Some(Box::new(move |line| to.send(line.to_owned()).unwrap())));
        let app = Arc::new(App::of_test(model, log));
        let call = Call::of_test(&app);
        let place = Place::take(&call, 1, "prompt").ok().unwrap();
        drop(call);
        let request = GenerationRequest::Autoregressive(GenerateRequest::new(Prompt::Ids(vec![5]), 1));
        let ticket = request.submit(&app.model.engine, &app.shared.cancel).unwrap();
        let record = Record::begin(
            (app.shared.log.clone(), app.shared.metrics.clone()),
            "id".to_owned(),
            "POST",
            "/x",
        );
        let pipe = PipeReader::of(vec![(ticket, 1)], 1 << 20, false);
        let body = EventBody::new(app.clone(), place, pipe, Buggy, "prompt", record);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let sent = runtime.block_on(body.collect()).unwrap().to_bytes();
        let text = String::from_utf8_lossy(&sent);
        assert!(text.starts_with("data: {\"error\":") && text.contains("\"panicked\""), "{text}");
        assert!(!text.contains("[DONE]") && text.ends_with("\n\n"), "{text}");
        assert_eq!(app.places.available_permits(), app.config.limits.queue);
        drop(app);
        writer.unwrap().join().unwrap();
        let line = lines.recv().unwrap();
        assert!(line.contains(r#""status":500,"code":"panicked""#), "{line}");
    }
}
