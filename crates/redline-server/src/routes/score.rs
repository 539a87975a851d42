//! `POST /v1/score`, `POST /score`. The keys of a body decide between the form of SGLang and that of vLLM.

use redline_api::sglang::{self, ScoreAnswer, ScoreBody};
use redline_api::vllm::pairs::{self, PairsAnswer, PairsBody};

use crate::admission::{Need, Submitter, run, run_one, score_bytes};
use crate::answer::Answer;
use crate::app::App;
use crate::fault::Fault;
use crate::models::Purpose;
use crate::nesting::has_key;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[
    Route::post("/v1/score", answer, OPERATION),
    Route::post("/score", answer, OPERATION).of_purpose(Purpose::Rank),
];

const OPERATION: Operation = Operation {
    summary: "Scores labels after items, or the relevance of texts to others.",
    request_bodies: &[schema_of::<ScoreBody>, schema_of::<PairsBody>],
    response: ResponseBody::Json(&[schema_of::<ScoreAnswer>, schema_of::<PairsAnswer>]),
    further_statuses: &[],
};

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        if has_key(&call.body.bytes, &pairs::KEYS) {
            return of_pairs(call).await;
        }
        let body: ScoreBody = call.parse().await?;
        let (head, adapters) =
            call.head_with_adapters("score", body.model.as_deref(), body.options.adapter.as_ref())?;
        let (request, form) = sglang::request(body).map_err(|error| Fault::of(error, "items"))?;
        let answer_bytes = score_bytes(request.items.len(), request.labels.len());
        let need = Need { param: "items", prompts: 1, answer_bytes };
        let build = move |outcome| {
            let answer = sglang::answer(head, form, outcome);
            Ok(Answer::json(&answer)?.with_usage(answer.usage))
        };
        run_one(&call, need, request, adapters, move |error| form.named(error), build).await
    })
}

/// Answers a request in vLLM's form.
async fn of_pairs(call: Call) -> Result<Answer, Fault> {
    let body: PairsBody = call.parse().await?;
    let head = call.head("score", body.model.as_deref())?;
    let (requests, form) = pairs::request(body).map_err(|error| Fault::of(error, "queries"))?;
    let answer_bytes = requests.iter().map(|request| score_bytes(request.documents.len(), 2)).sum();
    let need = Need { param: "queries", prompts: requests.len(), answer_bytes };
    let submit = move |submitter: &Submitter<'_>| {
        requests.into_iter().map(|request| submitter.submit(request)).collect::<Result<Vec<_>, _>>()
    };
    let build = move |_: &App, outcomes| {
        let answer = pairs::answer(head, form, outcomes);
        Ok(Answer::json(&answer)?.with_usage(answer.usage))
    };
    run(&call, need, submit, build).await
}
