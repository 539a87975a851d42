//! `POST /predict`.

use axum::http::StatusCode;
use redline_api::foreign::predict::{self, MAX_BATCH};
use redline_engine::{Cancel, Engine};
use redline_wire::PredictBody;

use crate::admission::run_one;
use crate::answer::Answer;
use crate::fault::Fault;
use crate::form::Form;
use crate::route::{Call, Handled, Route};

pub(super) const ROUTES: &[Route] = &[Route { form: Form::Tei, ..Route::post("/predict", answer) }];

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let classes = call.app.config.classes.clone();
        if classes.is_empty() {
            let message = "the server was started without classes, so the model is not a classifier; `/v1/classify` takes them per request";
            return Err(Fault::new(StatusCode::FAILED_DEPENDENCY, "wrong_model_kind", message));
        }
        let body: PredictBody = call.parse()?;
        let size = predict::batch_size(&body);
        if size > MAX_BATCH {
            let message = format!("{size} texts are given; give at most {MAX_BATCH}");
            return Err(
                Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "batch_too_large", message).of_field("inputs")
            );
        }
        let (mut request, form) =
            predict::request(body, &classes).map_err(|error| Fault::of(error, "inputs"))?;
        request.options.cache_salt = call.salt("");
        request.options.timeout_s = Some(call.timeout_s(None));
        let submit = |engine: &Engine, cancel: &Cancel| engine.submit_classify(request, cancel);
        let outcome = run_one(&call.app, "inputs", submit).await?;
        Answer::json(&predict::answer(form, &classes, outcome))
    })
}
