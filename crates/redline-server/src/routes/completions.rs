//! `POST /v1/completions`.

use redline_api::openai::completions::{
    self, CompletionBody, CompletionEvent, CompletionStream, OpenAiCompletion,
};
use redline_engine::AnyRequest;

use crate::admission::{Need, Submitter};
use crate::answer::Answer;
use crate::app::App;
use crate::fault::Fault;
use crate::generation::{GivenGrammar, generate};
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};
use crate::sizes::answer_bytes;

pub(super) const ROUTES: &[Route] = &[Route::post("/v1/completions", complete, OPERATION)];

const OPERATION: Operation = Operation {
    summary: "Continues prompts.",
    request_bodies: &[schema_of::<CompletionBody>],
    response: ResponseBody::JsonOrEvents(schema_of::<OpenAiCompletion>, schema_of::<CompletionEvent>),
    further_statuses: &[],
};

fn complete(call: Call) -> Handled {
    Box::pin(async move {
        let body: CompletionBody = call.parse().await?;
        let (head, adapters) = call.head_with_adapters(
            "cmpl",
            body.parts.fields.model.as_deref(),
            body.parts.options.adapter.as_ref(),
        )?;
        let (grammar_param, suffix) = (body.parts.grammar.param(), body.suffix.clone());
        let (mut requests, form) =
            completions::request(call.app.mode(), body).map_err(|error| Fault::of(error, "prompt"))?;
        for request in &mut requests {
            request.common().adapters.clone_from(&adapters);
        }
        let grammar = requests.first_mut().and_then(|request| GivenGrammar::of(request, grammar_param));
        let app = &call.app;
        let need = Need {
            param: "prompt",
            prompts: requests.len(),
            answer_bytes: answer_bytes(&requests, &app.sizes, form.echoes()),
        };
        let stream =
            form.stream().map(|_| CompletionStream::new(app.model.clone(), head.clone(), form, &requests));
        let build = move |app: &App, outcomes: Vec<_>| {
            let answer = completions::answer(&app.model, head, form, outcomes);
            let answer = answer.map_err(|error| Fault::of(error, "prompt"))?;
            Ok(Answer::json(&answer)?.with_usage(answer.usage))
        };
        let make = move |submitter: &Submitter<'_>| {
            completions::with_suffix(requests, suffix.as_deref(), submitter.engine)
        };
        generate(&call, need, grammar, stream, make, build).await
    })
}
