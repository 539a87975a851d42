//! `POST /v1/chat/completions`.

use redline_api::conversation::reading::Reading;
use redline_api::openai::chat_completions::{
    self, ChatCompletion, ChatCompletionBody, ChatCompletionEvent, ChatStream,
};

use crate::answer::Answer;
use crate::app::App;
use crate::fault::Fault;
use crate::generation::converse;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[Route::post("/v1/chat/completions", answer, OPERATION)];

const OPERATION: Operation = Operation {
    summary: "Continues a conversation.",
    request_bodies: &[schema_of::<ChatCompletionBody>],
    response: ResponseBody::JsonOrEvents(schema_of::<ChatCompletion>, schema_of::<ChatCompletionEvent>),
    further_statuses: &[],
};

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let body: ChatCompletionBody = call.parse().await?;
        let (head, adapters) = call.head_with_adapters(
            "chatcmpl",
            body.parts.fields.model.as_deref(),
            body.parts.options.adapter.as_ref(),
        )?;
        let (chat, form) =
            chat_completions::request(call.app.mode(), body).map_err(|error| Fault::of(error, "messages"))?;
        let model = call.app.model.clone();
        let for_stream = head.clone();
        let stream = |reading, answers| {
            form.stream().map(|_| ChatStream::new(model, for_stream, form, reading, answers))
        };
        let build = move |app: &App, reading: &Reading, outcome| {
            let answer = chat_completions::answer(&app.model, head, form, reading, outcome);
            let answer = answer.map_err(|error| Fault::of(error, "messages"))?;
            Ok(Answer::json(&answer)?.with_usage(answer.usage))
        };
        converse(&call, chat, adapters, stream, build).await
    })
}
