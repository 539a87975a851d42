//! `POST /v1/decisions`.

use redline_api::foreign::decisions;
use redline_engine::{Cancel, Engine};
use redline_wire::{DecisionBody, Usage};

use crate::admission::run_one;
use crate::answer::Answer;
use crate::fault::Fault;
use crate::route::{Call, Handled, Route};

pub(super) const ROUTES: &[Route] = &[Route::post("/v1/decisions", answer)];

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let body: DecisionBody = call.parse()?;
        let head = call.head("decision", body.model.as_deref())?;
        let request = decisions::request(&call.app.model, call.app.config.chat.as_ref(), body);
        let (mut request, form) = request.map_err(|error| Fault::of(error, "questions"))?;
        request.cache_salt = call.salt(&request.cache_salt);
        request.timeout_s = Some(call.timeout_s(request.timeout_s));
        let named = form.clone();
        let submit = move |engine: &Engine, cancel: &Cancel| {
            engine.submit_score(request, cancel).map_err(|error| named.named(error))
        };
        let outcome = run_one(&call.app, "questions", submit).await?;
        let answer = decisions::answer(head, &form, &outcome);
        let usage = answer.usage;
        let usage = Usage::new(usage.input_tokens, 0, usage.input_tokens_details.cached_tokens);
        Ok(Answer::json(&answer)?.with_usage(usage))
    })
}
