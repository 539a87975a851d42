//! `GET /metrics`.

use crate::answer::Answer;
use crate::metrics;
use crate::route::{Access, Call, Handled, Route};

pub(super) const ROUTES: &[Route] = &[Route { access: Access::Metrics, ..Route::get("/metrics", answer) }];

fn answer(call: Call) -> Handled {
    Box::pin(async move { Ok(Answer::text(metrics::MEDIA_TYPE, metrics::text(&call.app)?)) })
}
