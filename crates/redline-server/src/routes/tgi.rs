//! `POST /generate`, `POST /generate_stream`, and the same at `/`, as Text Generation Inference has them.

use redline_api::tgi;
use redline_api::tgi::{TgiAnswer, TgiBody, TgiEvent, TgiStream};
use redline_engine::AnyRequest;

use crate::admission::Need;
use crate::answer::Answer;
use crate::app::App;
use crate::error_format::ErrorFormat;
use crate::fault::Fault;
use crate::generation::{GivenGrammar, generate};
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};
use crate::sizes::answer_bytes;

pub(super) const ROUTES: &[Route] = &[
    Route { error_format: ErrorFormat::Tei, ..Route::post("/generate", whole, WHOLE) },
    Route { error_format: ErrorFormat::Tei, ..Route::post("/generate_stream", streamed, STREAMED) },
];

const WHOLE: Operation = Operation {
    summary: "Continues a prompt, in the form of Text Generation Inference.",
    request_bodies: &[schema_of::<TgiBody>],
    response: ResponseBody::Json(&[schema_of::<TgiAnswer>]),
    further_statuses: &[],
};

const STREAMED: Operation = Operation {
    summary: "Continues a prompt with events, in the form of Text Generation Inference.",
    request_bodies: &[schema_of::<TgiBody>],
    response: ResponseBody::Events(schema_of::<TgiEvent>),
    further_statuses: &[],
};

fn whole(call: Call) -> Handled {
    Box::pin(async move {
        let body = TgiBody { stream: None, ..call.parse().await? };
        run(&call, body, |answer| Answer::json(&answer)).await
    })
}

fn streamed(call: Call) -> Handled {
    Box::pin(async move {
        let body = TgiBody { stream: Some(true), ..call.parse().await? };
        run(&call, body, |answer| Answer::json(&answer)).await
    })
}

/// Answers at `/`, where a whole answer is a list.
pub(super) fn root(call: Call) -> Handled {
    Box::pin(async move {
        let body: TgiBody = call.parse().await?;
        run(&call, body, |answer| Answer::json(&[answer])).await
    })
}

async fn run(
    call: &Call,
    body: TgiBody,
    written: fn(TgiAnswer) -> Result<Answer, Fault>,
) -> Result<Answer, Fault> {
    let app = &call.app;
    app.model.engine.check_predicts_next().map_err(|error| Fault::of_engine(&error, "inputs"))?;
    let adapter = body.parameters.as_ref().and_then(|parameters| parameters.adapter_id.as_deref());
    let (_, adapters) = call.head_with_adapters("tgi", adapter, None).map_err(|fault| match adapter {
        Some(_) => fault.of_field("parameters.adapter_id"),
        None => fault,
    })?;
    let streams = body.stream == Some(true);
    let (mut request, form) = tgi::request(body, streams).map_err(|error| Fault::of(error, "inputs"))?;
    *request.common().adapters = adapters;
    let answer_bytes = answer_bytes(std::slice::from_ref(&request), &app.sizes, form.echoes());
    let need = Need { param: "inputs", prompts: 1, answer_bytes };
    let grammar = GivenGrammar::of(&mut request, Some("parameters.grammar"));
    let stream = streams.then(|| TgiStream::new(app.model.clone(), form.clone()));
    let build = move |app: &App, mut outcomes: Vec<_>| {
        let outcome = outcomes.pop().ok_or_else(|| Fault::internal("no_outcome"))?;
        written(tgi::answer(&app.model, &form, outcome))
    };
    generate(call, need, grammar, stream, move |_| Ok(vec![request]), build).await
}
