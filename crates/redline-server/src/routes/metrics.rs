//! `GET /metrics`.

use crate::answer::Answer;
use crate::metrics::MEDIA_TYPE;
use crate::route::{Access, Handled, Operation, ResponseBody, Route, ServerCall};
use crate::scrape;

pub(super) const ROUTES: &[Route] =
    &[Route { access: Access::Metrics, ..Route::of_server("/metrics", answer, OPERATION) }];

const OPERATION: Operation = Operation {
    summary: "Metrics in the text format of Prometheus.",
    request_bodies: &[],
    response: ResponseBody::Text(&[MEDIA_TYPE]),
    further_statuses: &[],
};

fn answer(call: ServerCall) -> Handled {
    Box::pin(async move { Ok(Answer::text(MEDIA_TYPE, scrape::text(&call.models)?)) })
}
