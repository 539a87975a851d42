//! `POST /embed`, `/embed_all`, `/embed_sparse`.

use axum::http::StatusCode;
use redline_api::json::finite::Finite;
use redline_api::json::limits::MAX_TEXTS;
use redline_api::openai::embeddings;
use redline_api::tei::embed;
use redline_api::tei::embed::EmbedBody;
use redline_api::tei::embed_all::{self, EmbedAllBody};
use redline_api::tei::embed_sparse::{self, TokenWeight};
use redline_engine::{EmbedRequest, EncodeOutcome};

use crate::admission::{Need, embedding_bytes, run_one};
use crate::answer::Answer;
use crate::error_format::ErrorFormat;
use crate::fault::Fault;
use crate::models::Purpose;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[
    Route {
        error_format: ErrorFormat::Tei,
        ..Route::post("/embed", answer, OPERATION).of_purpose(Purpose::Embed)
    },
    Route {
        error_format: ErrorFormat::Tei,
        ..Route::post("/embed_all", answer_all, OPERATION_OF_ALL).of_purpose(Purpose::Embed)
    },
    Route {
        error_format: ErrorFormat::Tei,
        ..Route::post("/embed_sparse", answer_sparse, OPERATION_OF_SPARSE).of_purpose(Purpose::EmbedSparse)
    },
];

const OPERATION: Operation = Operation {
    summary: "Makes a vector of each text, in the form of Text Embeddings Inference.",
    request_bodies: &[schema_of::<EmbedBody>],
    response: ResponseBody::Json(&[schema_of::<Vec<Vec<Finite<f32>>>>]),
    further_statuses: &[],
};

const OPERATION_OF_ALL: Operation = Operation {
    summary: "Makes a vector of each token of each text, in the form of Text Embeddings Inference.",
    request_bodies: &[schema_of::<EmbedAllBody>],
    response: ResponseBody::Json(&[schema_of::<Vec<Vec<Vec<Finite<f32>>>>>]),
    further_statuses: &[],
};

const OPERATION_OF_SPARSE: Operation = Operation {
    summary: "Weighs tokens of the vocabulary for each text, in the form of Text Embeddings Inference.",
    request_bodies: &[schema_of::<EmbedAllBody>],
    response: ResponseBody::Json(&[schema_of::<Vec<Vec<TokenWeight>>>]),
    further_statuses: &[],
};

pub(super) fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let body: EmbedBody = call.parse().await?;
        check_size(body.inputs.0.len())?;
        let request = embed::request(body).map_err(|error| Fault::of(error, "inputs"))?;
        run(call, request, |outcome| Answer::json(&embed::answer(outcome))).await
    })
}

fn answer_all(call: Call) -> Handled {
    Box::pin(async move {
        let body: EmbedAllBody = call.parse().await?;
        check_size(body.inputs.0.len())?;
        let request = embed_all::request(body).map_err(|error| Fault::of(error, "inputs"))?;
        run(call, request, |outcome| Answer::json(&embed_all::answer(&outcome))).await
    })
}

fn answer_sparse(call: Call) -> Handled {
    Box::pin(async move {
        let body: EmbedAllBody = call.parse().await?;
        check_size(body.inputs.0.len())?;
        let request = embed_sparse::request(body).map_err(|error| Fault::of(error, "inputs"))?;
        run(call, request, |outcome| Answer::json(&embed_sparse::answer(outcome))).await
    })
}

fn check_size(size: usize) -> Result<(), Fault> {
    if size <= MAX_TEXTS {
        return Ok(());
    }
    let message = format!("{size} texts are given; give at most {MAX_TEXTS}");
    Err(Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "batch_too_large", message).of_field("inputs"))
}

async fn run(
    call: Call,
    request: EmbedRequest,
    build: impl FnOnce(EncodeOutcome) -> Result<Answer, Fault> + Send + 'static,
) -> Result<Answer, Fault> {
    let answer_bytes = embedding_bytes(&request, &call.app.model.engine);
    let need = Need { param: "inputs", prompts: 1, answer_bytes };
    run_one(&call, need, request, Vec::new(), |error| embeddings::named(error, "inputs"), build).await
}
