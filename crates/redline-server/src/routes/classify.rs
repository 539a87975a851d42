//! `POST /v1/classify`.

use redline_api::vllm::classify::{self, ClassifyAnswer, ClassifyBody};

use crate::admission::{Need, run_one, score_bytes};
use crate::answer::Answer;
use crate::fault::Fault;
use crate::models::Purpose;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] =
    &[Route::post("/v1/classify", answer, OPERATION).of_purpose(Purpose::Classify)];

const OPERATION: Operation = Operation {
    summary: "Finds the class of each text.",
    request_bodies: &[schema_of::<ClassifyBody>],
    response: ResponseBody::Json(&[schema_of::<ClassifyAnswer>]),
    further_statuses: &[],
};

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let body: ClassifyBody = call.parse().await?;
        let (head, adapters) =
            call.head_with_adapters("classify", body.model.as_deref(), body.options.adapter.as_ref())?;
        let request = classify::request(body).map_err(|error| Fault::of(error, "input"))?;
        let own = call.app.model.engine.info().classes.as_ref().map_or(0, Vec::len);
        let classes = request.classes.len().max(own);
        let need =
            Need { param: "input", prompts: 1, answer_bytes: score_bytes(request.texts.len(), classes) };
        let build = move |outcome| {
            let answer = classify::answer(head, outcome);
            Ok(Answer::json(&answer)?.with_usage(answer.usage))
        };
        run_one(&call, need, request, adapters, |error| error, build).await
    })
}
