//! `POST /embed`.

use axum::http::StatusCode;
use redline_api::json::finite::Finite;
use redline_api::json::limits::MAX_TEXTS;
use redline_api::openai::embeddings;
use redline_api::tei::embed;
use redline_api::tei::embed::EmbedBody;

use crate::admission::{Need, embedding_bytes, run_one};
use crate::answer::Answer;
use crate::error_format::ErrorFormat;
use crate::fault::Fault;
use crate::models::Purpose;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[Route {
    error_format: ErrorFormat::Tei,
    ..Route::post("/embed", answer, OPERATION).of_purpose(Purpose::Embed)
}];

const OPERATION: Operation = Operation {
    summary: "Makes a vector of each text, in the form of Text Embeddings Inference.",
    request_bodies: &[schema_of::<EmbedBody>],
    response: ResponseBody::Json(&[schema_of::<Vec<Vec<Finite<f32>>>>]),
    further_statuses: &[],
};

pub(super) fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let body: EmbedBody = call.parse().await?;
        let size = body.inputs.0.len();
        if size > MAX_TEXTS {
            let message = format!("{size} texts are given; give at most {MAX_TEXTS}");
            return Err(
                Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "batch_too_large", message).of_field("inputs")
            );
        }
        let request = embed::request(body).map_err(|error| Fault::of(error, "inputs"))?;
        let answer_bytes = embedding_bytes(&request, call.app.model.engine.info());
        let need = Need { param: "inputs", prompts: 1, answer_bytes };
        let build = move |outcome| Answer::json(&embed::answer(outcome));
        run_one(&call, need, request, Vec::new(), |error| embeddings::named(error, "inputs"), build).await
    })
}
