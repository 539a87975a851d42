//! `POST /v1/decisions`.

use redline_api::cost::Usage;
use redline_api::openai::decisions;
use redline_api::openai::decisions::body::{DecisionBody, DecisionsAnswer};
use redline_engine::{EngineError, ScoreOutcome, ScoreRequest};

use crate::admission::{Need, run_one, score_bytes};
use crate::answer::Answer;
use crate::fault::Fault;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[Route::post("/v1/decisions", answer, OPERATION)];

const OPERATION: Operation = Operation {
    summary: "Answers typed questions about an input.",
    request_bodies: &[schema_of::<DecisionBody>],
    response: ResponseBody::Json(&[schema_of::<DecisionsAnswer>]),
    further_statuses: &[],
};

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let body: DecisionBody = call.parse().await?;
        let head = call.head("decision", body.model.as_deref())?;
        let request = decisions::request(&call.app.model, call.app.config.chat.as_ref(), body);
        let (request, form) = request.map_err(|error| Fault::of(error, "questions"))?;
        let named = form.clone();
        let build = move |outcome: ScoreOutcome| {
            let answer = decisions::answer(head, &form, &outcome);
            let usage = answer.usage;
            let usage = Usage::new(usage.input_tokens, 0, usage.input_tokens_details.cached_tokens);
            Ok(Answer::json(&answer)?.with_usage(usage))
        };
        decide(&call, request, move |error| named.named(error), build).await
    })
}

/// Runs the questions of a request. `named` gives errors the names of the questions.
pub(super) async fn decide(
    call: &Call,
    request: ScoreRequest,
    named: impl FnOnce(EngineError) -> EngineError + Send + 'static,
    build: impl FnOnce(ScoreOutcome) -> Result<Answer, Fault> + Send + 'static,
) -> Result<Answer, Fault> {
    let labels = request.item_labels.iter().flatten().map(Vec::len).max().unwrap_or(0);
    let need =
        Need { param: "questions", prompts: 1, answer_bytes: score_bytes(request.items.len(), labels) };
    run_one(call, need, request, Vec::new(), named, build).await
}
