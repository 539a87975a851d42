//! `POST /v1/score`, `POST /score`. The keys of a body decide between the form of SGLang and that of vLLM.

use redline_api::foreign::{pairs, score};
use redline_engine::{Cancel, Engine};
use redline_wire::{PairsBody, ScoreBody};

use crate::admission::{run, run_one};
use crate::answer::Answer;
use crate::fault::Fault;
use crate::nesting::has_key;
use crate::route::{Call, Handled, Route};

pub(super) const ROUTES: &[Route] = &[Route::post("/v1/score", answer), Route::post("/score", answer)];

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        if has_key(&call.body.bytes, &pairs::KEYS) {
            return of_pairs(call).await;
        }
        let body: ScoreBody = call.parse()?;
        let head = call.head("score", body.model.as_deref())?;
        let (mut request, logprobs) = score::request(body).map_err(|error| Fault::of(error, "items"))?;
        request.cache_salt = call.salt(&request.cache_salt);
        request.timeout_s = Some(call.timeout_s(request.timeout_s));
        let submit = |engine: &Engine, cancel: &Cancel| engine.submit_score(request, cancel);
        let outcome = run_one(&call.app, "items", submit).await?;
        let answer = score::answer(head, logprobs, outcome);
        let usage = answer.usage;
        Ok(Answer::json(&answer)?.with_usage(usage))
    })
}

/// Answers a request in vLLM's form.
async fn of_pairs(call: Call) -> Result<Answer, Fault> {
    let body: PairsBody = call.parse()?;
    let head = call.head("score", body.model.as_deref())?;
    let (mut requests, form) = pairs::request(body).map_err(|error| Fault::of(error, "queries"))?;
    for request in &mut requests {
        request.options.cache_salt = call.salt(&request.options.cache_salt);
        request.options.timeout_s = Some(call.timeout_s(request.options.timeout_s));
    }
    let count = requests.len();
    let submit = |engine: &Engine, cancel: &Cancel| {
        requests.into_iter().map(|request| engine.submit_rerank(request, cancel)).collect()
    };
    let outcomes = run(&call.app, count, "queries", submit).await?;
    let answer = pairs::answer(head, form, outcomes);
    let usage = answer.usage;
    Ok(Answer::json(&answer)?.with_usage(usage))
}
