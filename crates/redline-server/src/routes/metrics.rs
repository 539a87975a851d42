//! `GET /metrics`.

use crate::answer::Answer;
use crate::metrics::MEDIA_TYPE;
use crate::route::{Access, Call, Handled, Route};
use crate::scrape;

pub(super) const ROUTES: &[Route] = &[Route { access: Access::Metrics, ..Route::get("/metrics", answer) }];

fn answer(call: Call) -> Handled {
    Box::pin(async move { Ok(Answer::text(MEDIA_TYPE, scrape::text(&call.app)?)) })
}
