//! `POST /v1/embeddings`.

use redline_api::openai::embeddings::{self, EmbeddingsAnswer, EmbeddingsBody};

use crate::admission::{Need, embedding_bytes, run_one};
use crate::answer::Answer;
use crate::fault::Fault;
use crate::models::Purpose;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] =
    &[Route::post("/v1/embeddings", answer, OPERATION).of_purpose(Purpose::Embed)];

const OPERATION: Operation = Operation {
    summary: "Makes a vector of each text.",
    request_bodies: &[schema_of::<EmbeddingsBody>],
    response: ResponseBody::Json(&[schema_of::<EmbeddingsAnswer>]),
    further_statuses: &[],
};

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let body: EmbeddingsBody = call.parse().await?;
        let (head, adapters) =
            call.head_with_adapters("embeddings", body.model.as_deref(), body.options.adapter.as_ref())?;
        let (request, format) = embeddings::request(body).map_err(|error| Fault::of(error, "input"))?;
        let answer_bytes = embedding_bytes(&request, &call.app.model.engine);
        let need = Need { param: "input", prompts: 1, answer_bytes };
        let build = move |outcome| {
            let answer = embeddings::answer(head, format, outcome);
            Ok(Answer::json(&answer)?.with_usage(answer.usage))
        };
        run_one(&call, need, request, adapters, |error| embeddings::named(error, "input"), build).await
    })
}
