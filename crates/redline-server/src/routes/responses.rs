//! `POST /v1/responses`.

use redline_api::generation::mode::GenerationOutcome;
use redline_api::head::AnswerHead;
use redline_api::openai::responses;
use redline_api::openai::responses::ResponsesStream;
use redline_api::openai::responses::body::{ResponseEvent, ResponseObject, ResponsesBody};

use crate::admission::Need;
use crate::answer::Answer;
use crate::app::App;
use crate::clock::today;
use crate::fault::Fault;
use crate::generation::{PreparedGrammar, generate};
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};
use crate::sizes::answer_bytes;

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
        let grammar_param = body.grammar_param();
        let (chat, form) =
            responses::request(call.app.mode(), body).map_err(|error| Fault::of(error, "input"))?;
        let mut chat = chat.dated(today());
        call.complete(&mut chat.request, adapters);
        let grammar = PreparedGrammar::of(&mut chat.request, grammar_param);
        let app = &call.app;
        let template = app.chat("input")?;
        let answer_bytes = answer_bytes(std::slice::from_ref(&chat.request), &app.sizes, false);
        let need = Need { param: "input", prompts: 1, answer_bytes };
        let stream = form.stream().map(|_| ResponsesStream::new(app.model.clone(), head.clone(), &form));
        let build = move |_: &App, mut outcomes: Vec<GenerationOutcome>| {
            let outcome = outcomes.pop().ok_or_else(|| Fault::internal("no_outcome"))?;
            let usage = responses::usage(&outcome);
            Ok(Answer::json(&responses::answer(head, form, outcome))?.with_usage(usage))
        };
        generate(
            &call,
            need,
            grammar,
            stream,
            move |submitter| Ok(vec![chat.formatted(&template, submitter.engine)?]),
            build,
        )
        .await
    })
}
