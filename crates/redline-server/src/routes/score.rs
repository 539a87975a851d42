//! `POST /v1/score`.

use redline_api::foreign::score;
use redline_wire::ScoreBody;

use crate::admission::{Desk, Need, run_one, score_bytes};
use crate::answer::Answer;
use crate::app::App;
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
        let answer_bytes = score_bytes(request.items.len(), request.labels.len());
        let need = Need { param: "items", prompts: 1, answer_bytes };
        let submit = move |desk: &Desk<'_>| {
            request.timeout_s = desk.time_left(request.timeout_s)?;
            desk.engine.submit_score(request, desk.cancel)
        };
        let build = move |_: &App, outcome| {
            let answer = score::answer(head, logprobs, outcome);
            Ok(Answer::json(&answer)?.with_usage(answer.usage))
        };
        run_one(&call, need, submit, build).await
    })
}
