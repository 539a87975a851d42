//! `POST /rerank`, `POST /v1/rerank`, `POST /v2/rerank`.

use redline_api::cohere::{self, RankedDocuments, RerankAnswer, RerankBody, TeiRank};

use crate::admission::{Need, run_one, score_bytes};
use crate::answer::Answer;
use crate::fault::Fault;
use crate::models::Purpose;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[
    Route::post("/rerank", answer, OPERATION).of_purpose(Purpose::Rank),
    Route::post("/v1/rerank", answer, OPERATION).of_purpose(Purpose::Rank),
    Route::post("/v2/rerank", answer, OPERATION).of_purpose(Purpose::Rank),
];

const OPERATION: Operation = Operation {
    summary: "Orders documents by their relevance to a query.",
    request_bodies: &[schema_of::<RerankBody>],
    response: ResponseBody::Json(&[schema_of::<RankedDocuments>, schema_of::<Vec<TeiRank>>]),
    further_statuses: &[],
};

pub(super) fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let body: RerankBody = call.parse().await?;
        let param = if body.texts.is_some() { "texts" } else { "documents" };
        let (head, adapters) =
            call.head_with_adapters("rerank", body.model.as_deref(), body.options.adapter.as_ref())?;
        let (request, form) = cohere::request(body).map_err(|error| Fault::of(error, param))?;
        // Answers may repeat the documents.
        let texts: usize = request.documents.iter().map(String::len).sum();
        let answer_bytes = score_bytes(request.documents.len(), 2).saturating_add(4 * texts);
        let need = Need { param, prompts: 1, answer_bytes };
        let build = move |outcome| match cohere::answer(head, form, outcome) {
            RerankAnswer::Documents(answer) => Ok(Answer::json(&answer)?.with_usage(answer.usage)),
            RerankAnswer::List(answer) => Answer::json(&answer),
        };
        run_one(&call, need, request, adapters, |error| error, build).await
    })
}
