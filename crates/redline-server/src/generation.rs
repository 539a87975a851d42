//! Runs generations, and answers with a document or with events.

use std::time::Duration;

use axum::body::Body;
use redline_api::error::ApiError;
use redline_api::generation::mode::{GenerationOutcome, GenerationRequest};
use redline_api::generation::stream::StreamedAnswer;
use redline_engine::{AnyRequest, EngineError, Grammar};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::admission::{Need, Submitter, failed, run, submit};
use crate::answer::Answer;
use crate::app::App;
use crate::clock::Moment;
use crate::fault::Fault;
use crate::pipe::PipeReader;
use crate::route::Call;
use crate::sizes::check_guidance;
use crate::stream::EventBody;

/// The grammar of the requests of a body.
pub(crate) struct PreparedGrammar {
    grammar: Grammar,
    /// The field that gives it.
    param: &'static str,
    timeout_s: Option<f64>,
}

impl PreparedGrammar {
    /// The grammar of a request, if it has one. `param` is the field that gives it.
    pub(crate) fn of(request: &mut GenerationRequest, param: Option<&'static str>) -> Option<Self> {
        let grammar = request.grammar()?.clone();
        Some(Self { grammar, param: param.unwrap_or("grammar"), timeout_s: *request.common().timeout_s })
    }
}

/// Compiles a grammar before its request takes a place, so that no thread waits for that.
async fn prepare(
    call: &Call,
    PreparedGrammar { grammar, param, timeout_s }: PreparedGrammar,
) -> Result<(), Fault> {
    let (send, prepared) = oneshot::channel();
    call.app.model.engine.prepare_grammar(&grammar, |prepared| {
        // Nobody receives it if the client has left.
        let _ = send.send(prepared);
    });
    let begun = Moment::now();
    let longest = timeout_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let ended = timeout(longest.unwrap_or(Duration::MAX), prepared).await;
    let late = || EngineError::Late { seconds: begun.elapsed().as_secs_f64(), tokens: None };
    let error = match ended {
        Ok(Ok(Ok(()))) => return Ok(()),
        Ok(Ok(Err(error))) => error,
        Ok(Err(_)) => EngineError::Stopped,
        Err(_) => late(),
    };
    Err(failed(&call.app, error.into(), param).of_field(param))
}

/// Runs the requests that `make` completes. Without a stream, the answer is what `build` makes of their outcomes.
pub(crate) async fn generate<S, M, B>(
    call: &Call,
    need: Need,
    grammar: Option<PreparedGrammar>,
    stream: Option<S>,
    make: M,
    build: B,
) -> Result<Answer, Fault>
where
    S: StreamedAnswer,
    M: FnOnce(&Submitter<'_>) -> Result<Vec<GenerationRequest>, ApiError> + Send + 'static,
    B: FnOnce(&App, Vec<GenerationOutcome>) -> Result<Answer, Fault> + Send + 'static,
{
    if let Some(grammar) = grammar {
        prepare(call, grammar).await?;
    }
    let (streams, app) = (stream.is_some(), call.app.clone());
    let work = move |submitter: &Submitter<'_>| {
        let mut tickets = Vec::new();
        for request in make(submitter)? {
            check_guidance(&request, &app.sizes, need.answer_bytes)?;
            let choices = request.choices();
            let ticket = submitter.submit(request)?;
            tickets.push((if streams { ticket } else { ticket.outcome_only() }, choices));
        }
        Ok::<_, ApiError>(tickets)
    };
    let Some(stream) = stream else {
        let builds = |app: &App, outcomes: Vec<GenerationOutcome>| {
            if outcomes.iter().any(|outcome| outcome.end.cancelled) {
                return Err(Fault::draining());
            }
            build(app, outcomes)
        };
        let tickets = move |submitter: &Submitter<'_>| {
            work(submitter).map(|tickets| tickets.into_iter().map(|(ticket, _)| ticket).collect())
        };
        return run(call, need, tickets, builds).await;
    };
    let (place, tickets) = submit(call, need, work).await?;
    let app = call.app.clone();
    let most = app.config.limits.stream_bytes;
    let pipe = PipeReader::of(tickets, most, stream.sends_canvas());
    Ok(Answer::events(move |record| Body::new(EventBody::new(app, place, pipe, stream, need.param, record))))
}
