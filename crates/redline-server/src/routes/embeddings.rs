//! `POST /v1/embeddings`.

use redline_api::openai::embeddings::{self, EmbeddingsAnswer, EmbeddingsBody};

use crate::admission::{Desk, Need, embedding_bytes, run_one};
use crate::answer::Answer;
use crate::app::App;
use crate::fault::Fault;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[Route::post("/v1/embeddings", answer, OPERATION)];

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
        let (mut request, format) = embeddings::request(body).map_err(|error| Fault::of(error, "input"))?;
        request.cache_salt = call.salt(&request.cache_salt);
        request.adapters = adapters;
        request.queueing = call.queueing();
        request.timeout_s = Some(call.timeout_s(request.timeout_s));
        let answer_bytes = embedding_bytes(&request, call.app.model.engine.info());
        let need = Need { param: "input", prompts: 1, answer_bytes };
        let submit = move |desk: &Desk<'_>| {
            request.timeout_s = desk.time_left(request.timeout_s)?;
            let submitted = desk.engine.submit_embed(request, desk.cancel);
            submitted.map_err(|error| embeddings::named(error, "input"))
        };
        let build = move |_: &App, outcome| {
            let answer = embeddings::answer(head, format, outcome);
            Ok(Answer::json(&answer)?.with_usage(answer.usage))
        };
        run_one(&call, need, submit, build).await
    })
}
