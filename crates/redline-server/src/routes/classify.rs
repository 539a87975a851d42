//! `POST /v1/classify`.

use redline_api::foreign::classify;
use redline_engine::{Cancel, Engine};
use redline_wire::ClassifyBody;

use crate::admission::run_one;
use crate::answer::Answer;
use crate::fault::Fault;
use crate::route::{Call, Handled, Route};

pub(super) const ROUTES: &[Route] = &[Route::post("/v1/classify", answer)];

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let body: ClassifyBody = call.parse()?;
        let (head, adapters) =
            call.head_with_adapters("classify", body.model.as_deref(), body.adapter.as_ref())?;
        let mut request = classify::request(body).map_err(|error| Fault::of(error, "input"))?;
        request.options.cache_salt = call.salt(&request.options.cache_salt);
        request.options.adapters = adapters;
        request.options.queueing = call.queueing();
        request.options.timeout_s = Some(call.timeout_s(request.options.timeout_s));
        let classes = request.classes.clone();
        let submit = |engine: &Engine, cancel: &Cancel| engine.submit_classify(request, cancel);
        let outcome = run_one(&call, "input", submit).await?;
        let answer = classify::answer(head, &classes, outcome);
        let usage = answer.usage;
        Ok(Answer::json(&answer)?.with_usage(usage))
    })
}
