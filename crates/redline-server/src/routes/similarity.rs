//! `POST /similarity`.

use redline_api::json::finite::Finite;
use redline_api::openai::embeddings;
use redline_api::tei::similarity;
use redline_api::tei::similarity::SimilarityBody;

use crate::admission::{Need, embedding_bytes, run_one};
use crate::answer::Answer;
use crate::error_format::ErrorFormat;
use crate::fault::Fault;
use crate::models::Purpose;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[Route {
    error_format: ErrorFormat::Tei,
    ..Route::post("/similarity", answer, OPERATION).of_purpose(Purpose::Embed)
}];

const OPERATION: Operation = Operation {
    summary: "Compares texts with one text by the angles between their vectors, in the form of Text Embeddings Inference.",
    request_bodies: &[schema_of::<SimilarityBody>],
    response: ResponseBody::Json(&[schema_of::<Vec<Finite<f32>>>]),
    further_statuses: &[],
};

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let body: SimilarityBody = call.parse().await?;
        let request = similarity::request(body).map_err(|error| Fault::of(error, "inputs"))?;
        let answer_bytes = embedding_bytes(&request, &call.app.model.engine);
        let need = Need { param: "inputs", prompts: 1, answer_bytes };
        let build = |outcome| Answer::json(&similarity::answer(&outcome));
        run_one(&call, need, request, Vec::new(), |error| embeddings::named(error, "inputs"), build).await
    })
}
