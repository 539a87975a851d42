//! `POST /v1/score`.

use redline_api::foreign::score;
use redline_engine::{Cancel, Engine};
use redline_wire::ScoreBody;

use crate::admission::run_one;
use crate::answer::Answer;
use crate::fault::Fault;
use crate::route::{Call, Handled, Route};

pub(super) const ROUTES: &[Route] = &[Route::post("/v1/score", answer)];

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let body: ScoreBody = call.parse()?;
        let (head, adapters) =
            call.head_with_adapters("score", body.model.as_deref(), body.adapter.as_ref())?;
        let (mut request, logprobs) = score::request(body).map_err(|error| Fault::of(error, "items"))?;
        request.cache_salt = call.salt(&request.cache_salt);
        request.adapters = adapters;
        request.queueing = call.queueing();
        request.timeout_s = Some(call.timeout_s(request.timeout_s));
        let submit = |engine: &Engine, cancel: &Cancel| engine.submit_score(request, cancel);
        let outcome = run_one(&call, "items", submit).await?;
        let answer = score::answer(head, logprobs, outcome);
        let usage = answer.usage;
        Ok(Answer::json(&answer)?.with_usage(usage))
    })
}
