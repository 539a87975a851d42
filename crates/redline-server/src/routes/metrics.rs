//! `GET /metrics`.

use crate::answer::Answer;
use crate::metrics::MEDIA_TYPE;
use crate::route::{Access, Call, Handled, Operation, ResponseBody, Route};
use crate::scrape;

pub(super) const ROUTES: &[Route] =
    &[Route { access: Access::Metrics, ..Route::get("/metrics", answer, OPERATION) }];

const OPERATION: Operation = Operation {
    summary: "Metrics in the text format of Prometheus.",
    request_bodies: &[],
    response: ResponseBody::Text(&[MEDIA_TYPE]),
    further_statuses: &[],
};

fn answer(call: Call) -> Handled {
    Box::pin(async move { Ok(Answer::text(MEDIA_TYPE, scrape::text(&call.app)?)) })
}
