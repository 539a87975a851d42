//! `POST /v1/classify`.

use redline_api::vllm::classify::{self, ClassifyAnswer, ClassifyBody};

use crate::admission::{Desk, Need, run_one, score_bytes};
use crate::answer::Answer;
use crate::app::App;
use crate::fault::Fault;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[Route::post("/v1/classify", answer, OPERATION)];

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
        let mut request = classify::request(body).map_err(|error| Fault::of(error, "input"))?;
        request.options.cache_salt = call.salt(&request.options.cache_salt);
        request.options.adapters = adapters;
        request.options.queueing = call.queueing();
        request.options.timeout_s = Some(call.timeout_s(request.options.timeout_s));
        let own = call.app.model.engine.info().classes.as_ref().map_or(0, Vec::len);
        let classes = request.classes.len().max(own);
        let need =
            Need { param: "input", prompts: 1, answer_bytes: score_bytes(request.texts.len(), classes) };
        let submit = move |desk: &Desk<'_>| {
            request.options.timeout_s = desk.time_left(request.options.timeout_s)?;
            desk.engine.submit_classify(request, desk.cancel)
        };
        let build = move |_: &App, outcome| {
            let answer = classify::answer(head, outcome);
            Ok(Answer::json(&answer)?.with_usage(answer.usage))
        };
        run_one(&call, need, submit, build).await
    })
}
