//! Runs generations, and answers with a document or with events.

use axum::body::Body;
use redline_api::error::ApiError;
use redline_api::generation::mode::{GenerationOutcome, GenerationRequest};
use redline_api::generation::stream::StreamedAnswer;

use crate::admission::{Need, Submitter, run, submit};
use crate::answer::Answer;
use crate::app::App;
use crate::fault::Fault;
use crate::pipe::PipeReader;
use crate::route::Call;
use crate::sizes::check_guidance;
use crate::stream::EventBody;

/// Runs the requests that `make` completes. Without a stream, the answer is what `build` makes of their outcomes.
pub(crate) async fn generate<S, M, B>(
    call: &Call,
    need: Need,
    stream: Option<S>,
    make: M,
    build: B,
) -> Result<Answer, Fault>
where
    S: StreamedAnswer,
    M: FnOnce(&Submitter<'_>) -> Result<Vec<GenerationRequest>, ApiError> + Send + 'static,
    B: FnOnce(&App, Vec<GenerationOutcome>) -> Result<Answer, Fault> + Send + 'static,
{
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
