//! `POST /v1/responses`.

use redline_api::conversation::reading::Reading;
use redline_api::head::AnswerHead;
use redline_api::openai::responses;
use redline_api::openai::responses::ResponsesStream;
use redline_api::openai::responses::body::{ResponseEvent, ResponseObject, ResponsesBody};

use crate::answer::Answer;
use crate::app::App;
use crate::fault::Fault;
use crate::generation::converse;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[Route::post("/v1/responses", answer, OPERATION)];

const OPERATION: Operation = Operation {
    summary: "Answers a text or a conversation.",
    request_bodies: &[schema_of::<ResponsesBody>],
    response: ResponseBody::JsonOrEvents(schema_of::<ResponseObject>, schema_of::<ResponseEvent>),
    further_statuses: &[],
};

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let body: ResponsesBody = call.parse().await?;
        let (head, adapters) = call.head_with_adapters(
            "resp",
            body.parts.fields.model.as_deref(),
            body.parts.options.adapter.as_ref(),
        )?;
        let head = AnswerHead { id: format!("resp_{}", call.id), ..head };
        let (chat, form) =
            responses::request(call.app.mode(), body).map_err(|error| Fault::of(error, "input"))?;
        let model = call.app.model.clone();
        let stream =
            |reading, _| form.stream().map(|_| ResponsesStream::new(model, head.clone(), &form, reading));
        let (for_answer, form_of_answer) = (head.clone(), form.clone());
        let build = move |_: &App, reading: &Reading, outcome| {
            let built = responses::answer(for_answer, form_of_answer, reading, outcome);
            let (answer, usage) = built.map_err(|error| Fault::of(error, "input"))?;
            Ok(Answer::json(&answer)?.with_usage(usage))
        };
        converse(&call, chat, adapters, stream, build).await
    })
}
