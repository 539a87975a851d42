//! `POST /v1/messages`.

use redline_api::anthropic::{self, MessageAnswer, MessageEvent, MessagesBody, MessagesStream};
use redline_api::conversation::reading::Reading;
use redline_api::head::AnswerHead;

use crate::answer::Answer;
use crate::app::App;
use crate::error_format::ErrorFormat;
use crate::fault::Fault;
use crate::generation::converse;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] =
    &[Route { error_format: ErrorFormat::Anthropic, ..Route::post("/v1/messages", answer, OPERATION) }];

const OPERATION: Operation = Operation {
    summary: "Answers a conversation, as Anthropic's route does.",
    request_bodies: &[schema_of::<MessagesBody>],
    response: ResponseBody::JsonOrEvents(schema_of::<MessageAnswer>, schema_of::<MessageEvent>),
    further_statuses: &[],
};

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let body: MessagesBody = call.parse().await?;
        let (head, adapters) =
            call.head_with_adapters("msg", body.model.as_deref(), body.options.adapter.as_ref())?;
        let head = AnswerHead { id: format!("msg_{}", call.id), ..head };
        let (chat, form) =
            anthropic::request(call.app.mode(), body).map_err(|error| Fault::of(error, "messages"))?;
        let stream =
            |reading, _| form.streams.then(|| MessagesStream::new(head.clone(), form.clone(), reading));
        let (for_answer, form_of_answer) = (head.clone(), form.clone());
        let build = move |_: &App, reading: &Reading, outcome| {
            let built = anthropic::answer(for_answer, &form_of_answer, reading, outcome);
            let (answer, usage) = built.map_err(|error| Fault::of(error, "messages"))?;
            Ok(Answer::json(&answer)?.with_usage(usage))
        };
        converse(&call, chat, adapters, stream, build).await
    })
}
