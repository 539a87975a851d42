//! `GET /metrics`.

use crate::answer::Answer;
use crate::metrics::MEDIA_TYPE;
use crate::route::{About, Access, Call, Gives, Handled, Route};
use crate::scrape;

pub(super) const ROUTES: &[Route] =
    &[Route { access: Access::Metrics, ..Route::get("/metrics", answer, ABOUT) }];

const ABOUT: About = About {
    summary: "Metrics in the text format of Prometheus.",
    takes: &[],
    gives: Gives::Text(&[MEDIA_TYPE]),
    statuses: &[],
};

fn answer(call: Call) -> Handled {
    Box::pin(async move { Ok(Answer::text(MEDIA_TYPE, scrape::text(&call.app)?)) })
}
