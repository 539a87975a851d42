//! `POST /v1/systemone`.

use axum::http::StatusCode;
use redline_api::cost::Usage;
use redline_api::typesafe;
use redline_api::typesafe::{SystemOneAnswers, SystemOneBody};
use redline_engine::ScoreOutcome;

use super::decisions::decide;
use crate::answer::Answer;
use crate::error_format::ErrorFormat;
use crate::fault::Fault;
use crate::nesting::is_deeper;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] =
    &[Route { error_format: ErrorFormat::SystemOne, ..Route::post("/v1/systemone", answer, OPERATION) }];

const OPERATION: Operation = Operation {
    summary: "Answers named questions about a state.",
    request_bodies: &[schema_of::<SystemOneBody>],
    response: ResponseBody::Json(&[schema_of::<SystemOneAnswers>]),
    further_statuses: &[],
};

/// What the names of TypeSafe's own models begin with. Its client sends one of them if it is given none, so they stand for the model.
const OWN_MODELS: &str = "jev-";

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let depth = call.app.config.limits.depth;
        if is_deeper(&call.body.bytes, depth) {
            let message = format!("the JSON is nested too deeply; nest at most {depth} arrays and objects");
            return Err(Fault::invalid("nested_too_deeply", message));
        }
        let body: SystemOneBody = call.parse().await?;
        let asked = body.model.as_deref().filter(|name| !name.starts_with(OWN_MODELS));
        let head = call.head("decision", asked)?;
        if typesafe::too_many(&body) {
            let message =
                format!("{} questions are given; divide them among requests", body.questions.0.len());
            return Err(too_large(message));
        }
        let request = typesafe::request(&call.app.model, call.app.config.chat.as_ref(), body);
        let (request, form) = request.map_err(|error| Fault::of(error, "questions"))?;
        let named = form.clone();
        let build = move |outcome: ScoreOutcome| {
            let answer = typesafe::answer(head, &form, &outcome);
            let usage = Usage::new(answer.usage.input_tokens, 0, outcome.cost.usage.cached_tokens);
            Ok(Answer::json(&answer)?.with_usage(usage))
        };
        let decided = decide(&call, request, move |error| named.named(error), build).await;
        decided.map_err(|fault| {
            // What the engine refuses of a valid request is its size.
            let is_size = fault.status == StatusCode::BAD_REQUEST;
            if is_size { fault.recast(StatusCode::PAYLOAD_TOO_LARGE, TOO_LARGE) } else { fault }
        })
    })
}

const TOO_LARGE: &str = "request_too_large";

fn too_large(message: String) -> Fault {
    Fault::new(StatusCode::PAYLOAD_TOO_LARGE, TOO_LARGE, message).of_field("questions")
}
