//! `POST /v1/chat/completions`.

use redline_api::generation::mode::GenerationOutcome;
use redline_api::openai::chat_completions::{
    self, ChatCompletion, ChatCompletionBody, ChatCompletionEvent, ChatStream,
};

use crate::admission::Need;
use crate::answer::Answer;
use crate::app::App;
use crate::clock::today;
use crate::fault::Fault;
use crate::generation::{PreparedGrammar, generate};
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};
use crate::sizes::answer_bytes;

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
        let grammar_param = body.parts.grammar.param();
        let (chat, form) =
            chat_completions::request(call.app.mode(), body).map_err(|error| Fault::of(error, "messages"))?;
        let mut chat = chat.dated(today());
        call.complete(&mut chat.request, adapters);
        let grammar = PreparedGrammar::of(&mut chat.request, grammar_param);
        let app = &call.app;
        let template = app.chat("messages")?;
        let answer_bytes = answer_bytes(std::slice::from_ref(&chat.request), &app.sizes, false);
        let need = Need { param: "messages", prompts: 1, answer_bytes };
        let stream = form.stream().map(|_| ChatStream::new(app.model.clone(), head.clone(), form, &chat));
        let build = move |app: &App, mut outcomes: Vec<GenerationOutcome>| {
            let outcome = outcomes.pop().ok_or_else(|| Fault::internal("no_outcome"))?;
            let answer = chat_completions::answer(&app.model, head, form, outcome);
            let answer = answer.map_err(|error| Fault::of(error, "messages"))?;
            Ok(Answer::json(&answer)?.with_usage(answer.usage))
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
