//! Runs generations, and answers with a document or with events.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use redline_api::conversation::reading::Reading;
use redline_api::conversation::request::{ChatRequest, FormattedChat};
use redline_api::error::ApiError;
use redline_api::generation::mode::{GenerationOutcome, GenerationRequest};
use redline_api::generation::stream::StreamedAnswer;
use redline_engine::{AdapterChoice, AnyRequest, EngineError, Grammar};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::admission::{Need, Place, Submitter, failed, placed, run, submit, time_left};
use crate::answer::Answer;
use crate::app::App;
use crate::clock::today;
use crate::fault::Fault;
use crate::pipe::PipeReader;
use crate::route::Call;
use crate::sizes::{answer_bytes, check_guidance};
use crate::stream::EventBody;

/// A grammar that a body gives to its requests.
pub(crate) struct GivenGrammar {
    grammar: Grammar,
    /// The field that gives it.
    param: &'static str,
    timeout_s: Option<f64>,
}

impl GivenGrammar {
    /// The grammar of a request, if it has one. `param` is the field that gives it.
    pub(crate) fn of(request: &mut GenerationRequest, param: Option<&'static str>) -> Option<Self> {
        let grammar = request.grammar()?.clone();
        Some(Self { grammar, param: param.unwrap_or("grammar"), timeout_s: *request.common().timeout_s })
    }

    /// Compiles it before its requests take places, so that no thread waits for that.
    async fn prepare(self, call: &Call) -> Result<(), Fault> {
        let (send, prepared) = oneshot::channel();
        call.app.model.engine.prepare_grammar(&self.grammar, |prepared| {
            // Nobody receives it if the client has left.
            let _ = send.send(prepared);
        });
        let limit = self.timeout_s.unwrap_or(call.app.config.limits.request_time.as_secs_f64());
        let ended = match time_left(call.begun, limit) {
            Ok(longest) => {
                timeout(Duration::try_from_secs_f64(longest).unwrap_or(Duration::MAX), prepared).await
            }
            Err(late) => return Err(failed(&call.app, late.into(), self.param)),
        };
        let error = match ended {
            Ok(Ok(Ok(()))) => return Ok(()),
            Ok(Ok(Err(error))) => error,
            Ok(Err(_)) => EngineError::Stopped,
            Err(_) => EngineError::Late { seconds: call.begun.elapsed().as_secs_f64(), tokens: None },
        };
        Err(failed(&call.app, error.into(), self.param).of_field(self.param))
    }
}

/// As [`generate`], for the answer to a conversation. `stream` makes the stream of this number of answers, if the answer is streamed.
pub(crate) async fn converse<S, M, B>(
    call: &Call,
    chat: ChatRequest,
    adapters: Vec<AdapterChoice>,
    stream: M,
    build: B,
) -> Result<Answer, Fault>
where
    S: StreamedAnswer,
    M: FnOnce(Arc<Reading>, usize) -> Option<S>,
    B: FnOnce(&App, &Reading, GenerationOutcome) -> Result<Answer, Fault> + Send + 'static,
{
    let param = chat.param;
    let mut chat = chat.dated(today());
    *chat.request.common().adapters = adapters;
    let template = call.app.chat(param)?;
    let place = Place::take(call, 1, param)?;
    let format = move |app: &App| chat.formatted(&template, &app.model.engine);
    let (place, formatted) = placed(&call.app, place, format).await?;
    drop(place);
    let FormattedChat { mut request, reading, grammar_param } =
        formatted.map_err(|error| failed(&call.app, error, param))?;
    let answer_bytes = answer_bytes(std::slice::from_ref(&request), &call.app.sizes, false);
    let need = Need { param, prompts: 1, answer_bytes };
    let grammar = GivenGrammar::of(&mut request, grammar_param);
    let reading = Arc::new(reading);
    let stream = stream(reading.clone(), request.choices());
    let build = move |app: &App, mut outcomes: Vec<GenerationOutcome>| {
        let outcome = outcomes.pop().ok_or_else(|| Fault::internal("no_outcome"))?;
        build(app, &reading, outcome)
    };
    generate(call, need, grammar, stream, |_| Ok(vec![request]), build).await
}

/// Runs the requests that `make` completes. Without a stream, the answer is what `build` makes of their outcomes.
pub(crate) async fn generate<S, M, B>(
    call: &Call,
    need: Need,
    grammar: Option<GivenGrammar>,
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
        grammar.prepare(call).await?;
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
    Ok(Answer::stream(S::FORMAT, move |record| {
        Body::new(EventBody::new(app, place, pipe, stream, need.param, record))
    }))
}
