//! `POST /infill`.

use redline_api::infill;
use redline_api::infill::{InfillAnswer, InfillBody, InfillEvent, InfillStream};
use redline_engine::AnyRequest;

use crate::admission::{Need, Submitter};
use crate::answer::Answer;
use crate::app::App;
use crate::fault::Fault;
use crate::generation::{GivenGrammar, generate};
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};
use crate::sizes::answer_bytes;

pub(super) const ROUTES: &[Route] = &[Route::post("/infill", answer, OPERATION)];

const OPERATION: Operation = Operation {
    summary: "Fills a gap in a text, in the form of llama.cpp.",
    request_bodies: &[schema_of::<InfillBody>],
    response: ResponseBody::JsonOrEvents(schema_of::<InfillAnswer>, schema_of::<InfillEvent>),
    further_statuses: &[],
};

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let body: InfillBody = call.parse().await?;
        let (head, adapters) = call.head_with_adapters(
            "infill",
            body.parts.fields.model.as_deref(),
            body.parts.options.adapter.as_ref(),
        )?;
        let grammar_param = body.parts.grammar.param();
        let (mut asked, form) = infill::request(call.app.mode(), head.model, body)
            .map_err(|error| Fault::of(error, "input_prefix"))?;
        *asked.request.common().adapters = adapters;
        let app = &call.app;
        let answer_bytes = answer_bytes(std::slice::from_ref(&asked.request), &app.sizes, false);
        let need = Need { param: "input_prefix", prompts: 1, answer_bytes };
        let grammar = GivenGrammar::of(&mut asked.request, grammar_param);
        let stream = form.stream.map(|_| InfillStream::new(app.model.clone(), form.clone()));
        let make = move |submitter: &Submitter<'_>| Ok(vec![asked.completed(submitter.engine)?]);
        let build = move |app: &App, mut outcomes: Vec<_>| {
            let outcome = outcomes.pop().ok_or_else(|| Fault::internal("no_outcome"))?;
            Answer::json(&infill::answer(&app.model, &form, outcome))
        };
        generate(&call, need, grammar, stream, make, build).await
    })
}
