//! `POST /rerank`, `POST /v1/rerank`, `POST /v2/rerank`.

use redline_api::foreign::rerank::{self, RerankAnswer};
use redline_engine::{Cancel, Engine};
use redline_wire::RerankBody;

use crate::admission::run_one;
use crate::answer::Answer;
use crate::fault::Fault;
use crate::route::{Call, Handled, Route};

pub(super) const ROUTES: &[Route] =
    &[Route::post("/rerank", answer), Route::post("/v1/rerank", answer), Route::post("/v2/rerank", answer)];

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let body: RerankBody = call.parse()?;
        let param = if body.texts.is_some() { "texts" } else { "documents" };
        let (head, adapters) =
            call.head_with_adapters("rerank", body.model.as_deref(), body.adapter.as_ref())?;
        let (mut request, form) = rerank::request(body).map_err(|error| Fault::of(error, param))?;
        request.options.cache_salt = call.salt(&request.options.cache_salt);
        request.options.adapters = adapters;
        request.options.queueing = call.queueing();
        request.options.timeout_s = Some(call.timeout_s(request.options.timeout_s));
        let submit = |engine: &Engine, cancel: &Cancel| engine.submit_rerank(request, cancel);
        let outcome = run_one(&call, param, submit).await?;
        match rerank::answer(head, form, outcome) {
            RerankAnswer::Documents(answer) => Ok(Answer::json(&answer)?.with_usage(answer.usage)),
            RerankAnswer::List(answer) => Answer::json(&answer),
        }
    })
}
