//! `POST /v1/completions`.

use redline_api::foreign::completion;
use redline_engine::{Cancel, Engine};
use redline_wire::CompletionBody;

use crate::admission::run;
use crate::answer::Answer;
use crate::fault::Fault;
use crate::route::{Call, Handled, Route};

pub(super) const ROUTES: &[Route] = &[Route::post("/v1/completions", complete)];

fn complete(call: Call) -> Handled {
    Box::pin(async move {
        let body: CompletionBody = call.parse()?;
        let (head, adapters) =
            call.head_with_adapters("cmpl", body.model.as_deref(), body.adapter.as_ref())?;
        let (mut requests, form) = completion::request(body).map_err(|error| Fault::of(error, "prompt"))?;
        for request in &mut requests {
            request.cache_salt = call.salt(&request.cache_salt);
            request.adapters = adapters.clone();
            request.queueing = call.queueing();
            request.timeout_s = Some(call.timeout_s(request.timeout_s));
        }
        let count = requests.len();
        let submit = |engine: &Engine, cancel: &Cancel| {
            requests.into_iter().map(|request| engine.submit_generate(request, cancel)).collect()
        };
        let outcomes = run(&call, count, "prompt", submit).await?;
        if outcomes.iter().any(|outcome| outcome.cancelled) {
            return Err(Fault::draining());
        }
        let answer = completion::answer(&call.app.model, head, form, outcomes);
        let answer = answer.map_err(|error| Fault::of(error, "prompt"))?;
        let usage = answer.usage;
        Ok(Answer::json(&answer)?.with_usage(usage))
    })
}
