//! `POST /v1/messages/count_tokens`.

use redline_api::anthropic::{CountTokensAnswer, CountTokensBody, prompt};
use redline_api::error::ApiError;

use crate::admission::{Place, placed};
use crate::answer::Answer;
use crate::clock::today;
use crate::error_format::ErrorFormat;
use crate::fault::Fault;
use crate::route::{Call, Handled, Operation, ResponseBody, Route, schema_of};

pub(super) const ROUTES: &[Route] = &[Route {
    error_format: ErrorFormat::Anthropic,
    ..Route::post("/v1/messages/count_tokens", answer, OPERATION)
}];

const OPERATION: Operation = Operation {
    summary: "The number of tokens of a conversation.",
    request_bodies: &[schema_of::<CountTokensBody>],
    response: ResponseBody::Json(&[schema_of::<CountTokensAnswer>]),
    further_statuses: &[],
};

fn answer(call: Call) -> Handled {
    Box::pin(async move {
        let body: CountTokensBody = call.parse().await?;
        call.head_with_adapters("tokens", body.model.as_deref(), None)?;
        let template = call.app.chat("messages")?;
        let place = Place::take(&call, 1, "messages")?;
        let counted = placed(&call.app, place, move |app| {
            let prompt = prompt(body, today(), &template)?;
            app.model.engine.encode(prompt.text().unwrap_or_default(), false).map_err(ApiError::from)
        });
        let tokens = counted.await?.1.map_err(|error| Fault::of(error, "messages"))?;
        Answer::json(&CountTokensAnswer { input_tokens: tokens.len() })
    })
}
