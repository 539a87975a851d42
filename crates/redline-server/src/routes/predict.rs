//! `POST /predict`.

use axum::http::StatusCode;
use redline_api::json::limits::MAX_TEXTS;
use redline_api::tei::predict;
use redline_api::tei::predict::{PredictBody, Predictions};

use crate::admission::{Need, run_one, score_bytes};
use crate::answer::Answer;
use crate::error_format::ErrorFormat;
use crate::fault::Fault;
use crate::models::Purpose;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[Route {
    error_format: ErrorFormat::Tei,
    ..Route::post("/predict", answer, OPERATION).of_purpose(Purpose::Classify)
}];

const OPERATION: Operation = Operation {
    summary: "Classifies texts by the classes of the server.",
    request_bodies: &[schema_of::<PredictBody>],
    response: ResponseBody::Json(&[schema_of::<Predictions>]),
    further_statuses: &[424],
};

pub(super) fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let classes = call.app.config.classes.clone();
        let own = call.app.model.engine.info().classes.as_ref().filter(|classes| classes.len() > 1);
        if classes.is_empty() && own.is_none() {
            let message = "the server was started without classes, so the model is not a classifier; `/v1/classify` takes them per request";
            return Err(Fault::new(StatusCode::FAILED_DEPENDENCY, "wrong_model_kind", message));
        }
        let body: PredictBody = call.parse().await?;
        let size = predict::batch_size(&body);
        if size > MAX_TEXTS {
            let message = format!("{size} texts are given; give at most {MAX_TEXTS}");
            return Err(
                Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "batch_too_large", message).of_field("inputs")
            );
        }
        let (request, form) = predict::request(body, &classes).map_err(|error| Fault::of(error, "inputs"))?;
        let answer_bytes = score_bytes(request.texts.len(), classes.len().max(own.map_or(0, Vec::len)));
        let need = Need { param: "inputs", prompts: 1, answer_bytes };
        let build = move |outcome| Answer::json(&predict::answer(form, outcome));
        run_one(&call, need, request, Vec::new(), |error| error, build).await
    })
}
